#include "engine.h"

#include <time.h>

#include "mps/client.h"

namespace fakecuda {
namespace {

// A machine too slow to keep pace catches up this much and forgets the rest.
constexpr std::uint64_t kMostLagNs = 50'000 * kUs;
constexpr std::uint64_t kLookForTheDeadNs = 20'000 * kUs;
// A holder that doesn't move the clock for so long is stopped; a GPU wouldn't wait for it.
constexpr std::uint64_t kStoppedNs = 500'000 * kUs;

}  // namespace

Seat::Seat(State& state, int gpu, Engine engine, int group)
    : state_(state),
      kind_(engine),
      engine_(state.gpu(gpu).engines[engine]),
      group_(engine_.groups[group]),
      index_(group),
      shared_(mps::attached()) {}

// Of an engine that nobody has. REQUIRES: locked.
void Seat::seize_locked() {
  engine_.holder = index_;
  const std::uint64_t now = monotonic_ns();
  if (engine_.clock_ns < now) engine_.clock_ns = now;
  const int resident = engine_.resident;
  if (resident >= 0 && resident != index_) {
    const std::uint64_t cost =
        switch_cost_ns(kind_, engine_.groups[resident].slice_us, group_.slice_us, false);
    engine_.clock_ns += cost;
    engine_.switch_ns += cost;
    ++engine_.switches;
  }
  engine_.resident = index_;
  group_.since_ns = engine_.clock_ns.load();
  holding_ = true;
  turn_.used_ns = 0;
}

void Seat::take() {
  if (shared_) return take_shared();
  {
    Locked locked(state_);
    group_.runnable = 1;
    if (engine_.holder < 0) return seize_locked();
    ++engine_.waiting;
  }
  wait_for_grant();
}

// Takes the engine from a holder that is dead or stopped. False: it is neither.
bool Seat::take_over() {
  Locked locked(state_);
  const int holder = engine_.holder;
  if (holder == index_) return true;
  if (!group_.runnable.exchange(1)) ++engine_.waiting;  // taken over while stopped: ask anew
  if (holder >= 0 && engine_.groups[holder].in_use &&
      state_.alive(engine_.groups[holder].process)) {
    if (engine_.clock_ns + kStoppedNs > monotonic_ns()) return false;
    engine_.groups[holder].runnable = 0;  // it asks anew once it goes on
    engine_.clock_ns = monotonic_ns();
  }
  state_.reap_locked();
  if (engine_.holder >= 0 && engine_.holder != holder) return false;
  engine_.holder = index_;
  engine_.resident = index_;
  group_.since_ns = engine_.clock_ns.load();
  if (engine_.waiting) --engine_.waiting;
  return true;
}

void Seat::wait_for_grant() {
  for (;;) {
    const std::uint32_t seen = group_.granted.load();
    if (engine_.holder == index_) break;
    futex_wait(group_.granted, seen, kLookForTheDeadNs);
    if (engine_.holder == index_) break;
    if (shared_ && (mps::trouble() != CUDA_SUCCESS || !mps::server_lives())) return;
    if (group_.granted.load() != seen) continue;
    if (take_over()) break;
  }
  holding_ = true;
  turn_.used_ns = 0;
}

// REQUIRES: locked, holding, `to` is runnable.
void Seat::pass_locked(int to) {
  GroupEntry& next = engine_.groups[to];
  const std::uint64_t cost = switch_cost_ns(kind_, group_.slice_us, next.slice_us, true);
  engine_.clock_ns += cost;
  engine_.switch_ns += cost;
  ++engine_.switches;
  engine_.resident = to;
  engine_.holder = to;
  std::uint32_t waiting = 0;
  for (int g = 0; g < engine_.high_water; ++g) {
    waiting += g != to && engine_.groups[g].in_use && engine_.groups[g].runnable;
  }
  engine_.waiting = waiting;
  next.since_ns = engine_.clock_ns.load();
  next.granted.fetch_add(1);
  futex_wake(next.granted);
  holding_ = false;
}

void Seat::give_up() {
  if (shared_) return give_up_shared();
  Locked locked(state_);
  holding_ = false;
  group_.runnable = 0;
  pass_on_locked();
}

// To whoever wants the engine, if this group has it. REQUIRES: locked.
void Seat::pass_on_locked() {
  if (engine_.holder != index_) return;
  const int to = next_group(index_, engine_.high_water, [&](int g) {
    return engine_.groups[g].in_use && engine_.groups[g].runnable;
  });
  if (to >= 0) {
    pass_locked(to);
  } else {
    engine_.holder = -1;
    engine_.waiting = 0;
  }
}

void Seat::spend(std::uint64_t left_ns) {
  if (shared_) return spend_shared(left_ns);
  while (left_ns > 0) {
    if (engine_.holder != index_) take();  // taken over while this process was stopped
    turn_.slice_ns = group_.slice_us.load(std::memory_order_relaxed) * kUs;
    std::uint64_t step = run_for(turn_, left_ns);
    if (step > kLeadNs) step = kLeadNs;  // look up now and then: slices change, others arrive
    engine_.clock_ns.fetch_add(step, std::memory_order_relaxed);
    group_.busy_ns.fetch_add(step, std::memory_order_relaxed);
    left_ns -= step;
    keep_pace();
    if (!used_up(turn_, step, engine_.waiting.load() > 0)) continue;
    int to = -1;
    {
      Locked locked(state_);
      to = next_group(index_, engine_.high_water, [&](int g) {
        return engine_.groups[g].in_use && engine_.groups[g].runnable;
      });
      if (to >= 0) {
        pass_locked(to);
      } else {
        engine_.waiting = 0;
      }
    }
    if (to >= 0) wait_for_grant();
  }
}

void Seat::keep_pace() {
  const std::uint64_t clock = engine_.clock_ns.load(std::memory_order_relaxed);
  std::uint64_t now = monotonic_ns();
  if (clock + kMostLagNs < now) {
    engine_.clock_ns.store(now - kMostLagNs, std::memory_order_relaxed);
    return;
  }
  if (clock <= now + kLeadNs) return;
  while (now < clock) {
    const std::uint64_t ahead = clock - now;
    const timespec nap{static_cast<time_t>(ahead / 1'000'000'000),
                       static_cast<long>(ahead % 1'000'000'000)};
    nanosleep(&nap, nullptr);
    now = monotonic_ns();
  }
}

}  // namespace fakecuda
