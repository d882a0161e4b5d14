// `switchyard`: wires the subcommands together; each has a folder of its own.
#include <algorithm>
#include <string>
#include <vector>

#include "switchyard/standard_streams.h"
#include "switchyard/status.h"
#include "switchyard/suggest.h"
#include "tools/backend/backend.h"
#include "tools/base/command.h"
#include "tools/cdi/cdi.h"
#include "tools/config/config.h"
#include "tools/doctor/doctor.h"
#include "tools/events/events.h"
#include "tools/inspect/inspect.h"
#include "tools/jupyter/jupyter.h"
#include "tools/migrate/migrate.h"
#include "tools/pause/pause.h"
#include "tools/policy/policy.h"
#include "tools/ps/ps.h"
#include "tools/report/report.h"
#include "tools/run/run.h"
#include "tools/set/set.h"
#include "tools/stats/stats.h"
#include "tools/status/status.h"
#include "tools/stop/stop.h"
#include "tools/swap/swap.h"
#include "tools/top/top.h"
#include "tools/trace/trace.h"
#include "tools/version/version.h"
#include "tools/why/why.h"

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

void declare(tools::CommandLine& line) {
  tools::add_run(line);
  tools::add_status(line);
  tools::add_ps(line);
  tools::add_top(line);
  tools::add_why(line);
  tools::add_inspect(line);
  tools::add_stats(line);
  tools::add_report(line);
  tools::add_events(line);
  tools::add_trace(line);
  tools::add_set(line);
  tools::add_pause(line);
  tools::add_resume(line);
  tools::add_swap_out(line);
  tools::add_swap_in(line);
  tools::add_migrate(line);
  tools::add_policy(line);
  tools::add_backend(line);
  tools::add_stop(line);
  tools::add_cdi(line);
  tools::add_jupyter(line);
  tools::add_config(line);
  tools::add_doctor(line);
  tools::add_version(line);
}

// What people type who come from docker, nvidia-smi or a shell.
struct Elsewhere {
  const char* name;
  const char* hint;
};
constexpr Elsewhere kElsewhere[] = {
    {"list", "`switchyard ps` lists the jobs"},
    {"ls", "`switchyard ps` lists the jobs"},
    {"show", "`switchyard inspect NAME` tells all of a job"},
    {"update", "`switchyard set NAME` changes a running job"},
    {"unpause", "`switchyard resume NAME` resumes a paused job"},
    {"start", "`switchyard run -- COMMAND` starts a job"},
    {"exec", "`switchyard run -- COMMAND` starts a job"},
    {"kill", "jobs are processes: `kill PID` ends one; `switchyard ps` lists their PIDs"},
    {"rm", "jobs are processes: `kill PID` ends one; `switchyard ps` lists their PIDs"},
    {"logs", "a job writes to the terminal or file that it was started with"},
};

// What to do instead of the unknown `word`; empty: nobody knows. A word that is like `stop` is not
// taken for it: that ends the monitor.
std::string instead_of(const std::string& word, std::vector<std::string> names) {
  for (const Elsewhere& each : kElsewhere) {
    if (word == each.name) return std::string("; ") + each.hint;
  }
  std::erase(names, "stop");
  const std::string meant = nearest(word, names);
  return meant.empty() ? "" : "; did you mean '" + meant + "'?";
}

// `help` and `help CMD` mean --help; so does nothing at all.
void translate_help(std::vector<std::string>& arguments) {
  if (arguments.empty()) arguments = {"--help"};
  if (arguments.front() != "help") return;
  arguments.erase(arguments.begin());
  arguments.resize(std::min<std::size_t>(arguments.size(), 1));
  arguments.emplace_back("--help");
}

int parse_and_run(std::vector<std::string> arguments) {
  translate_help(arguments);
  tools::CommandLine line("Lets several unmodified CUDA jobs share GPUs.", kExamples);
  declare(line);
  const std::string first = arguments.front();
  const auto names = line.names();
  if (std::find(names.begin(), names.end(), first) == names.end() && first[0] != '-') {
    tools::complain("unknown command '" + first + "'" + instead_of(first, names) +
                    "; see `switchyard --help`");
    return kUsage;
  }
  if (first == "run") tools::split_command(arguments, line.command);
  return line.run(std::move(arguments));
}

}  // namespace

int main(int argc, char** argv) {
  fill_closed_streams();
  try {
    const int code = parse_and_run(std::vector<std::string>(argv + 1, argv + argc));
    return tools::output_written() || code != kOk ? code : int{kFailure};
  } catch (const std::exception& error) {
    if (!tools::output_written()) return kFailure;  // what failed is a write
    tools::complain(std::string("stopped by an unexpected error: ") + error.what());
    return kFailure;
  }
}
