#include "monitor/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "monitor/command_line.h"
#include "switchyard/status.h"
#include "switchyard/wrapped.h"

namespace switchyard::monitor {
namespace {

using config::Said;
using config::Setting;

constexpr char kAbout[] =
    "switchyardd, the monitor of Switchyard: shares GPUs among jobs.\n"
    "`switchyard run` starts a monitor when none answers.\n\n"
    "  switchyardd --system                            one monitor for all users, started by root\n"
    "  switchyardd --persist                           keep running after the last job has ended\n"
    "  switchyardd --policy exclusive                  one job at a time has the GPU\n"
    "  switchyardd --host-pool 64GiB                   pin up to 64 GiB of the host for swapping\n"
    "  switchyardd --cap-priority normal               only root may ask for priority high\n"
    "  switchyardd --metrics 127.0.0.1:9835            answer Prometheus there\n"
    "  switchyardd --log debug:/var/log/switchyard/monitor.log\n"
    "  switchyardd --config my.toml                    read the settings from a file";

// Says the fault of the words themselves. Returns the exit code.
int refuse_words(const std::string& what) {
  std::fprintf(stderr, "switchyardd: %s; see `switchyardd --help`\n", what.c_str());
  return kUsage;
}

// CLI11 makes none of an empty value: a script's variable that is not set would lift a limit.
const CLI::Option* empty_one(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& said = option->results();
    if (std::find(said.begin(), said.end(), "") != said.end()) return option;
  }
  return nullptr;
}

// An option whose value is missing takes the next one for it.
const CLI::Option* with_an_option_for_value(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& said : option->results()) {
      if (said.rfind("--", 0) == 0) return option;
    }
  }
  return nullptr;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  const auto line = std::make_shared<CommandLine>();
  Plain& plain = line->plain;
  CLI::App app{kAbout, "switchyardd"};
  app.formatter_fn([](const CLI::App* about, std::string name, CLI::AppFormatMode mode) {
    return wrapped(CLI::Formatter().make_help(about, std::move(name), mode));
  });
  app.set_version_flag("--version", std::string("switchyardd ") + kVersion);
  app.add_option(
      "--socket", plain.socket,
      "where to listen (default: $SWITCHYARD_SOCKET; root: /run/switchyard/monitor.sock; "
      "else $XDG_RUNTIME_DIR/switchyard/ or /tmp/switchyard-UID/)");
  app.add_flag("--system", plain.system,
               "serve all users on /run/switchyard/monitor.sock, and keep running (root only)");
  app.add_option("--config", plain.config,
                 "read the settings from this file, or none; options win over it (default: a "
                 "monitor of the machine reads /etc/switchyard/switchyard.toml)");
  app.add_flag("--observe", plain.observe,
               "see all GPU processes and serve `ps -a`, `report`, `events` and metrics, but claim "
               "no GPU and take no job; beside another monitor, too");
  app.add_flag("--check-config", plain.check, "say what is wrong with options and file, and end");
  bool persist = false;
  for (std::size_t i = 0; i < config::kSettings; ++i) {
    const config::Row& row = config::kRows[i];
    if (i == static_cast<std::size_t>(Setting::kPersist)) {
      app.add_flag(row.option, persist, row.meaning);
    } else {
      app.add_option(row.option, line->texts.all[i].text, row.meaning);
    }
  }
  app.add_option("--allow-high", plain.allow_high,
                 "user ids that may ask for high in spite of --cap-priority")
      ->type_name("UINT")
      ->delimiter(',');
  app.add_option("--means", plain.old_backend)->group("");  // its earlier name, hidden
  // Hidden: what makes tests short.
  app.add_option("--stay-moves", plain.stay_moves)->group("");
  app.add_option("--worth-handing-over", plain.worth_handing_over)->group("");
  app.add_flag("--foreground", plain.foreground,
               "accepted and ignored: the monitor always stays in the foreground");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ExtrasError&) {
    std::string extras;
    for (const std::string& extra : app.remaining(true)) extras += " '" + extra + "'";
    const bool one = app.remaining(true).size() == 1;
    exit_code = refuse_words((one ? "unexpected argument" : "unexpected arguments") + extras);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    exit_code = error.get_exit_code() == 0 ? app.exit(error) : refuse_words(error.what());
    return std::nullopt;
  }
  if (const CLI::Option* empty = empty_one(app)) {
    exit_code = refuse_words("the value of " + empty->get_name() + " is empty: leave it away");
    return std::nullopt;
  }
  if (const CLI::Option* taker = with_an_option_for_value(app)) {
    exit_code = refuse_words(taker->get_name() + " needs a value, and '" +
                             taker->results().front() + "' looks like an option");
    return std::nullopt;
  }
  if (persist) line->texts[Setting::kPersist].text = "yes";
  for (std::size_t i = 0; i < config::kSettings; ++i) {
    Said& said = line->texts.all[i];
    if (!said.text.empty()) said.origin = config::kRows[i].option;
  }
  std::vector<std::string> problems;
  auto out = understand(line, problems);
  // File and line come first, as editors want it.
  const char* who = plain.check ? "" : "switchyardd: ";
  for (const std::string& problem : problems) std::fprintf(stderr, "%s%s\n", who, problem.c_str());
  if (!out) exit_code = kUsage;
  return out;
}

}  // namespace switchyard::monitor
