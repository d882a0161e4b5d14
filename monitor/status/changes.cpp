#include "monitor/status/changes.h"

#include <cmath>

namespace switchyard::monitor::status {
namespace {

// What people see that waits, or is held, for another's sake.
struct Seen {
  Code code = {};
  By by = {};
};

bool differ(const Seen& before, const Status& after) {
  return before.code != after.code || before.by.job != after.by.job ||
         (after.by.job == 0 && before.by.uid != after.by.uid);
}

std::uint64_t value_of(const Status& status) {
  switch (status.code.reason) {
    case Reason::kRoom:
    case Reason::kAllocation:
      return status.bytes;
    case Reason::kMovePrepares:
    case Reason::kMove:
      return 1ull + status.goal;
    case Reason::kOldLibrary:
      return status.layout;
    case Reason::kLimit:
      return static_cast<std::uint64_t>(std::llround(status.limit * 1e6));
    default:
      return 0;
  }
}

HistoryEvent change(JobKey job, const Seen& before, const Status& after, Time now) {
  const bool gates = is_of_gates(before.code) && is_of_gates(after.code);
  HistoryEvent out = event_of(gates ? EventKind::kWork : EventKind::kState, job, now);
  out.by_job = static_cast<std::uint32_t>(after.by.job);
  if (after.by.job == 0 && after.by.uid) {
    out.uid = *after.by.uid;
    out.pid = after.by.pid;
  }
  if (after.pid != 0) out.pid = after.pid;
  out.value = value_of(after);
  out.from_state = static_cast<std::uint8_t>(before.code.state);
  out.from_reason = static_cast<std::uint8_t>(before.code.reason);
  out.state = static_cast<std::uint8_t>(after.code.state);
  out.reason = static_cast<std::uint8_t>(after.code.reason);
  return out;
}

// A job on one GPU has the state that it has there, unless it never used that GPU.
bool has_rows(const JobStatus& status) {
  return status.gpus.size() > 1 ||
         (status.gpus.size() == 1 && status.gpus[0].status.code != status.job.code);
}

const Status* row(const JobStatus* status, std::size_t gpu) {
  if (status == nullptr || !has_rows(*status)) return nullptr;
  for (const JobStatus::OnGpu& on : status->gpus) {
    if (on.gpu == gpu) return &on.status;
  }
  return nullptr;
}

Seen seen(const Status* status) {
  return status != nullptr ? Seen{status->code, status->by} : Seen{};
}

}  // namespace

bool is_of_gates(Code code) {
  switch (code.state) {
    case State::kRunning:
    case State::kIdle:
      return true;
    case State::kHeld:
      return code.reason != Reason::kCut;
    case State::kWaiting:
      return code.reason == Reason::kTurn;
    default:
      return false;
  }
}

void add_changes(JobKey job, const JobStatus* before, const JobStatus& after, Time now,
                 std::vector<HistoryEvent>& out) {
  const auto add = [&](const Status* was, const Status& is, const std::size_t* gpu) {
    const Seen earlier = seen(was);
    if (!differ(earlier, is)) return;
    out.push_back(change(job, earlier, is, now));
    if (gpu != nullptr) set_gpu(out.back(), *gpu);
  };
  add(before != nullptr ? &before->job : nullptr, after.job, nullptr);
  if (has_rows(after)) {
    for (const JobStatus::OnGpu& on : after.gpus) add(row(before, on.gpu), on.status, &on.gpu);
  }
  if (before == nullptr || !has_rows(*before)) return;
  for (const JobStatus::OnGpu& on : before->gpus) {
    if (row(&after, on.gpu) == nullptr) add(&on.status, Status{}, &on.gpu);
  }
}

}  // namespace switchyard::monitor::status
