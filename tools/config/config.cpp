#include "tools/config/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "switchyard/paths.h"
#include "tools/base/monitor_client.h"
#include "tools/base/places.h"
#include "tools/base/table.h"

namespace switchyard::tools {
namespace {

constexpr char kFile[] = "/etc/switchyard/switchyard.toml";

struct Options {
  std::string verb;
  std::string file;
  bool json = false;
};

constexpr char kExamples[] = R"(Examples:
  switchyard config check
      say what is wrong with /etc/switchyard/switchyard.toml, by line
  switchyard config check draft.toml
  sudo systemctl reload switchyardd
      the monitor reads its file anew; with an error it keeps what it has
  switchyard config show
      each setting of the monitor that answers, and where it was said

Users see the rules of the file that concern them; root and the monitor's owner see all. A value
that waits for the next start of the monitor stands in parentheses.

Exit status: 0; 2 a bad value or a bad file, 3 no monitor, 7 the monitor does not answer.)";

// The monitor's own program reads the file, so what is good here is good there.
int check(const Options& options) {
  if (options.json) {
    return fail(Error{kUsage, "check prints a line for each error, and no JSON: leave --json out"});
  }
  // Without it the monitor of the machine starts, too.
  if (options.file.empty() && ::access(kFile, F_OK) != 0 && errno == ENOENT) {
    fmt::print("there is no file {}: the defaults count\n", kFile);
    return kOk;
  }
  auto program = find_monitor_program();
  if (!program) return fail(program.error());
  std::error_code ignored;
  const std::string file =
      options.file.empty() ? kFile : std::filesystem::absolute(options.file, ignored).string();
  // Only the file is checked, not what is set here.
  ::unsetenv("SWITCHYARD_BACKEND");
  ::unsetenv("SWITCHYARD_MEANS");
  std::fflush(stdout);
  ::execl(program->c_str(), "switchyardd", "--check-config", "--socket", kSystemSocket, "--config",
          file.c_str(), static_cast<char*>(nullptr));
  return fail(Error{kFailure, fmt::format("starting {}: {}", *program, std::strerror(errno))});
}

int show(const Options& options) {
  if (!options.file.empty()) {
    return fail(Error{kUsage,
                      "show tells what the monitor has, and takes no file: see `switchyard "
                      "config check FILE`"});
  }
  auto reply = MonitorClient::ask_any({{"op", "config"}});
  if (!reply) return fail(reply.error());
  if (options.json) {
    print_json(*reply);
    return kOk;
  }
  Table table({{"KEY"}, {"VALUE"}, {"FROM"}});
  for (const nlohmann::json& each : list_of(*reply, "settings")) {
    const std::string next = text_of(each, "next_start", "");
    table.add({text_of(each, "key"),
               text_of(each, "value") + (next.empty() ? "" : " (next start: " + next + ")"),
               text_of(each, "from")});
  }
  fmt::print("{}", table.render());
  return kOk;
}

int config(const Options& options) {
  if (options.verb == "check") return check(options);
  if (options.verb == "show") return show(options);
  return fail(bad_value("the word", options.verb, "check or show"));
}

}  // namespace

void add_config(CommandLine& line) {
  const auto options = std::make_shared<Options>();
  line.add("config", "check the file of the monitor's settings, or show what is in force",
           kExamples)
      .required_word("VERB", options->verb, "check or show")
      .word("FILE", options->file, fmt::format("for check; without it, {}", kFile))
      .monitor_options(options->json, "print JSON, for show")
      .acts([options] { return config(*options); });
}

}  // namespace switchyard::tools
