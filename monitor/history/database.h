// The history as a file of SQLite, history.db in the state folder.
//
// Concept. A table of jobs, and one of bills by hour, job and GPU, with a second one for seconds by
// state and reason. Unmanaged processes have bills by hour, user and GPU. Sums are added to in
// place, so a job that lives for weeks has a row for each hour and GPU. Its rows of this hour lie
// beside those of other jobs, so a write touches few pages. Events have a table, too
// (past_events.h).
//
// The file is in WAL mode: a reader never stops us, and what was written outlives this process. One
// monitor writes it; a lock beside it says so. A file that is damaged is renamed, and a new one is
// begun. A file of a newer version is left alone. One that can't be read now, for another program
// holds it or the disk is full, is tried again at each write and each question.
//
// A job whose monitor ended is continued by the monitor that finds it again. `session` tells which
// monitor wrote a job last: one without an end that is another session's is lost.
//
// Threading: the store's thread (store.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "monitor/history/backend.h"
#include "monitor/history/sqlite.h"
#include "switchyard/fd.h"

namespace switchyard::monitor::history {

struct Place {
  struct Gpu {
    std::string uuid, name;
    unsigned index = 0;
  };
  std::string folder;
  std::int64_t days = 90;            // that rows are kept
  std::uint64_t bytes = 256u << 20;  // of the file, at most
  std::vector<Gpu> gpus;             // in the monitor's order
};

class Database final : public Backend {
 public:
  static constexpr int kSchema = 1;
  // So many rows of a table are removed in one step.
  static constexpr int kMostRemoved = 500;
  // The clock is believed when it has not jumped for so long: what is too old depends on it.
  static constexpr Time kTrustsClockAfter = std::chrono::minutes(10);

  // Null: there is no history, because of `why`.
  static std::unique_ptr<Database> open(Place place, std::string& why);
  ~Database() override;

  bool write(const Rows& rows, Moment now, std::string& why) override;
  bool tidy(Moment now) override;
  std::string report(const Query& query) override;
  std::string remark() override { return std::exchange(remark_, {}); }

  // Of the last report (sqlite.h).
  std::int64_t steps() const { return steps_; }

 private:
  struct Statements;
  explicit Database(Place place);
  bool lock(std::string& why);
  bool ready(std::string& why);
  bool begin(std::string& why);
  bool make_schema(std::string& why);
  bool add_slurm_jobs();
  bool set_aside(const std::string& what, std::string& why);
  bool write_once(const Rows& rows, Moment now);
  bool write_rows(const Rows& rows, Moment now);
  bool write_job(JobKey key, const JobRow& row, Moment now);
  bool trusts_clock(Moment now);
  std::int64_t horizon(Moment now);
  std::string path() const { return place_.folder + "/history.db"; }

  Place place_;
  Fd lock_;
  Sqlite file_;
  std::unique_ptr<Statements> statements_;
  std::vector<std::int64_t> gpus_;       // rows of the table
  std::map<JobKey, std::int64_t> jobs_;  // likewise, of those that live
  std::int64_t session_ = 0;
  std::int64_t steps_ = 0;
  std::string remark_;
  Moment clock_;          // as of the last look
  Time steady_since_{0};  // the clock has not jumped since then
};

}  // namespace switchyard::monitor::history
