// The processes on the GPUs that are no clients: whose they are, what they have, and what each user
// had by them so far.
//
// Concept. NVML names them (nvml_sampler.h), and /proc tells the rest when one appears. Memory is
// NVML's figure. The share is NVML's sample of the process: the part of the time in which a kernel
// of it was resident. Kernels that wait for a time slice count as well. So the samples of all
// processes of a GPU may add up to more than 1; they are then divided by their sum. A share is
// always an estimate.
//
// Processes of jobs are strangers to a monitor that has just begun, until they join it again. One
// whose client has left is on its way to its end. So these are listed at once, but told and billed
// only when they are still there after some seconds.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/events.h"
#include "monitor/platform/line_bound.h"
#include "monitor/platform/process_about.h"

namespace switchyard::monitor {

class Unmanaged {
 public:
  struct OnGpu {
    std::uint64_t bytes = 0, peak_bytes = 0;
    std::optional<double> share = {};  // none: NVML has no samples
    Time since{0};
    Time bill_from{0};
    bool billed = false;
    bool told = false;  // its begin is in the journal
  };
  struct Process {
    ProcessAbout about;
    std::string command;  // empty: not read
    std::map<std::size_t, OnGpu> gpus;
  };
  // The part of one GPU that a user had.
  struct Sums {
    double gpu_seconds = 0;  // an estimate
    double byte_seconds = 0;
    double idle_byte_seconds = 0;  // of these, while the process had no work there
    std::uint64_t bytes = 0;       // now, of all of them
  };
  // The user of a process that has none is HistoryEvent::kNobody.
  using Users = std::map<uid_t, std::map<std::size_t, Sums>>;

  // Events of one user within a minute, at most: a process that comes ever again must not push the
  // others' out of the journal.
  static constexpr unsigned kEventsOfUser = 60;

  // So long after the begin of the monitor or the end of its client a process may be a job's.
  static constexpr Time kQuiet = std::chrono::seconds(3);

  explicit Unmanaged(Time begin) : quiet_until_(begin + kQuiet) {}

  void tells(Sink& sink) { tap_ = Tap(sink); }
  // Brings it up to the last answers of NVML. `leaves`: whether a process was a client.
  void follow(const GpuAccounts& gpus, const std::function<bool(pid_t)>& leaves, Time now);

  const std::map<pid_t, Process>& processes() const { return processes_; }
  const Users& users() const { return users_; }

 private:
  void add_up(Time now);
  Process& find(pid_t pid, Time now);
  void see(const GpuAccounts::Gpu& at, std::size_t gpu, const std::function<bool(pid_t)>& leaves,
           Time now);
  void begin_billing(Time now);
  void end(pid_t pid, const Process& process, Time now);
  void ends(pid_t pid, const Process& process, std::size_t gpu, const OnGpu& on, Time now);
  void read_commands();

  Time quiet_until_;
  Tap tap_;
  LineBound events_{kEventsOfUser};
  CommandLines commands_;
  std::map<pid_t, Process> processes_;
  Users users_;
  std::map<std::size_t, Time> seen_at_;  // the answer of NVML that was looked at
  Time added_at_{0};
};

inline uid_t user_of(const Unmanaged::Process& process) {
  return process.about.uid.value_or(HistoryEvent::kNobody);
}

// The part of the GPU's time that a process has, by NVML's samples of all of them.
std::optional<double> estimated_share(const std::vector<ProcessLoad>& loads, pid_t pid);

}  // namespace switchyard::monitor
