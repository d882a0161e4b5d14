// What the history keeps, as values: jobs, their bills by hour and GPU, what unmanaged processes of
// each user had, and hours of GPUs.
//
// Concept. Rows are differences since the last ones, so rows of one key are added up, in memory and
// in the database alike. Spans are of the steady clock. The wall clock only says to which hour a
// difference belongs, so a jump of it makes no span wrong.
//
// Threading: plain values.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "monitor/core/account.h"
#include "monitor/status/job_status.h"

namespace switchyard::monitor::history {

inline constexpr std::int64_t kHourSeconds = 3600;

// Of one job on one GPU, within one hour.
struct Bill {
  double gpu_seconds = 0;
  double estimated_seconds = 0;    // of these
  double memory_byte_seconds = 0;  // on the device
  double idle_byte_seconds = 0;    // of these, while the job had no work there
  double peak_bytes = 0;
  double copied_bytes = 0;   // by the job
  double swapped_bytes = 0;  // out and in
  double launches = 0;
  double refusals = 0;  // of memory
  std::map<status::Code, double> seconds = {};

  bool empty() const {
    return gpu_seconds == 0 && memory_byte_seconds == 0 && copied_bytes == 0 &&
           swapped_bytes == 0 && launches == 0 && refusals == 0 && seconds.empty();
  }
  void add(const Bill& other) {
    gpu_seconds += other.gpu_seconds;
    estimated_seconds += other.estimated_seconds;
    memory_byte_seconds += other.memory_byte_seconds;
    idle_byte_seconds += other.idle_byte_seconds;
    peak_bytes = std::max(peak_bytes, other.peak_bytes);
    copied_bytes += other.copied_bytes;
    swapped_bytes += other.swapped_bytes;
    launches += other.launches;
    refusals += other.refusals;
    for (const auto& [code, span] : other.seconds) seconds[code] += span;
  }
};

// As it is now; `lived_seconds` are a difference.
struct JobRow {
  std::string id = {}, name = {}, user = {}, command = {};
  std::string slurm_job = {};  // empty: it is none of Slurm
  uid_t uid = 0;
  bool found_again = false;  // it was another monitor's, which may have begun its bill
  std::int64_t started = 0;  // wall clock, in seconds
  std::int64_t ended = 0;    // 0: it lives
  std::string exit = {};     // how it ended (process_end.h), where that is known
  double lived_seconds = 0;
};

struct BillKey {
  std::int64_t hour = 0;  // of the wall clock, since 1970
  JobKey job = 0;
  std::size_t gpu = 0;                               // as the monitor numbers them
  auto operator<=>(const BillKey&) const = default;  // NOLINT(modernize-use-nullptr): a zero in it
};

// Of one user's unmanaged processes on one GPU, within one hour.
struct UnmanagedKey {
  std::int64_t hour = 0;
  uid_t uid = 0;
  std::size_t gpu = 0;
  auto operator<=>(const UnmanagedKey&) const = default;  // NOLINT(modernize-use-nullptr): as above
};
struct UnmanagedBill {
  std::string user = {};
  double gpu_seconds = 0;  // an estimate
  double memory_byte_seconds = 0;
  double idle_byte_seconds = 0;  // of these, while the process had no work there
  double peak_bytes = 0;         // of one process

  void add(UnmanagedBill later) {
    user = std::move(later.user);
    gpu_seconds += later.gpu_seconds;
    memory_byte_seconds += later.memory_byte_seconds;
    idle_byte_seconds += later.idle_byte_seconds;
    peak_bytes = std::max(peak_bytes, later.peak_bytes);
  }
};

// What happened, once (past_events.h).
struct EventRow {
  std::uint64_t number = 0;  // that of the monitor's journal
  double unix_seconds = 0;
  std::string job = {}, name = {};  // empty: it is about none
  std::string json = {};            // as a listing has it
};

struct Rows {
  // That wait for the disk: some megabytes. Events never take the room of bills.
  static constexpr std::size_t kMostEvents = 8192;

  std::map<JobKey, JobRow> jobs = {};
  std::map<BillKey, Bill> bills = {};
  std::map<UnmanagedKey, UnmanagedBill> unmanaged = {};
  std::map<std::pair<std::int64_t, std::size_t>, double> observed = {};  // seconds, by hour and GPU
  std::vector<EventRow> events = {};                                     // in their order

  bool empty() const { return size() == 0 && events.empty(); }
  // Rows that are added up.
  std::size_t size() const {
    return jobs.size() + bills.size() + unmanaged.size() + observed.size();
  }
  // Adds later ones. Beyond `most` rows no key is added, and no event beyond kMostEvents. Answers
  // how many were left away.
  std::size_t add(Rows later, std::size_t most);
};

}  // namespace switchyard::monitor::history
