#include "tools/trace/recording.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/base/output.h"

namespace switchyard::tools::trace {
namespace {

using nlohmann::json;

constexpr const char* kStateKeys[] = {"unknown", "running", "idle",   "held",    "waiting",
                                      "paused",  "swapped", "moving", "stopped", "unmanaged"};
static_assert(std::size(kStateKeys) == kStates);

// A whole number at a place of a row; what is missing or of another type is 0.
template <typename Number = std::int64_t>
Number at(const json& row, std::size_t place) {
  if (!row.is_array() || place >= row.size() || !row[place].is_number_integer()) return 0;
  return row[place].get<Number>();
}

// The words for codes, as the monitor has them.
struct Words {
  std::vector<State> states = {};
  std::vector<std::string> reasons = {};
  std::vector<Kind> kinds = {};

  Code code(std::uint64_t state, std::uint64_t reason) const {
    Code out;
    if (state < states.size()) out.state = states[state];
    if (reason < reasons.size()) out.reason = reasons[reason];
    return out;
  }
  Kind kind(std::uint64_t number) const {
    return number < kinds.size() ? kinds[number] : Kind::kOther;
  }
};

std::string word(const json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

Words words_of(const json& reply) {
  Words out;
  for (const json& key : list_of(reply, "states")) out.states.push_back(state_named(word(key)));
  for (const json& key : list_of(reply, "reasons")) out.reasons.push_back(word(key));
  for (const json& key : list_of(reply, "kinds")) out.kinds.push_back(kind_named(word(key)));
  return out;
}

Event event_of(const json& row, const Words& words) {
  Event out;
  out.at = at(row, 0);
  out.kind = words.kind(at<std::uint64_t>(row, 1));
  out.job = at<std::uint64_t>(row, 2);
  out.by = at<std::uint64_t>(row, 3);
  out.gpu = at<unsigned>(row, 4);
  out.pid = at(row, 5);
  out.uid = at<std::uint32_t>(row, 6);
  out.value = at<std::uint64_t>(row, 7);
  out.after = words.code(at<std::uint64_t>(row, 8), at<std::uint64_t>(row, 9));
  out.before = words.code(at<std::uint64_t>(row, 10), at<std::uint64_t>(row, 11));
  return out;
}

Sample sample_of(const json& row) {
  const auto parts = at(row, 4);
  return {.at = at(row, 0),
          .job = at<std::uint64_t>(row, 1),
          .gpu = at<unsigned>(row, 2),
          .memory_bytes = at<std::uint64_t>(row, 3),
          .share = parts >= 0 ? static_cast<double>(parts) / 10'000 : -1,
          .at_work = at<unsigned>(row, 5),
          .held_threads = at<unsigned>(row, 6),
          .launches = at<std::uint64_t>(row, 7)};
}

Job job_of(const json& row, const Words& words) {
  Job out{.id = text_of(row, "job"), .name = text_of(row, "name"), .user = text_of(row, "user")};
  const auto state = row.find("state");
  if (state == row.end()) return out;
  out.lives = true;
  out.now = words.code(at<std::uint64_t>(*state, 0), at<std::uint64_t>(*state, 1));
  out.by = at<std::uint64_t>(*state, 2);
  for (const json& on : list_of(row, "gpus")) {
    if (!on.is_array() || on.size() < 2) continue;
    out.gpus[at<unsigned>(on, 0)] = {
        words.code(at<std::uint64_t>(on[1], 0), at<std::uint64_t>(on[1], 1)),
        at<std::uint64_t>(on[1], 2)};
  }
  for (const json& gate : list_of(row, "gates")) {
    out.gates.push_back({at<unsigned>(gate, 0), at(gate, 1), at<std::uint32_t>(gate, 2)});
  }
  return out;
}

// All records of one kind; `each` is given one row. Answers whether the beginning was lost.
template <typename Each>
Result<bool> read_records(MonitorClient& monitor, const char* of, double seconds, Recording& out,
                          Each each) {
  json request{{"op", "timeline"}, {"of", of}, {"seconds", seconds}};
  bool lost = false;
  for (bool more = true, first = true; more; first = false) {
    auto reply = monitor.ask(request);
    if (!reply) return reply.error();
    // Records that are lost later came while we read: the oldest of them are newer than ours.
    if (first) lost = number_of(*reply, "lost") != 0;
    const json& records = list_of(*reply, "records");
    for (const json& row : records) each(row);
    for (const json& user : list_of(*reply, "users")) {
      out.people.emplace(number_of(user, "uid"), text_of(user, "user"));
    }
    request.erase("seconds");
    request["since"] = number_of(*reply, "last");
    // New ones may come as fast as we read.
    more = truth_of(*reply, "more") && !records.empty() && at(records.back(), 0) <= out.to;
  }
  return lost;
}

std::optional<Error> read_jobs(MonitorClient& monitor, const Words& words, Recording& out) {
  json request{{"op", "timeline"}, {"of", "jobs"}};
  for (;;) {
    auto reply = monitor.ask(request);
    if (!reply) return reply.error();
    for (const json& row : list_of(*reply, "jobs")) {
      out.jobs.emplace(number_of(row, "key"), job_of(row, words));
    }
    const auto after = reply->find("more_after");
    if (after == reply->end() || after->is_null()) return std::nullopt;
    request["after"] = *after;
  }
}

// An overwritten event may be about any job: nothing before the oldest one is known for sure.
void shorten(Recording& out, std::int64_t oldest) {
  if (oldest <= out.from) return;
  out.from = std::min(oldest, out.to);
  out.shortened = true;
}

std::optional<Error> read_events(MonitorClient& monitor, const Words& words, double seconds,
                                 Recording& out) {
  for (const char* of : {"changes", "turns"}) {
    std::vector<Event> events;
    const auto lost = read_records(monitor, of, seconds, out, [&](const json& row) {
      events.push_back(event_of(row, words));
    });
    if (!lost) return lost.error();
    if (*lost && !events.empty()) shorten(out, events.front().at);
    const auto middle = static_cast<std::ptrdiff_t>(out.events.size());
    out.events.insert(out.events.end(), std::make_move_iterator(events.begin()),
                      std::make_move_iterator(events.end()));
    std::inplace_merge(out.events.begin(), out.events.begin() + middle, out.events.end(),
                       [](const Event& a, const Event& b) { return a.at < b.at; });
  }
  return std::nullopt;
}

}  // namespace

const char* key_of(State state) { return kStateKeys[static_cast<std::size_t>(state)]; }

State state_named(const std::string& key) {
  for (std::size_t i = 0; i < kStates; ++i) {
    if (key == kStateKeys[i]) return static_cast<State>(i);
  }
  return State::kUnknown;
}

Kind kind_named(const std::string& key) {
  static const std::map<std::string, Kind> kKinds = {
      {"job begins", Kind::kJobBegins}, {"job ends", Kind::kJobEnds}, {"state", Kind::kStatus},
      {"work", Kind::kStatus},          {"paused", Kind::kPaused},    {"resumed", Kind::kResumed},
      {"leaves", Kind::kLeaves},        {"left", Kind::kLeft},        {"returns", Kind::kReturns},
      {"is back", Kind::kIsBack},       {"gate", Kind::kGate}};
  const auto found = kKinds.find(key);
  return found != kKinds.end() ? found->second : Kind::kOther;
}

Result<Recording> read_recording(MonitorClient& monitor, double seconds) {
  auto reply = monitor.ask({{"op", "timeline"}, {"of", "words"}});
  if (!reply) return reply.error();
  const Words words = words_of(*reply);
  Recording out;
  out.to = static_cast<std::int64_t>(number_of(*reply, "now_ns"));
  const auto span = static_cast<std::int64_t>(seconds * 1e9);
  out.from = std::max(out.to - span, static_cast<std::int64_t>(number_of(*reply, "started_ns")));
  out.unix_seconds = real_of(*reply, "unix_seconds").value_or(0);
  for (const json& gpu : list_of(*reply, "gpus")) {
    out.gpus.push_back({static_cast<unsigned>(number_of(gpu, "index")), text_of(gpu, "name"),
                        text_of(gpu, "uuid"), number_of(gpu, "memory_total_bytes"),
                        text_of(gpu, "pci_bus_id", "")});
  }
  // Events first: a job that one is about has its name for longer than the event is kept.
  if (const auto failed = read_events(monitor, words, seconds, out)) return *failed;
  const auto sampled = read_records(monitor, "samples", seconds, out, [&](const json& row) {
    out.samples.push_back(sample_of(row));
  });
  if (!sampled) return sampled.error();
  if (const auto failed = read_jobs(monitor, words, out)) return *failed;
  return out;
}

}  // namespace switchyard::tools::trace
