#include "monitor/history/database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "monitor/history/past_events.h"
#include "monitor/history/report.h"
#include "switchyard/folders.h"

namespace switchyard::monitor::history {
namespace {

constexpr std::int64_t kJump = 60;  // seconds by which two clocks may differ

// `PRAGMA user_version` is its version. A change of it raises kSchema, and make_schema() brings an
// older file up to it.
constexpr char kTables[] = R"(
CREATE TABLE gpus(key INTEGER PRIMARY KEY, uuid TEXT UNIQUE NOT NULL, number INTEGER, name TEXT);
CREATE TABLE jobs(
  key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, uid INTEGER NOT NULL,
  user TEXT NOT NULL, name TEXT NOT NULL, command TEXT NOT NULL, started INTEGER NOT NULL,
  seen INTEGER NOT NULL, ended INTEGER, exit TEXT, session INTEGER NOT NULL,
  lived REAL NOT NULL);
CREATE INDEX jobs_by_id ON jobs(id, uid);
CREATE TABLE bills(
  hour INTEGER, job INTEGER, gpu INTEGER, gpu_seconds REAL, estimated REAL, memory REAL, idle REAL,
  peak REAL, copied REAL, swapped REAL, launches REAL, refusals REAL,
  PRIMARY KEY(hour, job, gpu)) WITHOUT ROWID;
CREATE INDEX bills_by_job ON bills(job);
CREATE TABLE times(
  hour INTEGER, job INTEGER, gpu INTEGER, state INTEGER, reason INTEGER, seconds REAL,
  PRIMARY KEY(hour, job, gpu, state, reason)) WITHOUT ROWID;
CREATE INDEX times_by_job ON times(job);
CREATE TABLE observed(
  hour INTEGER, gpu INTEGER, seconds REAL, PRIMARY KEY(hour, gpu)) WITHOUT ROWID;
)";

// It came later. A monitor that does not know it leaves it alone, so the version is the same.
constexpr char kUnmanagedTable[] =
    "CREATE TABLE IF NOT EXISTS unmanaged(hour INTEGER, uid INTEGER, gpu INTEGER, user TEXT, "
    "gpu_seconds REAL, memory REAL, idle REAL, peak REAL, PRIMARY KEY(hour, uid, gpu)) "
    "WITHOUT ROWID";

// The same: jobs that were written without it have none.
constexpr char kHasSlurmJobs[] = "SELECT 1 FROM pragma_table_info('jobs') WHERE name = 'slurm_job'";
constexpr char kAddSlurmJobs[] = "ALTER TABLE jobs ADD COLUMN slurm_job TEXT";

constexpr char kFindOpen[] =
    "SELECT key FROM jobs WHERE id = ?1 AND uid = ?2 AND ended IS NULL ORDER BY key DESC LIMIT 1";
constexpr char kAddJob[] =
    "INSERT INTO jobs(id, uid, user, name, command, started, seen, session, lived) "
    "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)";
// The first to know the command line had it from `run`.
constexpr char kSeeJob[] =
    "UPDATE jobs SET user = ?2, name = ?3, seen = max(seen, ?4), session = ?5, lived = lived + ?6, "
    "slurm_job = coalesce(nullif(?7, ''), slurm_job), ended = ?8, exit = ?9 WHERE key = ?1";
constexpr char kAddBill[] =
    "INSERT INTO bills VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) ON CONFLICT DO "
    "UPDATE SET gpu_seconds = gpu_seconds + ?4, estimated = estimated + ?5, memory = memory + ?6, "
    "idle = idle + ?7, peak = max(peak, ?8), copied = copied + ?9, swapped = swapped + ?10, "
    "launches = launches + ?11, refusals = refusals + ?12";
constexpr char kAddTime[] =
    "INSERT INTO times VALUES(?1, ?2, ?3, ?4, ?5, ?6) "
    "ON CONFLICT DO UPDATE SET seconds = seconds + ?6";
constexpr char kAddUnmanaged[] =
    "INSERT INTO unmanaged VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE SET "
    "user = ?4, gpu_seconds = gpu_seconds + ?5, memory = memory + ?6, idle = idle + ?7, "
    "peak = max(peak, ?8)";
constexpr char kAddObserved[] =
    "INSERT INTO observed VALUES(?1, ?2, ?3) ON CONFLICT DO UPDATE SET seconds = seconds + ?3";
constexpr char kAddGpu[] =
    "INSERT INTO gpus(uuid, number, name) VALUES(?1, ?2, ?3) "
    "ON CONFLICT(uuid) DO UPDATE SET number = ?2, name = ?3";

std::int64_t random_number() {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number)) number = ::getpid();
  return number;
}

}  // namespace

struct Database::Statements {
  explicit Statements(const Sqlite& file)
      : find_open(file, kFindOpen),
        add_job(file, kAddJob),
        see_job(file, kSeeJob),
        add_bill(file, kAddBill),
        add_time(file, kAddTime),
        add_unmanaged(file, kAddUnmanaged),
        add_observed(file, kAddObserved),
        add_event(file, kAddEvent) {}
  Statement find_open, add_job, see_job, add_bill, add_time, add_unmanaged, add_observed, add_event;
};

Database::Database(Place place) : place_(std::move(place)), session_(random_number()) {}
Database::~Database() = default;

std::unique_ptr<Database> Database::open(Place place, std::string& why) {
  std::unique_ptr<Database> out(new Database(std::move(place)));
  if (!out->lock(why)) return nullptr;
  if (out->ready(why)) return out;
  if (!out->file_.may_pass()) return nullptr;
  out->remark_ = fmt::format("opening the history failed: {}; it is tried again", why);
  return out;
}

// The file is open, and is what we know.
bool Database::ready(std::string& why) {
  if (statements_ != nullptr || begin(why)) return true;
  return file_.damaged() && set_aside(file_.message(), why);
}

bool Database::lock(std::string& why) {
  std::error_code failed;
  const std::filesystem::path folder = place_.folder;
  std::filesystem::create_directories(folder.parent_path(), failed);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    why = fmt::format("cannot make {}: {}", place_.folder, std::strerror(errno));
    return false;
  }
  if (const auto foreign = foreign_part_of(place_.folder)) {
    why = fmt::format("{} can be changed by another user (uid {})", foreign->path, foreign->owner);
    return false;
  }
  // Links on the way are of root or our user, and SQLite follows none.
  const std::filesystem::path real = std::filesystem::canonical(folder, failed);
  if (!failed) place_.folder = real;
  lock_ = open_own_file((place_.folder + "/history.lock").c_str(), O_RDWR | O_CREAT, why);
  if (!lock_) return false;
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    why = fmt::format("another monitor writes {}", path());
    return false;
  }
  // Made here, so that nobody else may read it. SQLite's files beside it follow its mode.
  return static_cast<bool>(open_own_file(path().c_str(), O_RDWR | O_CREAT, why));
}

bool Database::begin(std::string& why) {
  statements_.reset();
  gpus_.clear();
  jobs_.clear();
  const auto failed = [&] {
    why = fmt::format("{}: {}", path(), file_.message());
    return false;
  };
  if (!file_.open(path())) return failed();
  const std::string limits = fmt::format(
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = {}; "
      "PRAGMA cache_size = -4096",
      4u << 20);
  if (!file_.run(limits)) return failed();
  if (!make_schema(why)) return why.empty() ? failed() : false;
  if (!file_.run(kUnmanagedTable) || !file_.run(kEventsTable) || !add_slurm_jobs()) return failed();
  Statement add(file_, kAddGpu);
  for (const Place::Gpu& gpu : place_.gpus) {
    if (!add.with(gpu.uuid, gpu.index, gpu.name).done()) return failed();
    Statement find(file_, "SELECT key FROM gpus WHERE uuid = ?1");
    if (!find.with(gpu.uuid).row()) return failed();
    gpus_.push_back(find.integer(0));
  }
  statements_ = std::make_unique<Statements>(file_);
  return true;
}

// `why` is empty where SQLite itself failed.
bool Database::make_schema(std::string& why) {
  Statement version(file_, "PRAGMA user_version");
  Statement tables(file_, "SELECT count(*) FROM sqlite_master");
  if (!version.row() || !tables.row()) return false;
  const std::int64_t found = version.integer(0);
  const bool empty = tables.integer(0) == 0;
  version.done();
  tables.done();
  if (found == kSchema) return true;
  if (found > kSchema) {
    why = fmt::format("{} is of a newer version ({}; this monitor knows {}) and is left alone",
                      path(), found, kSchema);
    return false;
  }
  if (!empty) {
    why = fmt::format("{} is no history of Switchyard", path());
    return false;
  }
  return file_.run(fmt::format("BEGIN; {} PRAGMA user_version = {}; COMMIT", kTables, kSchema));
}

bool Database::add_slurm_jobs() {
  Statement has(file_, kHasSlurmJobs);
  const bool there = has.row();
  has.done();
  return !has.failed() && (there || file_.run(kAddSlurmJobs));
}

// Keeps the damaged file, in place of an earlier one, and begins anew.
bool Database::set_aside(const std::string& what, std::string& why) {
  const std::string aside = path() + ".damaged";
  statements_.reset();
  file_ = Sqlite();
  for (const char* part : {"", "-wal", "-shm"}) {
    if (::rename((path() + part).c_str(), (aside + part).c_str()) != 0 && errno != ENOENT) {
      why = fmt::format("{} is damaged ({}), and renaming it failed: {}", path(), what,
                        std::strerror(errno));
      return false;
    }
  }
  if (!open_own_file(path().c_str(), O_RDWR | O_CREAT, why) || !begin(why)) return false;
  remark_ = fmt::format("{} was damaged ({}): it is now {}, and a new one was begun", path(), what,
                        aside);
  return true;
}

bool Database::write(const Rows& rows, Moment now, std::string& why) {
  if (!ready(why)) return false;
  if (write_once(rows, now)) return true;
  const bool damaged = file_.damaged();
  why = file_.message();
  file_.run("ROLLBACK");
  if (!damaged) {
    // Rows that this transaction had added are gone.
    jobs_.clear();
    return false;
  }
  return set_aside(std::string(why), why) && write_once(rows, now);
}

bool Database::write_once(const Rows& rows, Moment now) {
  if (!file_.run("BEGIN IMMEDIATE")) return false;
  if (!write_rows(rows, now) || !file_.run("COMMIT")) return false;
  for (const auto& [key, row] : rows.jobs) {
    if (row.ended != 0) jobs_.erase(key);
  }
  return true;
}

bool Database::write_rows(const Rows& rows, Moment now) {
  Statements& to = *statements_;
  for (const auto& [key, row] : rows.jobs) {
    if (!write_job(key, row, now)) return false;
  }
  for (const auto& [key, bill] : rows.bills) {
    const auto job = jobs_.find(key.job);
    if (job == jobs_.end() || key.gpu >= gpus_.size()) continue;
    const std::int64_t gpu = gpus_[key.gpu];
    to.add_bill.with(key.hour, job->second, gpu, bill.gpu_seconds, bill.estimated_seconds,
                     bill.memory_byte_seconds, bill.idle_byte_seconds, bill.peak_bytes,
                     bill.copied_bytes, bill.swapped_bytes, bill.launches, bill.refusals);
    if (!to.add_bill.done()) return false;
    for (const auto& [code, seconds] : bill.seconds) {
      to.add_time.with(key.hour, job->second, gpu, static_cast<int>(code.state),
                       static_cast<int>(code.reason), seconds);
      if (!to.add_time.done()) return false;
    }
  }
  for (const auto& [key, bill] : rows.unmanaged) {
    if (key.gpu >= gpus_.size()) continue;
    to.add_unmanaged.with(key.hour, key.uid, gpus_[key.gpu], bill.user, bill.gpu_seconds,
                          bill.memory_byte_seconds, bill.idle_byte_seconds, bill.peak_bytes);
    if (!to.add_unmanaged.done()) return false;
  }
  for (const auto& [key, seconds] : rows.observed) {
    if (key.second >= gpus_.size()) continue;
    if (!to.add_observed.with(key.first, gpus_[key.second], seconds).done()) return false;
  }
  return write_events(file_, to.add_event, rows.events, session_, most_events(place_.bytes));
}

bool Database::write_job(JobKey key, const JobRow& row, Moment now) {
  Statements& to = *statements_;
  auto known = jobs_.find(key);
  if (known == jobs_.end()) {
    std::int64_t found = 0;
    // A job that this monitor has written already, too: a failed write forgets them.
    if (to.find_open.with(row.id, row.uid).row()) found = to.find_open.integer(0);
    to.find_open.done();
    if (to.find_open.failed()) return false;
    if (found != 0 && !row.found_again) {
      Statement mine(file_, "SELECT 1 FROM jobs WHERE key = ?1 AND session = ?2 AND started = ?3");
      if (!mine.with(found, session_, row.started).row()) found = 0;
    }
    if (found == 0) {
      to.add_job.with(row.id, row.uid, row.user, row.name, row.command, row.started, now.wall,
                      session_);
      if (!to.add_job.done()) return false;
      found = sqlite3_last_insert_rowid(file_.connection());
    }
    known = jobs_.emplace(key, found).first;
  }
  Statement& see = to.see_job;
  if (row.ended == 0) {
    see.with(known->second, row.user, row.name, now.wall, session_, row.lived_seconds,
             row.slurm_job);
  } else {
    see.with(known->second, row.user, row.name, row.ended, session_, row.lived_seconds,
             row.slurm_job, row.ended, row.exit.empty() ? "ended" : row.exit);
  }
  return see.done();
}

bool Database::trusts_clock(Moment now) {
  const double steady = seconds(now.steady - clock_.steady);
  const double wall = static_cast<double>(now.wall - clock_.wall);
  if (clock_.steady == Time{0} || std::abs(steady - wall) > kJump) steady_since_ = now.steady;
  clock_ = now;
  return now.steady - steady_since_ >= kTrustsClockAfter;
}

// Rows of earlier hours go; 0: none has to.
std::int64_t Database::horizon(Moment now) {
  const std::int64_t old = trusts_clock(now) ? now.wall / kHourSeconds - place_.days * 24 : 0;
  Statement size(file_,
                 "SELECT (SELECT page_count FROM pragma_page_count) - "
                 "(SELECT freelist_count FROM pragma_freelist_count), "
                 "(SELECT page_size FROM pragma_page_size), "
                 "coalesce((SELECT min(hour) FROM (SELECT min(hour) AS hour FROM bills UNION ALL "
                 "SELECT min(hour) FROM unmanaged)), (SELECT min(seen) / 3600 FROM jobs), 0)");
  if (!size.row()) return old;
  const auto used = static_cast<std::uint64_t>(size.integer(0) * size.integer(1));
  return used > place_.bytes ? std::max(old, size.integer(2) + 1) : old;
}

bool Database::tidy(Moment now) {
  if (statements_ == nullptr) return false;
  const std::int64_t before = horizon(now);
  if (before <= 0) return false;
  const auto remove = [&](const char* table, const char* key, const char* too_old) {
    Statement old(file_, fmt::format("DELETE FROM {0} WHERE ({1}) IN (SELECT {1} FROM {0} WHERE "
                                     "{2} LIMIT {3})",
                                     table, key, too_old, kMostRemoved));
    return old.with(before).done() ? sqlite3_changes(file_.connection()) : 0;
  };
  if (!file_.run("BEGIN IMMEDIATE")) return false;
  int removed = remove("bills", "hour, job, gpu", "hour < ?1");
  removed += remove("times", "hour, job, gpu, state, reason", "hour < ?1");
  removed += remove("unmanaged", "hour, uid, gpu", "hour < ?1");
  removed += remove("observed", "hour, gpu", "hour < ?1");
  removed += remove("events", "key", "unix_seconds < ?1 * 3600");
  // Behind its bills: a bill without its job is nobody's.
  if (removed == 0) removed = remove("jobs", "key", "seen < ?1 * 3600");
  if (!file_.run("COMMIT")) file_.run("ROLLBACK");
  return removed > 0;
}

std::string Database::report(const Query& query) {
  std::string why;
  if (!ready(why)) return unread(why);
  auto out = query.events ? past_events(file_, query, session_)
                          : history::report(file_, query, session_, steps_);
  if (out) return *out;
  const std::string what = file_.message();
  if (!file_.damaged()) return unread(what);
  if (!set_aside(what, why)) remark_ = why;
  return unread(what + "; a new history was begun");
}

}  // namespace switchyard::monitor::history
