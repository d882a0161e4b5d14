#include "monitor/history/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "monitor/core/events.h"
#include "monitor/history/known_gpus.h"
#include "monitor/platform/process_end.h"
#include "monitor/status/job_status.h"
#include "switchyard/status.h"

namespace switchyard::monitor::history {
namespace {

using nlohmann::json;

// Each row is for one of these. `b` is the table that is summed, bills or times, and `d` is one of
// days.
struct Grouping {
  const char* key;
  const char* group;
};
constexpr Grouping kGroupings[] = {
    {"job", "b.job"},
    {"user", "j.uid"},
    {"gpu", "b.gpu"},
    {"day", "d.day"},
    // Of each user: where cgroups don't tell the number, a user says it.
    {"slurmjob", "j.slurm_job || ' ' || j.uid"}};

const Grouping& grouping_of(By by) { return kGroupings[static_cast<std::size_t>(by)]; }

// Local days, of each hour that has rows.
constexpr char kDays[] =
    "WITH days AS MATERIALIZED (SELECT hour, date(hour * 3600, 'unixepoch', 'localtime') AS day "
    "FROM (SELECT DISTINCT hour FROM {} WHERE hour >= ?1 AND hour < ?2)) ";

constexpr char kSums[] =
    "total(b.gpu_seconds), total(b.estimated), total(b.memory), total(b.idle), max(b.peak), "
    "total(b.copied), total(b.swapped), total(b.launches), total(b.refusals)";
constexpr int kSumCount = 9;
// Of these, what a table of jobs shows: 10,000 jobs are read in two thirds of the time.
constexpr char kBriefSums[] =
    "total(b.gpu_seconds), total(b.estimated), 0, 0, max(b.peak), 0, 0, 0, 0";

std::string with_days(const Query& query, const char* table) {
  return query.by == By::kDay ? fmt::format(kDays, table) : std::string();
}

const char* join_days(const Query& query) {
  return query.by == By::kDay ? "JOIN days d ON d.hour = b.hour " : "";
}

// ?1, ?2: the hours. ?3: whose bills are seen; -1: everybody's.
constexpr char kSeen[] = "b.hour >= ?1 AND b.hour < ?2 AND (?3 < 0 OR j.uid = ?3) ";

std::string refusal(int code, const std::string& why) {
  return json{{"schema_version", kSchemaVersion}, {"ok", false}, {"code", code}, {"error", why}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

// Of these, the jobs that a row can be for, and those that were asked for: ?6 and ?8.
std::string concerned(const Query& query) {
  std::string out = query.by == By::kSlurmJob ? "AND j.slurm_job IS NOT NULL " : "";
  if (!query.jobs.empty()) out += "AND j.id IN (SELECT value FROM json_each(?6)) ";
  if (!query.users.empty()) {
    out += "AND EXISTS (SELECT 1 FROM json_each(?8) WHERE value IN (j.user, '' || j.uid)) ";
  }
  return out;
}

std::int64_t whose(const Query& query) {
  return query.sees_bills ? -1 : static_cast<std::int64_t>(query.uid);
}

// A count has no fraction.
json whole(double value) { return static_cast<std::int64_t>(value); }

json no_sums() {
  return {{"gpu_seconds", 0.0},
          {"gpu_seconds_estimated", 0.0},
          {"memory_byte_seconds", 0.0},
          {"memory_idle_byte_seconds", 0.0},
          {"memory_mean_bytes", 0},
          {"memory_peak_bytes", 0},
          {"copied_bytes", 0},
          {"swapped_bytes", 0},
          {"launches", 0},
          {"refusals", 0},
          {"times", json::array()}};
}

json sums_of(const Statement& row, int first) {
  json out = no_sums();
  int at = first;
  for (const char* key : {"gpu_seconds", "gpu_seconds_estimated", "memory_byte_seconds",
                          "memory_idle_byte_seconds"}) {
    out[key] = row.real(at++);
  }
  for (const char* key :
       {"memory_peak_bytes", "copied_bytes", "swapped_bytes", "launches", "refusals"}) {
    out[key] = whole(row.real(at++));
  }
  return out;
}

// A state of a newer monitor is one that this one does not know.
const char* state_key(std::int64_t state) {
  const bool known = state >= 0 && state <= static_cast<std::int64_t>(status::State::kUnmanaged);
  return key_of(known ? static_cast<status::State>(state) : status::State::kUnknown);
}

const char* reason_key(std::int64_t reason) {
  const bool known =
      reason >= 0 && reason <= static_cast<std::int64_t>(status::Reason::kOldLibrary);
  return known ? key_of(static_cast<status::Reason>(reason)) : nullptr;
}

class Reader {
 public:
  Reader(const Sqlite& file, const Query& query, std::int64_t session)
      : file_(file), query_(query), session_(session) {}

  std::optional<std::string> answer(std::int64_t& steps) {
    if (!gpus_.read(file_, steps_)) return std::nullopt;
    if (const auto gpu = gpus_.unknown(query_.gpus)) {
      return refusal(kNoSuchJobOrGpu, "the history knows no GPU '" + *gpu +
                                          "': 'switchyard report --by gpu' lists them");
    }
    on_gpus_ = gpus_.condition(query_.gpus);
    const bool read = (query_.by == By::kJob ? read_jobs() : read_groups()) &&
                      (rows_.empty() || read_times()) && read_observed() && read_unmanaged();
    steps = steps_;
    if (!read) return std::nullopt;
    json rows = json::array();
    for (const auto& [key, at] : order_) rows.push_back(std::move(rows_[at]));
    json out = {{"schema_version", kSchemaVersion},
                {"ok", true},
                {"by", grouping_of(query_.by).key},
                {"since_unix_seconds", query_.since_hour * kHourSeconds},
                {"until_unix_seconds", query_.until_hour * kHourSeconds},
                {"rows", std::move(rows)}};
    if (more_after_ != 0) out["more_after"] = more_after_;
    if (more_after_ == 0) out["unmanaged"] = std::move(unmanaged_);
    return out.dump(-1, ' ', false, json::error_handler_t::replace);
  }

 private:
  bool ended(const Statement& statement) {
    steps_ += statement.steps();
    return !statement.failed();
  }

  json& add(const std::string& key, json row) {
    order_.emplace_back(key, rows_.size());
    at_[key] = rows_.size();
    rows_.push_back(std::move(row));
    return rows_.back();
  }

  bool read_jobs() {
    Statement jobs(file_,
                   fmt::format("SELECT j.key, {}, j.id, j.name, j.user, j.uid, j.command, "
                               "j.started, j.seen, j.ended, j.exit, j.session, j.lived, "
                               "{}, j.slurm_job "
                               "FROM jobs j {} JOIN bills b ON b.job = j.key AND b.hour >= ?1 "
                               "AND b.hour < ?2 {}WHERE (?3 < 0 OR j.uid = ?3) AND j.key > ?4 AND "
                               "j.seen >= ?1 * 3600 AND j.started < ?2 * 3600 "
                               "AND (?5 = '' OR j.id = ?5) AND (?7 = '' OR j.slurm_job = ?7) {}"
                               "GROUP BY j.key ORDER BY j.key LIMIT {}",
                               query_.brief ? kBriefSums : kSums,
                               query_.brief ? "NULL" : "group_concat(DISTINCT b.gpu)",
                               query_.gpus.empty() ? "LEFT" : "CROSS", on_gpus_, concerned(query_),
                               kPart + 1));
    jobs.with(query_.since_hour, query_.until_hour, whose(query_), query_.after, query_.job,
              query_.jobs, query_.slurm_job, query_.users);
    while (jobs.row()) {
      if (rows_.size() == kPart) {
        more_after_ = last_;
        continue;
      }
      const std::int64_t key = jobs.integer(0);
      if (rows_.empty()) first_ = key;
      last_ = key;
      add_job(key, jobs);
    }
    return ended(jobs);
  }

  void add_job(std::int64_t key, const Statement& row) {
    const int at = 1 + kSumCount;
    const std::int64_t started = row.integer(at + 5);
    const bool open = row.null(at + 7);
    const bool lives = open && row.integer(at + 9) == session_;
    // The clock may have been set back meanwhile.
    const std::int64_t ended = std::max(row.integer(open ? at + 6 : at + 7), started);
    json out = {{"job", row.text(at)},
                {"name", row.text(at + 1)},
                {"user", row.text(at + 2)},
                {"uid", row.integer(at + 3)},
                {"started_unix_seconds", started},
                {"exit", lives  ? json(nullptr)
                         : open ? json("lost")
                                : json("ended")},
                {"lived_seconds", row.real(at + 10)}};
    if (query_.brief) {
      out["gpu_seconds"] = row.real(1);
      out["gpu_seconds_estimated"] = row.real(2);
      out["memory_peak_bytes"] = whole(row.real(5));
      out["times"] = json::array();
    } else {
      out.update(sums_of(row, 1));
      out["ended_unix_seconds"] = lives ? json(nullptr) : json(ended);
      add_details(row, at, open, out);
    }
    add(std::to_string(key), std::move(out));
  }

  void add_details(const Statement& row, int at, bool open, json& out) {
    const bool sees_command =
        query_.sees_all ||
        (query_.sees_commands && row.integer(at + 3) == static_cast<std::int64_t>(query_.uid));
    out["command"] = sees_command ? json(row.text(at + 4)) : json(nullptr);
    const ProcessEnd end = end_of_text(open ? "" : row.text(at + 8));
    out["exit_code"] = end.code ? json(*end.code) : json(nullptr);
    out["exit_signal"] = end.signal ? json(*end.signal) : json(nullptr);
    out["gpus"] = json::array();
    const std::string used = row.text(at + 11);
    for (std::size_t from = 0; from < used.size();) {
      const std::size_t to = std::min(used.find(',', from), used.size());
      out["gpus"].push_back(gpus_.at(std::stoll(used.substr(from, to - from))).uuid);
      from = to + 1;
    }
    out["slurm_job"] = row.null(at + 12) ? json(nullptr) : json(row.text(at + 12));
  }

  // There are no more GPUs and days than one part takes. The next part is asked for by its place.
  bool in_parts() const { return query_.by == By::kUser || query_.by == By::kSlurmJob; }

  bool read_groups() {
    Statement groups(
        file_, fmt::format("{}SELECT {}, {}, count(DISTINCT b.job), max(j.user) FROM bills "
                           "b JOIN jobs j ON j.key = b.job {}WHERE {}{}{}GROUP BY 1 ORDER BY 1 "
                           "LIMIT {} OFFSET ?4",
                           with_days(query_, "bills"), grouping_of(query_.by).group, kSums,
                           join_days(query_), kSeen, concerned(query_), on_gpus_,
                           in_parts() ? kPart + 1 : -1));
    groups.with(query_.since_hour, query_.until_hour, whose(query_), query_.after, 0, query_.jobs,
                0, query_.users);
    while (groups.row()) {
      if (in_parts() && rows_.size() == kPart) {
        more_after_ = query_.after + kPart;
        continue;
      }
      json row = sums_of(groups, 1);
      row["jobs"] = groups.integer(1 + kSumCount);
      name(groups, groups.text(2 + kSumCount), row);
      add(groups.text(0), std::move(row));
    }
    return ended(groups);
  }

  void name(const Statement& group, const std::string& user, json& row) {
    if (query_.by == By::kUser) {
      row["uid"] = group.integer(0);
      row["user"] = user;
    } else if (query_.by == By::kSlurmJob) {
      const std::string key = group.text(0);
      const std::size_t blank = key.rfind(' ');
      row["slurm_job"] = key.substr(0, blank);
      row["uid"] = std::stoll(key.substr(blank + 1));
      row["user"] = user;
    } else if (query_.by == By::kGpu) {
      name_gpu(group.integer(0), row);
    } else {
      row["day"] = group.text(0);
    }
  }

  void name_gpu(std::int64_t key, json& row) {
    const KnownGpus::Gpu& gpu = gpus_.at(key);
    row["uuid"] = gpu.uuid;
    row["index"] = gpu.index;
    row["name"] = gpu.name;
  }

  bool read_times() {
    // By job: whose bills are seen is known of its row.
    const bool jobs = query_.by == By::kJob;
    const std::string from =
        jobs ? "b WHERE b.hour >= ?1 AND b.hour < ?2 AND b.job BETWEEN ?4 AND ?5 "
             : fmt::format("b JOIN jobs j ON j.key = b.job {}WHERE {}{}", join_days(query_), kSeen,
                           concerned(query_));
    Statement times(file_, fmt::format("{}SELECT {}, b.state, b.reason, total(b.seconds) FROM "
                                       "times {}{}GROUP BY 1, 2, 3",
                                       with_days(query_, "times"), grouping_of(query_.by).group,
                                       from, on_gpus_));
    times.with(query_.since_hour, query_.until_hour, whose(query_), first_, last_, query_.jobs, 0,
               query_.users);
    std::map<std::string, double> all;
    while (times.row()) {
      const std::string key = times.text(0);
      const auto at = at_.find(key);
      if (at == at_.end()) continue;
      const char* reason = reason_key(times.integer(2));
      rows_[at->second]["times"].push_back({{"state", state_key(times.integer(1))},
                                            {"reason", reason != nullptr ? json(reason) : json()},
                                            {"seconds", times.real(3)}});
      all[key] += times.real(3);
    }
    for (const auto& [key, seconds] : all) {
      json& row = rows_[at_[key]];
      if (seconds > 0 && !query_.brief) {
        row["memory_mean_bytes"] = whole(row["memory_byte_seconds"].get<double>() / seconds);
      }
    }
    return ended(times);
  }

  bool about_jobs() const {
    return !query_.job.empty() || !query_.jobs.empty() || !query_.users.empty() ||
           !query_.slurm_job.empty();
  }

  // For how long the monitor looked at the GPUs, and nobody had them. That tells of all jobs.
  bool read_observed() {
    if (query_.by != By::kGpu && query_.by != By::kDay) return true;
    for (json& row : rows_) row["observed_seconds"] = row["idle_seconds"] = nullptr;
    if (!query_.sees_bills || about_jobs()) return true;
    Statement observed(file_,
                       fmt::format("{}SELECT {}, total(b.seconds) FROM observed b {}WHERE "
                                   "b.hour >= ?1 AND b.hour < ?2 {}GROUP BY 1",
                                   with_days(query_, "observed"), grouping_of(query_.by).group,
                                   join_days(query_), on_gpus_));
    observed.with(query_.since_hour, query_.until_hour);
    while (observed.row()) {
      const std::string key = observed.text(0);
      if (!at_.contains(key)) {
        json row = no_sums();
        row["jobs"] = 0;
        name(observed, "", row);
        add(key, std::move(row));
      }
      json& row = rows_[at_[key]];
      row["observed_seconds"] = observed.real(1);
      row["idle_seconds"] = std::max(0.0, observed.real(1) - row["gpu_seconds"].get<double>());
    }
    std::sort(order_.begin(), order_.end());
    return ended(observed);
  }

  // Processes without a job. A question about one job is none about them, nor one about Slurm's.
  bool read_unmanaged() {
    if (more_after_ != 0 || about_jobs() || query_.by == By::kSlurmJob) return true;
    const By by = query_.by == By::kJob ? By::kUser : query_.by;
    const char* group = by == By::kUser ? "b.uid" : grouping_of(by).group;
    Statement bills(
        file_, fmt::format("{}SELECT {}, max(b.user), total(b.gpu_seconds), "
                           "total(b.memory), total(b.idle), max(b.peak) "
                           "FROM unmanaged b {}WHERE b.hour >= ?1 AND b.hour < ?2 AND "
                           "(?3 < 0 OR b.uid = ?3) {}GROUP BY 1 ORDER BY 1",
                           with_days(query_, "unmanaged"), group, join_days(query_), on_gpus_));
    bills.with(query_.since_hour, query_.until_hour, whose(query_));
    while (bills.row()) {
      json row = {{"gpu_seconds_estimated", bills.real(2)},
                  {"memory_byte_seconds", bills.real(3)},
                  {"memory_idle_byte_seconds", bills.real(4)},
                  {"memory_peak_bytes", whole(bills.real(5))}};
      if (by == By::kUser) {
        const bool known = bills.integer(0) != HistoryEvent::kNobody;
        row["uid"] = known ? json(bills.integer(0)) : json(nullptr);
        row["user"] = known ? json(bills.text(1)) : json(nullptr);
      } else {
        name(bills, "", row);
      }
      unmanaged_.push_back(std::move(row));
    }
    return ended(bills);
  }

  const Sqlite& file_;
  const Query& query_;
  std::int64_t session_;
  KnownGpus gpus_;
  std::string on_gpus_;  // a condition: of those that were asked for
  std::vector<json> rows_;
  json unmanaged_ = json::array();
  std::vector<std::pair<std::string, std::size_t>> order_;
  std::map<std::string, std::size_t> at_;
  std::int64_t first_ = 0, last_ = 0, more_after_ = 0;
  std::int64_t steps_ = 0;
};

}  // namespace

std::optional<std::string> report(const Sqlite& file, const Query& query, std::int64_t session,
                                  std::int64_t& steps) {
  return Reader(file, query, session).answer(steps);
}

std::string unread(const std::string& why) {
  return refusal(kFailure, "the history cannot be read: " + why);
}

}  // namespace switchyard::monitor::history
