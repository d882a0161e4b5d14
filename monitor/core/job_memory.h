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

  // `by`: the person whose command it is.
  residency::Step take(const residency::Input& input, Time now,
                       const std::optional<Peer>& by = std::nullopt) {
    if (by) asked_by_ = by;
    const residency::State before = machine_->state;
    const residency::Step step = machine_.take(input, now);
    const bool changed = machine_->state != before;
    if (changed) tap_.tell(change(now));
    // What moves next does so for another reason.
    const bool resident = machine_->state == residency::State::kResident;
    if (resident && (changed || !machine_->wanted_out.any())) asked_by_.reset();
    return step;
  }

  void tells(const Tap& tap, JobKey job) {
    tap_ = tap;
    job_ = job;
  }

  // The person who had it swapped out last, or in again.
  const std::optional<Peer>& asked_by() const { return asked_by_; }

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
                                job_, asked ? asked_by_ : std::nullopt, now);
    if (!returns) out.value = why.bits();
    return out;
  }

  residency::Machine machine_;
  std::optional<Peer> asked_by_;
  Tap tap_;
  JobKey job_ = 0;
};

}  // namespace switchyard::monitor
