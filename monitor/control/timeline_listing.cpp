#include "monitor/control/timeline_listing.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "monitor/control/reply.h"
#include "monitor/core/lanes.h"
#include "monitor/status/job_status.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

// Of one answer: some hundred kilobytes, and about a millisecond.
constexpr std::size_t kMostRecords = 1024;
constexpr std::size_t kMostGates = 512;  // of the jobs of one answer, about
constexpr std::size_t kMostJobs = 256;

json row_of(const HistoryEvent& event) {
  return {event.at_ns,      static_cast<unsigned>(event.kind),
          event.job,        event.by_job,
          event.gpu,        event.pid,
          event.uid,        event.value,
          event.state,      event.reason,
          event.from_state, event.from_reason};
}

json row_of(const timeline::Sample& sample) {
  const bool known = sample.share != timeline::Sample::kUnknown;
  return {sample.at_ns,
          sample.job,
          sample.gpu,
          sample.memory_bytes,
          known ? json(sample.share) : json(-1),
          sample.at_work,
          sample.held_threads,
          sample.launches};
}

// Their names: a tool in a container knows other users.
json users_of(const std::vector<HistoryEvent>& events) {
  std::set<std::uint32_t> seen;
  json out = json::array();
  for (const HistoryEvent& event : events) {
    if (event.uid == HistoryEvent::kNobody || !seen.insert(event.uid).second) continue;
    out.push_back({{"uid", event.uid}, {"user", user_name(event.uid)}});
  }
  return out;
}
json users_of(const std::vector<timeline::Sample>& /*samples*/) { return json::array(); }

std::optional<double> number_in(const json& request, const char* key) {
  const auto found = request.find(key);
  if (found == request.end()) return 0;
  if (found->is_number() && found->get<double>() >= 0) return found->get<double>();
  return std::nullopt;
}

template <typename Record>
json list_records(const Ring<Record>& ring, const json& request, Time now) {
  const auto since = number_in(request, "since");
  const auto span = number_in(request, "seconds");
  if (!since || !span) return refusal(kUsage, "since and seconds are numbers, 0 or more");
  auto from = static_cast<std::uint64_t>(std::min(*since, 1e15));
  if (request.contains("seconds")) {
    const double age = std::min(*span, seconds(now));
    const auto passed = std::chrono::duration_cast<Time>(std::chrono::duration<double>(age));
    from = std::max(from, ring.before(now - passed));
  }
  std::vector<Record> records;
  const auto read = ring.read(from, records, kMostRecords);
  json rows = json::array();
  for (const Record& record : records) rows.push_back(row_of(record));
  json out = success();
  out["records"] = std::move(rows);
  out["last"] = read.last;
  out["lost"] = read.lost;
  out["more"] = read.last < ring.newest();
  out["users"] = users_of(records);
  return out;
}

json codes_of(const status::Status& status) {
  return {static_cast<unsigned>(status.code.state), static_cast<unsigned>(status.code.reason),
          status.by.job};
}

// What a living job does now, and which of its gates are closed.
void list_now(Monitor& monitor, const Job& job, json& out, std::size_t& gates) {
  const status::JobStatus& status = monitor.statuses().of(job);
  out["state"] = codes_of(status.job);
  out["gpus"] = json::array();
  for (const status::JobStatus::OnGpu& on : status.gpus) {
    out["gpus"].push_back({on.gpu + 1, codes_of(on.status)});
  }
  out["gates"] = json::array();
  for_lanes(monitor.registry(), job, [&](const Client& client, unsigned, const Client::Lane& lane) {
    out["gates"].push_back({lane.gpu + 1, client.peer.pid, lane.order.closed});
    ++gates;
  });
}

// All jobs that a record may be about.
json list_known_jobs(Monitor& monitor, const json& request) {
  const auto after = number_in(request, "after");
  if (!after) return refusal(kUsage, "after is a number, 0 or more");
  json jobs = json::array();
  json out = success();
  out["more_after"] = nullptr;
  std::size_t gates = 0;
  const auto& names = monitor.journal().names();
  for (auto at = names.upper_bound(static_cast<JobKey>(std::min(*after, 1e15))); at != names.end();
       ++at) {
    if (jobs.size() >= kMostJobs || gates >= kMostGates) {
      out["more_after"] = jobs.back()["key"];
      break;
    }
    const auto& [key, name] = *at;
    json row{{"key", key}, {"job", name.id}, {"name", name.name}, {"user", user_name(name.uid)}};
    const Job* job = monitor.registry().find(key);
    if (job != nullptr) list_now(monitor, *job, row, gates);
    jobs.push_back(std::move(row));
  }
  out["jobs"] = std::move(jobs);
  return out;
}

template <typename Code>
json keys_up_to(Code last) {
  json out = json::array();
  for (unsigned code = 0; code <= static_cast<unsigned>(last); ++code) {
    const char* key = key_of(static_cast<Code>(code));
    out.push_back(key != nullptr ? key : "");
  }
  return out;
}

// The words for the codes of records, and the GPUs, in the order of their numbers.
json list_words(Monitor& monitor, Time now) {
  json out = success();
  out["now_ns"] = now.count();
  out["started_ns"] = monitor.started().count();
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  out["unix_seconds"] = std::chrono::duration<double>(wall).count();
  out["kinds"] = keys_up_to(static_cast<EventKind>(kEventKinds));
  out["states"] = keys_up_to(status::State::kUnmanaged);
  out["reasons"] = keys_up_to(status::Reason::kOldLibrary);
  out["gpus"] = json::array();
  for (const GpuAccounts::Gpu& gpu : monitor.gpus().all()) {
    out["gpus"].push_back({{"index", gpu.info.index},
                           {"name", gpu.info.name},
                           {"uuid", gpu.info.uuid_text},
                           {"pci_bus_id", gpu.info.pci_bus_id},
                           {"memory_total_bytes", gpu.memory.total_bytes}});
  }
  return out;
}

}  // namespace

json list_timeline(Monitor& monitor, const json& request, Time now) {
  const std::string of = text_of(request, "of").value_or("");
  if (of == "words") {
    monitor.count_usage(now);  // so that the last states are those of `now`
    return list_words(monitor, now);
  }
  if (of == "jobs") return list_known_jobs(monitor, request);
  if (of == "turns") return list_records(monitor.journal().timeline(), request, now);
  if (of == "changes") return list_records(monitor.journal().rare(), request, now);
  if (of == "samples") return list_records(monitor.samples().ring(), request, now);
  return nonsense("of", of, "words, jobs, turns, changes or samples");
}

}  // namespace switchyard::monitor
