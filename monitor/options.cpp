#include "monitor/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "monitor/platform/processes.h"
#include "monitor/transport/metrics_http.h"
#include "switchyard/observer.h"
#include "switchyard/paths.h"
#include "switchyard/status.h"
#include "switchyard/wrapped.h"

namespace switchyard::monitor {
namespace {

constexpr char kAbout[] =
    "switchyardd, the monitor of Switchyard: shares GPUs among jobs.\n"
    "`switchyard run` starts a monitor when none answers.\n\n"
    "  switchyardd --system                            one monitor for all users, started by root\n"
    "  switchyardd --observe                           see who uses the GPUs, and manage nothing\n"
    "  switchyardd --persist                           keep running after the last job has ended\n"
    "  switchyardd --policy exclusive                  one job at a time has the GPU\n"
    "  switchyardd --host-pool 64GiB                   pin up to 64 GiB of the host for swapping\n"
    "  switchyardd --cap-priority normal               only root may ask for priority high\n"
    "  switchyardd --metrics 127.0.0.1:9835            answer Prometheus there\n"
    "  switchyardd --log debug:/var/log/switchyard.log";

constexpr char kHostPoolForms[] = "a size such as 64GiB or 512MiB, or none (the same as 0)";
constexpr std::size_t kMostDays = 36500;
constexpr char kSocketForms[] =
    "an absolute path of at most 107 bytes; --socket chooses another place";
constexpr char kMetricsForms[] =
    "an address and a port, as in 127.0.0.1:9835 or [::1]:9835, or a port of 127.0.0.1";
constexpr char kTextfileForms[] = "an absolute path whose name ends in .prom";
constexpr char kLogForms[] = "off, error, warn, info or debug, and optionally ':' and a file";

// As text first, so that every error shows the value and the accepted forms.
struct Texts {
  std::string socket, capacity, host_pool, log = "info", log_file, log_size;
  std::string cap_priority, cap_share, cap_memory, idle_exit;
  std::string policy = "priority", minimum, waits = "foreseen", backend, old_backend, wait_for_gpu;
  std::string connections_per_user, jobs_per_user;
  std::string history, history_days, history_size, bills = "all";
  std::string metrics, metrics_textfile;
  std::string stay_moves, worth_handing_over;  // for tests
  std::vector<std::string> allow_high;
  bool persist = false, foreground = false, system = false, observe = false;
};

bool complain(const char* option, const std::string& value, const char* forms) {
  std::fprintf(stderr, "switchyardd: invalid value '%s' for %s: expected %s\n", value.c_str(),
               option, forms);
  return false;
}

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

bool understand_users(const std::vector<std::string>& words, std::set<uid_t>& out) {
  for (const std::string& word : words) {
    const char* const end = word.data() + word.size();
    uid_t user = 0;
    const auto read = std::from_chars(word.data(), end, user);
    if (read.ec != std::errc() || read.ptr != end) {
      return complain("--allow-high", word, "user ids, with commas between them, as in 1000,1001");
    }
    out.insert(user);
  }
  return true;
}

bool understand_caps(const Texts& texts, Caps& caps) {
  if (!texts.cap_priority.empty()) {
    const auto cap = parse_priority(texts.cap_priority);
    if (!cap) return complain("--cap-priority", texts.cap_priority, kPriorityForms);
    caps.priority = *cap;
  }
  if (!texts.cap_share.empty()) {
    caps.share = parse_weight(texts.cap_share);
    if (!caps.share) return complain("--cap-share", texts.cap_share, kWeightForms);
  }
  if (!texts.cap_memory.empty()) {
    caps.memory_bytes = parse_bytes(texts.cap_memory);
    if (!caps.memory_bytes) return complain("--cap-memory", texts.cap_memory, kBytesForms);
  }
  return understand_users(texts.allow_high, caps.may_be_high);
}

bool understand_count(const char* option, const std::string& text, std::size_t& out) {
  if (text.empty()) return true;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  if (read.ec == std::errc() && read.ptr == end && out > 0) return true;
  return complain(option, text, "a whole number above 0");
}

// A setting, and where it was said.
struct Choice {
  std::string origin, text;
};

Choice socket_choice(const Texts& texts) {
  if (!texts.socket.empty()) return {"--socket", texts.socket};
  char place[kSocketPathBytes] = "";
  // SWITCHYARD_SOCKET is where jobs look.
  if (texts.observe) return {"--observe", observer_socket_path(place) ? place : ""};
  const char* told = ::getenv("SWITCHYARD_SOCKET");
  if (told != nullptr && told[0] != '\0') return {"SWITCHYARD_SOCKET", told};
  char path[kSocketPathBytes];
  if (::geteuid() == 0) return {"", kSystemSocket};
  if (user_socket_path(path)) return {"", path};
  // Nothing else can be too long.
  return {"the socket in XDG_RUNTIME_DIR",
          std::string(::getenv("XDG_RUNTIME_DIR")) + "/switchyard/monitor.sock"};
}

// Both names until version 0.1 are still read.
Choice backend_choice(const Texts& texts) {
  if (!texts.backend.empty()) return {"--backend", texts.backend};
  if (!texts.old_backend.empty()) return {"--means", texts.old_backend};
  for (const char* variable : {"SWITCHYARD_BACKEND", "SWITCHYARD_MEANS"}) {
    const char* said = ::getenv(variable);
    if (said != nullptr && said[0] != '\0') return {variable, said};
  }
  return {"--backend", "auto"};
}

bool understand_choices(const Texts& texts, Settings& settings) {
  const auto kind = position_of(texts.policy, kPolicyNames);
  if (!kind) return complain("--policy", texts.policy, kPolicyForms);
  settings.rules.kind = static_cast<policy::Kind>(*kind);
  if (!texts.minimum.empty()) {
    const auto minimum = parse_minimum(texts.minimum);
    if (!minimum) return complain("--minimum", texts.minimum, kMinimumForms);
    settings.rules.minimum = *minimum;
  }
  const auto waits = position_of(texts.waits, kWaitsNames);
  if (!waits) return complain("--waits", texts.waits, kWaitsForms);
  settings.rules.foresee = *waits == 1;
  const Choice backend = backend_choice(texts);
  const auto means = position_of(backend.text, kMeansNames);
  if (!means) return complain(backend.origin.c_str(), backend.text, kMeansForms);
  settings.means = static_cast<Means>(*means);
  return true;
}

// An observer governs nothing, and stays where no job looks.
bool understand_observer(const Texts& texts, Options& out) {
  out.settings.observes = out.settings.persist = true;
  const std::string& socket = out.settings.socket;
  char users[kSocketPathBytes] = "";
  const bool for_jobs = socket == kSystemSocket || (user_socket_path(users) && socket == users);
  if (!texts.system && !for_jobs) return true;
  std::fprintf(stderr, "switchyardd: --observe serves no jobs: leave %s away\n",
               texts.system ? "--system" : "--socket");
  return false;
}

// The monitor of all users listens on the well-known place, where only root can, and stays.
bool understand_place(const Texts& texts, Options& out) {
  const Choice socket = texts.system ? Choice{"", kSystemSocket} : socket_choice(texts);
  out.settings.socket = socket.text;
  out.system = texts.system;
  out.settings.persist = texts.persist || texts.system;
  if (texts.system && !texts.socket.empty()) {
    std::fprintf(stderr, "switchyardd: --system listens on %s: leave --socket away\n",
                 kSystemSocket);
    return false;
  }
  if (texts.system && ::geteuid() != 0) {
    std::fprintf(stderr,
                 "switchyardd: --system is for root: 'sudo systemctl enable --now switchyardd', or "
                 "'sudo switchyardd --system'\n");
    return false;
  }
  if (texts.observe && !understand_observer(texts, out)) return false;
  if (socket.text[0] != '/' || socket.text.size() >= kSocketPathBytes) {
    return complain(socket.origin.c_str(), socket.text, kSocketForms);
  }
  if (texts.wait_for_gpu.empty()) return true;
  const auto wait = parse_seconds(texts.wait_for_gpu);
  if (!wait) return complain("--wait-for-gpu", texts.wait_for_gpu, kSecondsForms);
  out.wait_for_gpu = *wait;
  return true;
}

bool understand_turns(const Texts& texts, TurnSettings& turns) {
  std::size_t moves = turns.stay_moves;
  if (!understand_count("--stay-moves", texts.stay_moves, moves)) return false;
  turns.stay_moves = static_cast<unsigned>(std::min<std::size_t>(moves, policy::kStayMoves));
  if (texts.worth_handing_over.empty()) return true;
  const auto bytes = parse_bytes(texts.worth_handing_over);
  if (!bytes) return complain("--worth-handing-over", texts.worth_handing_over, kBytesForms);
  turns.worth_handing_over = *bytes;
  return true;
}

// The folder of a system monitor is that of its unit; other monitors have their user's.
std::string default_history(bool system) {
  const auto said = [](const char* variable) {
    const char* path = ::getenv(variable);
    return std::string(path != nullptr && path[0] == '/' ? path : "");
  };
  if (system) {
    const std::string unit = said("STATE_DIRECTORY");
    return unit.empty() ? "/var/lib/switchyard" : unit;
  }
  if (const std::string state = said("XDG_STATE_HOME"); !state.empty())
    return state + "/switchyard";
  const std::string home = said("HOME");
  return home.empty() ? "" : home + "/.local/state/switchyard";
}

bool understand_history(const Texts& texts, Options& out) {
  if (texts.history.empty()) {
    out.history_folder = default_history(out.system);
    // A file has one writer, and that is a monitor with jobs.
    if (texts.observe && !out.history_folder.empty()) out.history_folder += "/observe";
  } else if (texts.history[0] == '/') {
    out.history_folder = texts.history;
  } else if (texts.history != "none") {
    return complain("--history", texts.history, "an absolute path of a folder, or none");
  }
  std::size_t days = static_cast<std::size_t>(out.history_days);
  if (!understand_count("--history-days", texts.history_days, days)) return false;
  out.history_days = static_cast<std::int64_t>(std::min<std::size_t>(days, kMostDays));
  if (!texts.history_size.empty()) {
    const auto bytes = parse_bytes(texts.history_size);
    if (!bytes) return complain("--history-size", texts.history_size, kBytesForms);
    out.history_bytes = *bytes;
  }
  out.settings.bills_of_all = texts.bills == "all";
  return texts.bills == "all" || texts.bills == "own" ||
         complain("--bills", texts.bills, "all or own");
}

bool understand_metrics(const Texts& texts, Options& out) {
  if (!texts.metrics.empty()) {
    out.metrics = parse_metrics_address(texts.metrics);
    if (!out.metrics) return complain("--metrics", texts.metrics, kMetricsForms);
  }
  out.metrics_textfile = texts.metrics_textfile;
  const std::string_view file = out.metrics_textfile;
  const bool named = file.size() > 5 && file.substr(file.size() - 5) == ".prom";
  if (file.empty() || (file[0] == '/' && named)) return true;
  return complain("--metrics-textfile", texts.metrics_textfile, kTextfileForms);
}

bool understand(const Texts& texts, Options& out) {
  if (!understand_place(texts, out)) return false;
  if (!texts.capacity.empty()) {
    out.settings.capacity = parse_bytes(texts.capacity);
    if (!out.settings.capacity) return complain("--capacity", texts.capacity, kBytesForms);
  }
  if (texts.host_pool.empty()) {
    out.settings.host_pool_bytes = available_memory() / 2;
  } else if (texts.host_pool != "0" && !is_none(texts.host_pool)) {
    const auto bytes = parse_bytes(texts.host_pool);
    if (!bytes) return complain("--host-pool", texts.host_pool, kHostPoolForms);
    out.settings.host_pool_bytes = *bytes;
  }
  if (!texts.idle_exit.empty()) {
    const auto idle = parse_seconds(texts.idle_exit);
    if (!idle) return complain("--idle-exit", texts.idle_exit, kSecondsForms);
    out.settings.idle_exit = *idle;
    out.settings.first_job = out.settings.idle_exit;
  }
  if (!understand_choices(texts, out.settings)) return false;
  if (!understand_metrics(texts, out)) return false;
  if (!understand_turns(texts, out.settings.turns)) return false;
  if (!understand_history(texts, out)) return false;
  if (!understand_count("--connections-per-user", texts.connections_per_user,
                        out.settings.users.connections) ||
      !understand_count("--jobs-per-user", texts.jobs_per_user, out.settings.users.jobs)) {
    return false;
  }
  const std::size_t colon = texts.log.find(':');
  out.log_level = texts.log.substr(0, colon);
  if (!texts.log_size.empty()) {
    const auto bytes = parse_bytes(texts.log_size);
    if (!bytes) return complain("--log-size", texts.log_size, kBytesForms);
    out.log_bytes = *bytes;
  }
  out.log_file = colon == std::string::npos ? texts.log_file : texts.log.substr(colon + 1);
  for (const char* level : {"off", "error", "warn", "info", "debug"}) {
    if (out.log_level == level) return understand_caps(texts, out.settings.caps);
  }
  return complain("--log", texts.log, kLogForms);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Texts texts;
  CLI::App app{kAbout, "switchyardd"};
  app.formatter_fn([](const CLI::App* about, std::string name, CLI::AppFormatMode mode) {
    return wrapped(CLI::Formatter().make_help(about, std::move(name), mode));
  });
  app.set_version_flag("--version", std::string("switchyardd ") + kVersion);
  app.add_option(
      "--socket", texts.socket,
      "where to listen (default: $SWITCHYARD_SOCKET; root: /run/switchyard/monitor.sock; "
      "else $XDG_RUNTIME_DIR/switchyard/ or /tmp/switchyard-UID/)");
  app.add_flag("--system", texts.system,
               "serve all users on /run/switchyard/monitor.sock, and keep running (root only)");
  app.add_option("--wait-for-gpu", texts.wait_for_gpu,
                 "how long to wait at start for a GPU to appear (default: end at once)");
  app.add_flag("--observe", texts.observe,
               "see all GPU processes and serve `ps -a`, `report`, `events` and metrics, but claim "
               "no GPU and take no job; beside another monitor, too");
  app.add_flag("--persist", texts.persist, "keep running after the last job has ended");
  app.add_option(
      "--idle-exit", texts.idle_exit,
      "how long to wait after the last job before ending (default: 5s; 60s before the first job)");
  app.add_option("--capacity", texts.capacity,
                 "the most memory of each GPU that jobs may have together (default: all of it)");
  app.add_option("--host-pool", texts.host_pool,
                 "the most pinned host memory for swapped-out data of all jobs together "
                 "(default: half of the memory available at start; 0: none)");
  app.add_option(
      "--policy", texts.policy,
      std::string("the rules by which GPUs are shared: ") + kPolicyForms + " (default: priority)");
  app.add_option(
      "--minimum", texts.minimum,
      "the part of the GPU's time that jobs of high priority leave to the others (default: 2%)");
  app.add_option("--waits", texts.waits,
                 std::string("how a high job that waits for its CPU is served: ") + kWaitsForms +
                     " (default: foreseen)");
  app.add_option("--backend", texts.backend,
                 std::string("what enforces shares: ") + kMeansForms +
                     " (default: $SWITCHYARD_BACKEND, else auto)");
  app.add_option("--means", texts.old_backend)->group("");  // its earlier name, hidden
  app.add_option("--log", texts.log, std::string("log level, and optionally a file: ") + kLogForms);
  app.add_option("--log-file", texts.log_file, "write the log into this file instead of stderr");
  app.add_option("--log-size", texts.log_size,
                 "a log file of this size becomes FILE.old, and a new one begins (default: 16MiB)");
  app.add_option("--cap-priority", texts.cap_priority,
                 "the highest priority for users other than root");
  app.add_option("--allow-high", texts.allow_high,
                 "user ids that may ask for high in spite of --cap-priority")
      ->type_name("UINT")
      ->delimiter(',');
  app.add_option("--cap-share", texts.cap_share,
                 "the largest share weight for users other than root");
  app.add_option("--cap-memory", texts.cap_memory,
                 "the largest memory quota per GPU for users other than root");
  app.add_option("--connections-per-user", texts.connections_per_user,
                 "the most connections of one user at a time; root and the monitor's user are "
                 "not bounded (default: 1024)");
  app.add_option("--jobs-per-user", texts.jobs_per_user,
                 "the most jobs of one user (default: 256)");
  app.add_option("--history", texts.history,
                 "the folder for the history of jobs, or none (default: with --system "
                 "$STATE_DIRECTORY or /var/lib/switchyard; else $XDG_STATE_HOME/switchyard or "
                 "~/.local/state/switchyard)");
  app.add_option("--history-days", texts.history_days,
                 "for how many days the history is kept (default: 90)");
  app.add_option("--history-size", texts.history_size,
                 "about the most that its file may have; older hours make way (default: 256MiB)");
  app.add_option("--bills", texts.bills,
                 "what users see of others' GPU time in `switchyard report`: all or own; root and "
                 "the monitor's user see all (default: all)");
  app.add_option("--metrics", texts.metrics,
                 "answer scrapers of Prometheus at this address and port, as in 127.0.0.1:9835; "
                 "whoever reaches it reads users' and jobs' names (default: off)");
  app.add_option("--metrics-textfile", texts.metrics_textfile,
                 "write the same every 15 s into this file, for node_exporter");
  // Hidden: what makes tests short.
  app.add_option("--stay-moves", texts.stay_moves)->group("");
  app.add_option("--worth-handing-over", texts.worth_handing_over)->group("");
  app.add_flag("--foreground", texts.foreground,
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
  Options out;
  if (!understand(texts, out)) {
    exit_code = kUsage;
    return std::nullopt;
  }
  return out;
}

}  // namespace switchyard::monitor
