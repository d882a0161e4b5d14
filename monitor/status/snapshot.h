// What the status of jobs follows from, copied out of the registry and the pages; and the statuses
// as of the last look.
//
// Threading: one thread, the monitor's.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/events.h"
#include "monitor/status/job_status.h"

namespace switchyard::monitor::status {

// The view of one of the job's processes.
SeenProcess see(const Client& client);
// The same of a job, but for the library that was refused.
SeenJob see(const Registry& registry, const Job& job);
Snapshot see_all(const Registry& registry, const GpuAccounts& gpus, Time now);

class Statuses {
 public:
  // `old_layouts`: by job, of processes that were refused. Changes since the last look are told to
  // the registry's tap.
  void look(const Registry& registry, const GpuAccounts& gpus,
            const std::map<JobKey, std::uint32_t>& old_layouts, Time now);
  // As of the last look. A job that came since then is idle.
  const JobStatus& of(const Job& job) const;
  // False: it came since then.
  bool knows(const Job& job) const { return all_.contains(job.key); }

 private:
  void tell_changes(const Tap& tap, const std::map<JobKey, JobStatus>& all, Time now);

  std::map<JobKey, JobStatus> all_;
  std::vector<HistoryEvent> changes_;  // of one look
};

}  // namespace switchyard::monitor::status
