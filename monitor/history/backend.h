// What the store's thread (store.h) writes to and asks. The database is one; tests have others that
// stall and fail.
//
// Threading: the store's thread alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/history/rows.h"
#include "monitor/platform/time.h"

namespace switchyard::monitor::history {

enum class By : std::uint8_t { kJob, kUser, kGpu, kDay, kSlurmJob };

// What a person asks of the ledger.
struct Query {
  By by = By::kJob;
  std::int64_t since_hour = 0;  // of the wall clock, since 1970
  std::int64_t until_hour = 0;  // not included
  uid_t uid = 0;                // who asks
  bool sees_all = false;        // also command lines, and who used how much
  bool sees_commands = true;    // those of `uid`
  bool sees_bills = true;       // who used how much
  std::string job = {};         // this one alone, by id; empty: all
  // Of these alone, by id, as the text of a JSON list; empty: of all.
  std::string jobs = {};
  std::string users = {};              // likewise, jobs of these alone, by name or number
  std::vector<std::string> gpus = {};  // what they had of these, by index or UUID; empty: of all
  std::string slurm_job = {};          // by job: those of this Slurm job alone; empty: all
  bool brief = false;                  // by job: only what a table shows of each
  std::int64_t after = 0;              // the part that follows this row
  // Not bills but events, from this moment on, of the job with this id or name.
  bool events = false;
  double since_unix = 0;
};

struct Moment {
  Time steady{0};
  std::int64_t wall = 0;  // seconds since 1970
};

class Backend {
 public:
  virtual ~Backend() = default;
  // All of it or nothing. False: nothing, because of `why`; it may be tried again.
  virtual bool write(const Rows& rows, Moment now, std::string& why) = 0;
  // Removes a little of what is too old or too much. True: there is more.
  virtual bool tidy(Moment now) = 0;
  // A listing as JSON text.
  virtual std::string report(const Query& query) = 0;
  // A line for the log; empty: there is nothing to say.
  virtual std::string remark() { return {}; }
};

}  // namespace switchyard::monitor::history
