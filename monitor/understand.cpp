// From what was said, on the command line and in the file, to settings.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "monitor/command_line.h"
#include "monitor/config/reader.h"
#include "monitor/options.h"
#include "monitor/platform/processes.h"
#include "monitor/transport/metrics_http.h"
#include "switchyard/observer.h"
#include "switchyard/paths.h"
#include "switchyard/printable.h"

namespace switchyard::monitor {
namespace {

using config::row_of;
using config::Said;
using config::Setting;
using config::Texts;

constexpr char kHostPoolForms[] = "a size such as 64GiB or 512MiB, or none (the same as 0)";
constexpr std::size_t kMostDays = 36500;
constexpr char kSocketForms[] =
    "an absolute path of at most 107 bytes; --socket chooses another place";
constexpr char kMetricsForms[] =
    "an address and a port, as in 127.0.0.1:9835 or [::1]:9835, or a port of 127.0.0.1";
constexpr char kTextfileForms[] = "an absolute path whose name ends in .prom";
constexpr char kLogForms[] = "off, error, warn, info or debug, and optionally ':' and a file";

// The settings understood so far, and what is wrong with others.
struct Reading {
  const Plain& plain;
  const Texts& texts;
  Options& out;
  std::vector<std::string>& problems;

  bool complain(const std::string& option, const std::string& value, const char* forms) const {
    problems.push_back(fmt::format("invalid value '{}' for {}: expected {}", value, option, forms));
    return false;
  }
  bool complain(Setting setting, const char* forms) const {
    const Said& said = texts[setting];
    const std::string value = printable(said.text);
    if (!said.by_file) return complain(said.origin, value, forms);
    problems.push_back(fmt::format("{}: invalid value '{}' for {}: expected {}", said.origin, value,
                                   row_of(setting).key, forms));
    return false;
  }
  bool is_said(Setting setting) const { return !texts[setting].origin.empty(); }
  const std::string& text(Setting setting) const { return texts[setting].text; }

  // Puts what `parse` reads into `to`, if it is said. False: it is wrong.
  template <typename To, typename Parse>
  bool take(Setting setting, To& to, Parse parse, const char* forms) const {
    if (!is_said(setting)) return true;
    const auto value = parse(text(setting));
    if (!value) return complain(setting, forms);
    to = *value;
    return true;
  }
};

bool understand_users(const Reading& reading, std::set<uid_t>& out) {
  for (const std::string& word : reading.plain.allow_high) {
    const char* const end = word.data() + word.size();
    uid_t user = 0;
    const auto read = std::from_chars(word.data(), end, user);
    if (read.ec != std::errc() || read.ptr != end) {
      return reading.complain("--allow-high", word,
                              "user ids, with commas between them, as in 1000,1001");
    }
    out.insert(user);
  }
  return true;
}

// "--cap-memory", or "caps.memory, /etc/switchyard/switchyard.toml:7".
std::string rule_of(const Reading& reading, Setting setting) {
  const Said& said = reading.texts[setting];
  return said.by_file ? fmt::format("{}, {}", row_of(setting).key, said.origin) : said.origin;
}

bool understand_caps(const Reading& reading, Caps& caps) {
  caps.from = {rule_of(reading, Setting::kCapPriority), rule_of(reading, Setting::kCapShare),
               rule_of(reading, Setting::kCapMemory)};
  const auto unless_none = [&reading](Setting setting, auto& to, auto parse, const char* forms) {
    return is_none(reading.text(setting)) || reading.take(setting, to, parse, forms);
  };
  const bool good[] = {
      reading.take(Setting::kCapPriority, caps.priority, parse_priority, kPriorityForms),
      unless_none(Setting::kCapShare, caps.share, parse_weight, kWeightForms),
      unless_none(Setting::kCapMemory, caps.memory_bytes, parse_bytes, kBytesForms),
      understand_users(reading, caps.may_be_high)};
  return std::all_of(std::begin(good), std::end(good), [](bool each) { return each; });
}

std::optional<std::size_t> parse_count(const std::string& text) {
  std::size_t out = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  return read.ec == std::errc() && read.ptr == end && out > 0 ? std::optional(out) : std::nullopt;
}
constexpr char kCountForms[] = "a whole number above 0";

template <typename Enum, std::size_t kCount>
auto one_of(const std::string_view (&names)[kCount]) {
  return [&names](const std::string& text) -> std::optional<Enum> {
    const auto position = position_of(text, names);
    return position ? std::optional(static_cast<Enum>(*position)) : std::nullopt;
  };
}

// A setting, and where it was said.
struct Choice {
  std::string origin, text;
};

Choice socket_choice(const Plain& plain) {
  if (!plain.socket.empty()) return {"--socket", plain.socket};
  // SWITCHYARD_SOCKET is where jobs look.
  char place[kSocketPathBytes] = "";
  if (plain.observe) return {"--observe", observer_socket_path(place) ? place : ""};
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
void say_backend(const Plain& plain, Texts& texts) {
  Said& said = texts[Setting::kBackend];
  if (!said.origin.empty()) return;
  if (!plain.old_backend.empty()) said = {plain.old_backend, "--means"};
  for (const char* variable : {"SWITCHYARD_BACKEND", "SWITCHYARD_MEANS"}) {
    const char* text = ::getenv(variable);
    if (said.origin.empty() && text != nullptr && text[0] != '\0') said = {text, variable};
  }
}

bool understand_choices(const Reading& reading, Settings& settings) {
  const auto foresees = [](const std::string& text) -> std::optional<bool> {
    const auto position = position_of(text, kWaitsNames);
    return position ? std::optional(*position == 1) : std::nullopt;
  };
  settings.rules.foresee = true;
  const bool good[] = {
      reading.take(Setting::kPolicy, settings.rules.kind, one_of<policy::Kind>(kPolicyNames),
                   kPolicyForms),
      reading.take(Setting::kMinimum, settings.rules.minimum, parse_minimum, kMinimumForms),
      reading.take(Setting::kSlice, settings.rules.slice_us, parse_slice, kSliceForms),
      reading.take(Setting::kWaits, settings.rules.foresee, foresees, kWaitsForms),
      reading.take(Setting::kBackend, settings.means, one_of<Means>(kMeansNames), kMeansForms)};
  return std::all_of(std::begin(good), std::end(good), [](bool each) { return each; });
}

// An observer governs nothing, and stays where no job looks.
bool understand_observer(const Reading& reading) {
  reading.out.settings.observes = true;
  const std::string& socket = reading.out.settings.socket;
  char users[kSocketPathBytes] = "";
  const bool for_jobs = socket == kSystemSocket || (user_socket_path(users) && socket == users);
  if (!reading.plain.system && !for_jobs) return true;
  reading.problems.push_back(fmt::format("--observe serves no jobs: leave {} away",
                                         reading.plain.system ? "--system" : "--socket"));
  return false;
}

// The monitor of all users listens on the well-known place, where only root can, and stays.
bool understand_place(const Reading& reading) {
  const bool system = reading.plain.system;
  const Choice socket = system ? Choice{"", kSystemSocket} : socket_choice(reading.plain);
  reading.out.settings.socket = socket.text;
  reading.out.system = system;
  if (system && !reading.plain.socket.empty()) {
    reading.problems.push_back(
        fmt::format("--system listens on {}: leave --socket away", kSystemSocket));
    return false;
  }
  if (system && ::geteuid() != 0) {
    reading.problems.emplace_back(
        "--system is for root: 'sudo systemctl enable --now switchyardd', or 'sudo switchyardd "
        "--system'");
    return false;
  }
  if (reading.plain.observe && !understand_observer(reading)) return false;
  if (socket.text[0] == '/' && socket.text.size() < kSocketPathBytes) return true;
  return reading.complain(socket.origin, socket.text, kSocketForms);
}

bool understand_turns(const Reading& reading, TurnSettings& turns) {
  const std::string& moves = reading.plain.stay_moves;
  const std::string& worth = reading.plain.worth_handing_over;
  if (!moves.empty()) {
    const auto count = parse_count(moves);
    if (!count) return reading.complain("--stay-moves", moves, kCountForms);
    turns.stay_moves = static_cast<unsigned>(std::min<std::size_t>(*count, policy::kStayMoves));
  }
  if (worth.empty()) return true;
  const auto bytes = parse_bytes(worth);
  if (!bytes) return reading.complain("--worth-handing-over", worth, kBytesForms);
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

bool understand_history(const Reading& reading) {
  Options& out = reading.out;
  const std::string& folder = reading.text(Setting::kHistory);
  if (folder.empty()) {
    out.history_folder = default_history(out.system);
    // A file has one writer, and that is a monitor with jobs.
    if (reading.plain.observe && !out.history_folder.empty()) out.history_folder += "/observe";
  } else if (folder[0] == '/') {
    out.history_folder = folder;
  } else if (folder != "none") {
    reading.complain(Setting::kHistory, "an absolute path of a folder, or none");
  }
  const auto days = [](const std::string& text) -> std::optional<std::int64_t> {
    const auto count = parse_count(text);
    return count ? std::optional(static_cast<std::int64_t>(std::min(*count, kMostDays)))
                 : std::nullopt;
  };
  const auto bills = [](const std::string& text) -> std::optional<bool> {
    return text == "all" || text == "own" ? std::optional(text == "all") : std::nullopt;
  };
  reading.take(Setting::kHistoryDays, out.history_days, days, kCountForms);
  reading.take(Setting::kHistorySize, out.history_bytes, parse_bytes, kBytesForms);
  return reading.take(Setting::kBills, out.settings.bills_of_all, bills, "all or own");
}

bool understand_metrics(const Reading& reading) {
  if (reading.is_said(Setting::kMetrics)) {
    reading.out.metrics = parse_metrics_address(reading.text(Setting::kMetrics));
    if (!reading.out.metrics) reading.complain(Setting::kMetrics, kMetricsForms);
  }
  reading.out.job_mapping_folder = reading.text(Setting::kJobMapping);
  if (!reading.out.job_mapping_folder.empty() && reading.out.job_mapping_folder[0] != '/') {
    reading.complain(Setting::kJobMapping, "an absolute path of a folder");
  }
  reading.out.metrics_textfile = reading.text(Setting::kTextfile);
  const std::string_view file = reading.out.metrics_textfile;
  const bool named = file.size() > 5 && file.substr(file.size() - 5) == ".prom";
  if (file.empty() || (file[0] == '/' && named)) return true;
  return reading.complain(Setting::kTextfile, kTextfileForms);
}

bool understand_log(const Reading& reading) {
  Options& out = reading.out;
  const std::string log = reading.is_said(Setting::kLog) ? reading.text(Setting::kLog) : "info";
  const std::size_t colon = log.find(':');
  out.settings.log_level = log.substr(0, colon);
  out.log_file =
      colon == std::string::npos ? reading.text(Setting::kLogFile) : log.substr(colon + 1);
  reading.take(Setting::kLogSize, out.log_bytes, parse_bytes, kBytesForms);
  for (const char* level : {"off", "error", "warn", "info", "debug"}) {
    if (out.settings.log_level == level) return true;
  }
  return reading.complain(Setting::kLog, kLogForms);
}

bool understand_limits(const Reading& reading) {
  Settings& settings = reading.out.settings;
  const auto pool = [](const std::string& text) -> std::optional<std::uint64_t> {
    return text == "0" || is_none(text) ? std::uint64_t{0} : parse_bytes(text);
  };
  if (!reading.is_said(Setting::kHostPool)) settings.host_pool_bytes = available_memory() / 2;
  reading.take(Setting::kCapacity, settings.capacity, parse_bytes, kBytesForms);
  reading.take(Setting::kHostPool, settings.host_pool_bytes, pool, kHostPoolForms);
  // Less than the unit waits for it; the driver may be loaded later.
  if (reading.plain.system) reading.out.wait_for_gpu = std::chrono::minutes(2);
  reading.take(Setting::kWaitForGpu, reading.out.wait_for_gpu, parse_seconds, kSecondsForms);
  reading.take(Setting::kPersist, settings.persist, parse_yes_no, kYesNoForms);
  settings.persist = settings.persist || reading.plain.system || reading.plain.observe;
  if (reading.take(Setting::kIdleExit, settings.idle_exit, parse_seconds, kSecondsForms) &&
      reading.is_said(Setting::kIdleExit)) {
    settings.first_job = settings.idle_exit;
  }
  reading.take(Setting::kConnections, settings.users.connections, parse_count, kCountForms);
  return reading.take(Setting::kJobs, settings.users.jobs, parse_count, kCountForms);
}

// For `switchyard config show`.
std::vector<config::Shown> shown_of(const Texts& texts) {
  std::vector<config::Shown> out;
  for (std::size_t i = 0; i < config::kSettings; ++i) {
    const config::Row& row = config::kRows[i];
    const Said& said = texts.all[i];
    const bool is_default = said.origin.empty();
    out.push_back({row.key, is_default ? row.fallback : said.text,
                   is_default ? "default" : said.origin, row.counts});
  }
  return out;
}

// The file that counts for this monitor; empty: none does. A monitor of the machine has that of the
// machine.
std::string file_of(const Reading& reading, bool& may_be_missing) {
  may_be_missing = reading.plain.config.empty();
  if (is_none(reading.plain.config)) return "";
  if (!may_be_missing) return reading.plain.config;
  const bool of_machine =
      reading.plain.system || (::geteuid() == 0 && reading.out.settings.socket == kSystemSocket);
  return of_machine ? config::kSystemFile : "";
}

void read_file(const Reading& reading, Texts& texts) {
  bool may_be_missing = false;
  const std::string file = file_of(reading, may_be_missing);
  reading.out.config_file = file;
  if (file.empty()) return;
  std::string why;
  const auto text = config::read_file(file, why);
  if (!text) {
    if (why.empty() && may_be_missing) return;
    reading.problems.push_back(why.empty() ? fmt::format("there is no file {}", file) : why);
    return;
  }
  config::Document document = config::parse_document(*text, file);
  config::read_document(document, texts, reading.out.settings.user_rules);
  reading.out.remarks = config::resolve(reading.out.settings.user_rules);
  reading.problems.insert(reading.problems.end(), document.problems.begin(),
                          document.problems.end());
}

}  // namespace

std::optional<Options> understand(std::shared_ptr<const CommandLine> line,
                                  std::vector<std::string>& problems) {
  Options out;
  Texts texts = line->texts;
  say_backend(line->plain, texts);
  const Reading reading{line->plain, texts, out, problems};
  if (!understand_place(reading)) return std::nullopt;
  read_file(reading, texts);
  understand_limits(reading);
  understand_choices(reading, out.settings);
  understand_metrics(reading);
  understand_turns(reading, out.settings.turns);
  understand_history(reading);
  understand_log(reading);
  understand_caps(reading, out.settings.caps);
  out.settings.shown = shown_of(texts);
  out.only_checks = line->plain.check;
  out.line = std::move(line);
  return problems.empty() ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace switchyard::monitor
