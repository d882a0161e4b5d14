#include "monitor/control/event_listing.h"

#include <fmt/format.h>

#include <ctime>
#include <set>

#include "monitor/control/audit.h"
#include "monitor/control/reply.h"
#include "monitor/islands/failures.h"
#include "monitor/platform/process_end.h"
#include "monitor/platform/text.h"
#include "monitor/status/changes.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;
using status::Code;

// Of one answer, about. It is a small part of a frame, and of the time that the loop may take.
constexpr std::size_t kAnswerBytes = 256 * 1024;
constexpr std::size_t kEventBytes = 700;  // at most, but for its text
// Events that are looked at for one answer: a reader who wants one job's may have to ask again.
constexpr std::size_t kMostRead = 4096;

// "2026-11-26T21:03:12.123Z"
std::string utc_text(double unix_seconds) {
  const auto milliseconds = static_cast<std::int64_t>(unix_seconds * 1000);
  const auto whole = static_cast<std::time_t>(milliseconds / 1000);
  std::tm parts{};
  ::gmtime_r(&whole, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03}Z", std::string(text, size), milliseconds % 1000);
}

double unix_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string user_of(const HistoryEvent& event) {
  return event.uid != HistoryEvent::kNobody ? user_name(event.uid) : "";
}

// " by alice (pid 7)"; empty where nobody asked.
std::string by_text(const HistoryEvent& event) {
  if (event.uid == HistoryEvent::kNobody) return "";
  return event.pid != 0 ? fmt::format(" by {} (pid {})", user_of(event), event.pid)
                        : " by " + user_of(event);
}

// " of alice"; empty where nobody knows.
std::string of_user(const HistoryEvent& event) {
  return event.uid != HistoryEvent::kNobody ? " of " + user_of(event) : "";
}

std::string gpu_text(Monitor& monitor, const HistoryEvent& event) {
  const std::size_t gpu = event.gpu - std::size_t{1};
  return gpu < monitor.gpus().size() ? fmt::format("GPU {}", monitor.gpus()[gpu].info.index)
                                     : "a GPU";
}

std::string name_of(Monitor& monitor, JobKey job) {
  const Journal::Name* name = monitor.journal().name_of(job);
  return name != nullptr ? name->name : fmt::format("job {}", job);
}

// As `ps` says it, of what an event tells.
std::string state_text(Monitor& monitor, const HistoryEvent& event) {
  status::Status said{.code = status::code_after(event)};
  if (event.by_job != 0) said.by.job = event.by_job;
  if (event.by_job != 0) said.by.name = name_of(monitor, event.by_job);
  using status::Reason;
  switch (said.code.reason) {
    case Reason::kMovePrepares:
    case Reason::kMove:
      said.goal = static_cast<unsigned>(event.value - 1);
      break;
    case Reason::kOldLibrary:
      said.layout = static_cast<std::uint32_t>(event.value);
      break;
    case Reason::kLimit:
      said.limit = static_cast<double>(event.value) / 1e6;
      break;
    default:
      said.bytes = event.value;
  }
  if (said.code.state == status::State::kStopped) said.pid = event.pid;
  const std::string text = said.code.state == status::State::kUnknown
                               ? "not there any more"
                               : text_of(said, user_of(event));
  return event.gpu != 0 ? gpu_text(monitor, event) + ": " + text : text;
}

std::string reasons_text(std::uint64_t bits) {
  using residency::Reason;
  const auto has = [bits](Reason why) { return (bits & static_cast<unsigned>(why)) != 0; };
  if (has(Reason::kUser)) return "swap-out";
  if (has(Reason::kPause)) return "pause";
  if (has(Reason::kMove)) return "move";
  if (has(Reason::kIdle)) return "idle";
  return has(Reason::kYield) ? "another job needs the memory" : "";
}

std::string leaves_text(const char* what, const HistoryEvent& event) {
  const std::string why = reasons_text(event.value);
  return what + (why.empty() ? "" : ": " + why) + by_text(event);
}

std::string paused_text(const HistoryEvent& event, Time at) {
  const Time until(static_cast<Time::rep>(event.value));
  const std::string limit =
      until > at ? fmt::format(" for {:.0f} s", seconds(until - at)) : std::string();
  return "paused" + limit + by_text(event);
}

std::string bits_text(std::uint64_t bits) {
  return (bits & 0xffffffffu) != 0 ? fmt::format("gate closed ({:#x})", bits & 0xffffffffu)
                                   : "gate opened";
}

// The rule by which memory was refused: the cap of root for a job without a quota of its own.
std::string cap_text(Monitor& monitor, const HistoryEvent& event) {
  const Job* job = monitor.registry().find(event.job);
  const bool capped = event.reason == wire::kOverQuota && job != nullptr && !job->knobs.memory &&
                      job->ceiling_bytes;
  return capped ? fmt::format(": root allows {} here: {}", bytes_text(*job->ceiling_bytes),
                              job->ceiling_rule)
                : std::string();
}

json code_of(Code code) {
  const char* reason = key_of(code.reason);
  return {{"state", key_of(code.state)}, {"reason", reason != nullptr ? json(reason) : json()}};
}

json list_event(Monitor& monitor, const HistoryEvent& event, std::uint64_t number,
                double unix_seconds) {
  const Journal::Name* name = monitor.journal().name_of(event.job);
  const Journal::Name* by = monitor.journal().name_of(event.by_job);
  const std::size_t gpu = event.gpu - std::size_t{1};
  const bool says_state = event.kind == EventKind::kState || event.kind == EventKind::kWork;
  json out{{"number", number},
           {"time", utc_text(unix_seconds)},
           {"unix_seconds", unix_seconds},
           {"kind", key_of(event.kind)},
           {"text", event_text(monitor, event)}};
  out["job"] = name != nullptr ? json(name->id) : json();
  out["name"] = name != nullptr ? json(name->name) : json();
  out["user"] = name != nullptr ? json(user_name(name->uid)) : json();
  out["gpu_uuid"] = gpu < monitor.gpus().size() ? json(monitor.gpus()[gpu].info.uuid_text) : json();
  out["by_job"] = by != nullptr ? json(by->id) : json();
  out["by_name"] = by != nullptr ? json(by->name) : json();
  out["by_user"] = event.uid != HistoryEvent::kNobody ? json(user_of(event)) : json();
  out["by_pid"] = event.pid != 0 ? json(event.pid) : json();
  out["before"] = says_state ? code_of(status::code_before(event)) : json();
  out["after"] = says_state ? code_of(status::code_after(event)) : json();
  return out;
}

// The jobs that ever had that name or id, as far as it is remembered.
std::set<JobKey> jobs_named(Monitor& monitor, const std::string& target) {
  std::set<JobKey> out;
  for (const auto& [key, name] : monitor.journal().names()) {
    if (name.name == target || name.id == target) out.insert(key);
  }
  return out;
}

// A number of the request. Nullopt: `out` is the refusal.
std::optional<double> number_of(const json& request, const char* key, json& out) {
  const auto found = request.find(key);
  if (found == request.end()) return 0;
  if (found->is_number() && found->get<double>() >= 0) return found->get<double>();
  out = nonsense(key, text_of(request, key).value_or(""), "a number, 0 or more");
  return std::nullopt;
}

}  // namespace

std::string event_text(Monitor& monitor, const HistoryEvent& event) {
  const auto bytes = event.value;
  const auto move = [&](const char* what) {
    return fmt::format("{} {}{}", what, gpu_text(monitor, event), by_text(event));
  };
  switch (event.kind) {
    case EventKind::kMonitorBegins:
      return fmt::format("the monitor begins (pid {})", event.pid);
    case EventKind::kJobBegins:
      return "begins" + by_text(event);
    case EventKind::kJobEnds:
      return bytes == 0 ? "ends" : "ends: " + end_text(static_cast<int>(bytes - 1));
    case EventKind::kState:
    case EventKind::kWork:
      return state_text(monitor, event);
    case EventKind::kPaused:
      return paused_text(event, Time(event.at_ns));
    case EventKind::kResumed:
      return "resumed" + by_text(event);
    case EventKind::kLeaves:
      return leaves_text("its memory leaves", event);
    case EventKind::kLeft:
      return leaves_text("its memory has left", event);
    case EventKind::kReturns:
      return "its memory returns" + by_text(event);
    case EventKind::kIsBack:
      return "its memory is back" + by_text(event);
    case EventKind::kMovePrepares:
      return move("prepares to go to");
    case EventKind::kMoveLeaves:
      return move(bytes != 0 ? "goes back to" : "goes to");
    case EventKind::kMoveLands:
      return move(bytes != 0 ? "lands again on" : "lands on");
    case EventKind::kMoveArrives:
      return move(bytes != 0 ? "its memory comes back to" : "its memory comes to");
    case EventKind::kMoveEnded:
      return move(bytes != 0 ? "did not move and stays on" : "moved to");
    case EventKind::kCommand:
    case EventKind::kCommandRefused: {
      const std::string text = monitor.journal().text_of(event);
      return (text.empty() ? key_of(event.kind) : text) + by_text(event);
    }
    case EventKind::kMemoryRefused:
      return fmt::format("{} refused to pid {} on {}{}", bytes_text(bytes), event.pid,
                         gpu_text(monitor, event), cap_text(monitor, event));
    case EventKind::kProcessRefused:
      return fmt::format("pid {} of {} refused{}", event.pid, user_of(event),
                         bytes != 0 ? fmt::format(": old library (page layout {})", bytes) : "");
    case EventKind::kGate:
      return bits_text(bytes);
    case EventKind::kSlice:
      return fmt::format("slices of {} us, copies {} us", bytes & 0xffffffffu, bytes >> 32);
    case EventKind::kUnmanagedBegins:
      return fmt::format("unmanaged pid {}{} is on {} with {}", event.pid, of_user(event),
                         gpu_text(monitor, event), bytes_text(bytes));
    case EventKind::kUnmanagedEnds:
      return fmt::format("unmanaged pid {}{} has left {}; it had {} at most", event.pid,
                         of_user(event), gpu_text(monitor, event), bytes_text(bytes));
    case EventKind::kIslandEnded:
      return fmt::format("the MPS server of its island has ended{}: its CUDA calls fail",
                         event.pid != 0 ? fmt::format(" (pid {})", event.pid) : "");
    case EventKind::kIslandFault:
      return fmt::format(
          "its island has failed on {}: {}; {}", gpu_text(monitor, event),
          islands::fault_text(static_cast<std::uint32_t>(bytes)),
          (bytes & islands::kSuspect) != 0 ? "at work then: a suspect" : "not at work then");
  }
  return "unknown";
}

json list_events(Monitor& monitor, const json& request, Time now) {
  json out;
  const auto since = number_of(request, "since", out);
  const auto span = since ? number_of(request, "seconds", out) : std::nullopt;
  if (!span) return out;
  const EventRing& ring = monitor.journal().rare();
  auto from = static_cast<std::uint64_t>(std::min(*since, 1e15));
  if (request.contains("seconds")) {
    const auto age = std::chrono::duration_cast<Time>(
        std::chrono::duration<double>(std::min(*span, monitor::seconds(now))));
    from = std::max(from, *span == 0 ? ring.newest() : ring.before(now - age));
  }
  const auto target = text_of(request, "target");
  std::set<JobKey> wanted;
  if (target) wanted = jobs_named(monitor, *target);
  // A reader who goes on may outlast what is remembered of the job.
  if (target && wanted.empty() && !request.contains("since")) {
    return refusal(kNoSuchJobOrGpu, fmt::format("no event is about a job '{}': 'switchyard events' "
                                                "lists what is remembered",
                                                *target));
  }
  std::vector<HistoryEvent> events;
  const EventRing::Read read = ring.read(from, events, kMostRead);
  json listed = json::array();
  const double unix_offset = unix_now() - monitor::seconds(now);
  std::uint64_t last = read.last;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const HistoryEvent& event = events[i];
    if (target && wanted.count(event.job) == 0) continue;
    if (bytes >= kAnswerBytes) {
      last = read.first + i - 1;
      break;
    }
    listed.push_back(list_event(monitor, event, read.first + i,
                                unix_offset + monitor::seconds(Time(event.at_ns))));
    bytes += kEventBytes + listed.back()["text"].get_ref<const std::string&>().size();
  }
  out = success();
  out["events"] = std::move(listed);
  out["last"] = last;
  out["lost"] = read.lost;
  out["more"] = last < ring.newest();
  return out;
}

std::optional<history::Query> past_events_query(Monitor& monitor, const Peer& peer,
                                                const json& request, json& out) {
  if (monitor.history() == nullptr) {
    out = refusal(kFailure, "no history is kept: the monitor was started with --history none");
    return std::nullopt;
  }
  const auto span = number_of(request, "seconds", out);
  const auto after = span ? number_of(request, "after", out) : std::nullopt;
  if (!after) return std::nullopt;
  history::Query query;
  query.events = true;
  query.uid = peer.account();
  query.since_unix = unix_now() - *span;
  query.after = static_cast<std::int64_t>(std::min(*after, 1e15));
  query.job = text_of(request, "target").value_or("");
  return query;
}

history::EventRow event_row(Monitor& monitor, const HistoryEvent& event, std::uint64_t number,
                            Time now) {
  history::EventRow out;
  out.number = number;
  out.unix_seconds = unix_now() - monitor::seconds(now - Time(event.at_ns));
  if (const Journal::Name* name = monitor.journal().name_of(event.job)) {
    out.job = name->id;
    out.name = name->name;
  }
  out.json = dump(list_event(monitor, event, number, out.unix_seconds));
  return out;
}

void note_command(Monitor& monitor, const Peer& peer, const json& request, const json& reply,
                  const std::string& text, Time now) {
  const std::string op = text_of(request, "op").value_or("");
  const bool done = reply.value("ok", false);
  if (done && op != "set" && op != "policy" && op != "means" && op != "stop") return;
  const Job* job = monitor.registry().find_target(text_of(request, "target").value_or(""));
  const EventKind kind = done ? EventKind::kCommand : EventKind::kCommandRefused;
  monitor.journal().command(event_of(kind, job != nullptr ? job->key : 0, peer, now), text);
}

}  // namespace switchyard::monitor
