// A client's seat in a group of its server: engine.h says what differs.
#include <time.h>

#include "client.h"
#include "engine.h"

namespace fakecuda {
namespace {

constexpr std::uint64_t kMostLagNs = 50'000 * kUs;  // as in engine.cpp
// A turn that is over ends with the step that is being spent; at least so much is.
constexpr std::uint64_t kLeastStepNs = kUs;

}  // namespace

// The server is there, so the group is its own. REQUIRES: locked.
bool Seat::is_of_server() const { return mps::trouble_locked() != CUDA_ERROR_MPS_RPC_FAILURE; }

std::uint64_t Seat::turn_ns() const {
  const std::uint64_t clock = engine_.clock_ns, since = group_.since_ns;
  return clock > since ? clock - since : 0;
}

void Seat::take_shared() {
  own_ns_ = std::max(own_ns_, monotonic_ns());
  {
    Locked locked(state_);
    if (!is_of_server()) return;
    ++state_.file().processes[state_.self()].seats[kind_];
    ++group_.seats;
    const bool wanted = group_.runnable.exchange(1) != 0;
    if (engine_.holder < 0) seize_locked();
    holding_ = engine_.holder == index_;
    if (holding_) return;
    if (!wanted) ++engine_.waiting;
  }
  wait_for_grant();
}

void Seat::give_up_shared() {
  Locked locked(state_);
  holding_ = false;
  std::uint32_t& mine = state_.file().processes[state_.self()].seats[kind_];
  if (!is_of_server() || mine == 0) return;
  --mine;
  if (--group_.seats > 0) return;
  if (group_.runnable.exchange(0) && engine_.holder != index_ && engine_.waiting) {
    --engine_.waiting;
  }
  pass_on_locked();
}

// Another group wants the engine, and the slice of this one is used up. True: it has it now.
bool Seat::pass_shared(std::uint64_t slice_ns) {
  if (engine_.waiting == 0 || turn_ns() < slice_ns) return false;
  Locked locked(state_);
  if (!is_of_server() || engine_.holder != index_ || turn_ns() < slice_ns) return false;
  const int to = next_group(index_, engine_.high_water, [&](int g) {
    return engine_.groups[g].in_use && engine_.groups[g].runnable;
  });
  if (to < 0) {
    engine_.waiting = 0;
    return false;
  }
  pass_locked(to);
  return true;
}

// The engine's clock is at least this seat's. The group is busy for as long as the clock moves.
void Seat::advance(std::uint64_t step_ns) {
  own_ns_ += step_ns;
  std::uint64_t clock = engine_.clock_ns;
  while (clock < own_ns_ && !engine_.clock_ns.compare_exchange_weak(clock, own_ns_)) {
  }
  if (clock < own_ns_) {
    group_.busy_ns.fetch_add(std::min(step_ns, own_ns_ - clock), std::memory_order_relaxed);
  }
}

void Seat::spend_shared(std::uint64_t left_ns) {
  while (left_ns > 0 && mps::trouble() == CUDA_SUCCESS && mps::server_lives()) {
    if (engine_.holder != index_) {
      wait_for_grant();
      own_ns_ = std::max(own_ns_, group_.since_ns.load());
      continue;
    }
    const std::uint64_t slice_ns = group_.slice_us.load(std::memory_order_relaxed) * kUs;
    const std::uint64_t used_ns = turn_ns();
    std::uint64_t step = std::min(left_ns, kLeadNs);
    if (engine_.waiting > 0) {
      step = std::min(step, std::max(kLeastStepNs, slice_ns > used_ns ? slice_ns - used_ns : 0));
    }
    advance(step);
    left_ns -= step;
    std::uint64_t now = monotonic_ns();
    if (own_ns_ + kMostLagNs < now) own_ns_ = now - kMostLagNs;
    while (own_ns_ > now + kLeadNs) {
      const timespec nap{0, static_cast<long>(own_ns_ - now)};
      nanosleep(&nap, nullptr);
      now = monotonic_ns();
    }
    pass_shared(slice_ns);
  }
}

}  // namespace fakecuda
