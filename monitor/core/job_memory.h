// The memory of one job: its residency machine, and the tap that tells each change of its state.
//
// Threading: one thread, the monitor's.
#pragma once

#include <optional>

#include "monitor/core/events.h"
#include "monitor/policy/job_residency.h"

namespace switchyard::monitor {

class JobMemory {
 public:
  const residency::JobResidency* operator->() const { return &*machine_; }
  const residency::JobResidency& operator*() const { return *machine_; }

  residency::Step take(const residency::Input& input, Time now) {
    const residency::State before = machine_->state;
    const residency::Step step = machine_.take(input, now);
    if (machine_->state == before) return step;
    tap_.tell(change(now));
    // What moves next does so for another reason.
    if (machine_->state == residency::State::kResident) asked_by.reset();
    return step;
  }

  void tells(const Tap& tap, JobKey job) {
    tap_ = tap;
    job_ = job;
  }

  // The person who had it swapped out last, or in again.
  std::optional<Peer> asked_by;

 private:
  HistoryEvent change(Time now) const {
    using residency::Reason;
    using residency::State;
    const State to = machine_->state;
    const residency::Reasons why = machine_->wanted_out;
    const bool returns = to == State::kSwappingIn || to == State::kResident;
    const bool asked = returns ? !why.any() : why.has(Reason::kUser) || why.has(Reason::kPause);
    HistoryEvent out = event_of(to == State::kSwappingOut  ? EventKind::kLeaves
                                : to == State::kSwappedOut ? EventKind::kLeft
                                : to == State::kSwappingIn ? EventKind::kReturns
                                                           : EventKind::kIsBack,
                                job_, asked ? asked_by : std::nullopt, now);
    if (!returns) out.value = why.bits();
    return out;
  }

  residency::Machine machine_;
  Tap tap_;
  JobKey job_ = 0;
};

}  // namespace switchyard::monitor
