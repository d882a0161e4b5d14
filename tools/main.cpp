// `switchyard`: wires the subcommands together; each has a folder of its own.
#include <sys/stat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "switchyard/status.h"
#include "tools/backend/backend.h"
#include "tools/base/command.h"
#include "tools/base/knobs.h"
#include "tools/base/suggest.h"
#include "tools/doctor/doctor.h"
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

// Every subcommand; what it leaves behind is in `outcome`.
void declare(CLI::App& app, tools::Outcome& outcome) {
  app.footer(kExamples);
  app.set_version_flag("-V,--version", std::string("switchyard ") + kVersion);
  tools::add_run(app, outcome);
  tools::add_status(app, outcome);
  tools::add_ps(app, outcome);
  tools::add_set(app, outcome);
  tools::add_pause(app, outcome);
  tools::add_resume(app, outcome);
  tools::add_swap_out(app, outcome);
  tools::add_swap_in(app, outcome);
  tools::add_policy(app, outcome);
  tools::add_backend(app, outcome);
  tools::add_stop(app, outcome);
  tools::add_doctor(app, outcome);
  tools::add_version(app, outcome);
}

std::vector<std::string> names_of_subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

// `help` and `help CMD` mean --help; so does nothing at all.
void translate_help(std::vector<std::string>& arguments) {
  if (arguments.empty()) arguments = {"--help"};
  if (arguments.front() != "help") return;
  arguments.erase(arguments.begin());
  arguments.resize(std::min<std::size_t>(arguments.size(), 1));
  arguments.emplace_back("--help");
}

// What stands where nothing may stand, in the order in which it was written.
std::string unexpected(const std::string& subcommand, const std::vector<std::string>& extras) {
  for (const std::string& extra : extras) {
    const std::string option = extra.substr(0, extra.find('='));
    for (const tools::Knob& knob : tools::knobs()) {
      if (subcommand == "set" && knob.option != nullptr && option == knob.option) {
        return option + " is fixed when the job starts: see `switchyard run --help`";
      }
    }
  }
  std::string text = extras.size() == 1 ? "unexpected argument" : "unexpected arguments";
  for (const std::string& extra : extras) text += " '" + extra + "'";
  return text + "; see `switchyard " + subcommand + (subcommand.empty() ? "" : " ") + "--help`";
}

int parse_and_run(std::vector<std::string> arguments) {
  tools::Outcome outcome;
  translate_help(arguments);
  CLI::App app("Lets several unmodified CUDA jobs share GPUs.", "switchyard");
  declare(app, outcome);
  const std::string first = arguments.front();
  const auto names = names_of_subcommands(app);
  const bool known = std::find(names.begin(), names.end(), first) != names.end();
  if (!known && first[0] != '-') {
    const std::string meant = tools::nearest(first, names);
    tools::complain("unknown command '" + first + "'" +
                    (meant.empty() ? "" : "; did you mean '" + meant + "'?") +
                    "; see `switchyard --help`");
    return kUsage;
  }
  if (first == "run") tools::split_command(arguments, outcome.command);
  const std::string subcommand = known ? first : "";
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::ExtrasError&) {
    tools::complain(unexpected(subcommand, app.remaining(true)));
    return kUsage;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version
    tools::complain(std::string(error.what()) + "; see `switchyard " + subcommand +
                    (subcommand.empty() ? "" : " ") + "--help`");
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
