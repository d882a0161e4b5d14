// `switchyard`: wires the subcommands together; each has a room of its own.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "switchyard/status.h"
#include "tools/base/command.h"
#include "tools/doctor/doctor.h"
#include "tools/means/means.h"
#include "tools/pause/pause.h"
#include "tools/policy/policy.h"
#include "tools/ps/ps.h"
#include "tools/run/run.h"
#include "tools/set/set.h"
#include "tools/status/status.h"
#include "tools/stop/stop.h"
#include "tools/swap/swap.h"
#include "tools/version/version.h"

namespace {

using namespace switchyard;

constexpr char kExamples[] = R"(A first session:
  switchyard run --name chat --priority high -- python serve.py
  switchyard run --name train --priority low --memory 40GiB -- python train.py
  switchyard ps
  switchyard set train --share 4 --limit 50%
  switchyard pause train --timeout 60s
  switchyard doctor

Exit status: 0 ok, 1 failure, 2 usage, 3 monitor unreachable, 4 no such job or GPU, 5 permission,
6 refused by quota or policy, 7 time-out. `run` returns the job's own status; see its --help.)";

int parse_and_run(std::vector<std::string> arguments) {
  tools::Outcome outcome;
  if (!arguments.empty() && arguments.front() == "run") {
    tools::split_command(arguments, outcome.command);
  }
  CLI::App app("Lets several unmodified CUDA jobs share GPUs well.", "switchyard");
  app.footer(kExamples);
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("switchyard ") + kVersion);
  tools::add_run(app, outcome);
  tools::add_status(app, outcome);
  tools::add_ps(app, outcome);
  tools::add_set(app, outcome);
  tools::add_pause(app, outcome);
  tools::add_resume(app, outcome);
  tools::add_swap_out(app, outcome);
  tools::add_swap_in(app, outcome);
  tools::add_policy(app, outcome);
  tools::add_means(app, outcome);
  tools::add_stop(app, outcome);
  tools::add_doctor(app, outcome);
  tools::add_version(app, outcome);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    tools::complain(std::string(error.what()) + "; see `switchyard --help`");
    return kUsage;
  }
  return outcome.code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return parse_and_run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    tools::complain(std::string("stopped by an unexpected error: ") + error.what());
    return kFailure;
  }
}
