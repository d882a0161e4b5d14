#include "monitor/control/report_command.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "monitor/control/reply.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

constexpr std::array kByNames = {"job", "user", "gpu", "day", "slurmjob"};
constexpr std::int64_t kHour = 3600;
constexpr std::int64_t kMostSeconds = 1ll << 40;

// Seconds since 1970; nullopt: it is none that is possible.
std::optional<std::int64_t> seconds_in(const json& request, const char* key,
                                       std::int64_t fallback) {
  const auto found = request.find(key);
  if (found == request.end() || found->is_null()) return fallback;
  if (!found->is_number_integer()) return std::nullopt;
  const auto seconds = found->get<std::int64_t>();
  if (seconds < 0 || seconds > kMostSeconds) return std::nullopt;
  return seconds;
}

bool all_texts(const json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const json& each) { return each.is_string(); });
}

// Which jobs: a list of ids, or an object with "ids", "users" or both. A monitor that knows no
// users refuses an object, so that it never tells of all.
bool read_jobs(const json& request, history::Query& query) {
  const auto found = request.find("jobs");
  if (found == request.end()) return true;
  const json jobs = found->is_object() ? *found : json{{"ids", *found}};
  for (const auto& [key, to] : {std::pair{"ids", &query.jobs}, {"users", &query.users}}) {
    const auto list = jobs.find(key);
    if (list == jobs.end()) continue;
    if (!all_texts(*list)) return false;
    *to = dump(*list);
  }
  return true;
}

bool read_gpus(const json& request, history::Query& query) {
  const auto found = request.find("gpus");
  if (found == request.end()) return true;
  if (!all_texts(*found)) return false;
  query.gpus = found->get<std::vector<std::string>>();
  return true;
}

}  // namespace

std::optional<history::Query> report_query(Monitor& monitor, const Peer& peer, const json& request,
                                           json& out) {
  if (monitor.history() == nullptr) {
    out = refusal(kFailure, "no history is kept: the monitor was started with --history none");
    return std::nullopt;
  }
  history::Query query;
  const std::string by = text_of(request, "by").value_or("job");
  std::size_t kind = 0;
  while (kind < kByNames.size() && by != kByNames[kind]) ++kind;
  if (kind == kByNames.size()) {
    out = nonsense("by", by, "job, user, gpu, day or slurmjob");
    return std::nullopt;
  }
  query.by = static_cast<history::By>(kind);
  const auto now = static_cast<std::int64_t>(std::time(nullptr));
  const auto since = seconds_in(request, "since", 0);
  const auto until = seconds_in(request, "until", kMostSeconds);
  const auto after = seconds_in(request, "after", 0);
  if (!since || !until || !after) {
    out = refusal(kUsage, "since, until and after are whole numbers, in seconds since 1970");
    return std::nullopt;
  }
  query.since_hour = *since / kHour;
  // An hour that has begun counts as a whole.
  query.until_hour = (std::min(*until, std::max(now, *since) + kHour) + kHour - 1) / kHour;
  query.after = *after;
  query.brief = query.by == history::By::kJob && request.contains("brief");
  if (!read_jobs(request, query) || !read_gpus(request, query)) {
    out = refusal(kUsage,
                  "jobs (or its ids and users) and gpus are lists of texts: ids, names or numbers "
                  "of users, and indexes or UUIDs");
    return std::nullopt;
  }
  query.job = text_of(request, "job").value_or("");
  query.slurm_job = text_of(request, "slurm_job").value_or("");
  // The history does not know containers apart. So from inside of one nobody sees a command line,
  // and root has no bills there.
  query.uid = peer.account();
  query.sees_all = !monitor.users().bounded(peer.account()) && peer.container.empty();
  query.sees_commands = peer.container.empty();
  query.sees_bills = query.sees_all || monitor.settings().bills_of_all;
  return query;
}

}  // namespace switchyard::monitor
