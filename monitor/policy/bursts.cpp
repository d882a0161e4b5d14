// Whether the high class waits for the GPU or for its CPU, and what follows for the one that
// yields.
//
// A service that launches hundreds of small kernels and then waits once leaves the GPU idle between
// them. With the shortest slice the one that yields comes and goes in each of these gaps, and
// hardly gets on. A longer slice makes a wait of the service longer by half of it, on average. So
// it may be as long as that adds at most 1.5 % to what the CPU does between two waits anyway:
//
//     slice = 3 % of the CPU's part of a burst        at least 20 us, at most the driver's own
//
// This holds while the GPU has caught up when the CPU begins to wait. Then a wait takes as long as
// the switch and the rest of the other's slice. A client whose waits are longer has work left on
// the GPU, is bound by it, and has the shortest slice beside it. So has one of which nothing is
// known. A client that turns out to be bound by the GPU with a longer slice is believed so for a
// while, longer each time.
#include <cmath>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr double kPartOfCpu = 0.03;
// Of a client that works and has not waited for so long nothing is known any more.
constexpr Time kForgetAfter = seconds(5);
constexpr double kNewest = 0.5;  // weight of the last window
// To switch to the service, and what little it has left to do then.
constexpr double kSwitchNs = 400e3;
constexpr double kCaughtUp = 0.75;  // of that and the slice: bound by the GPU no longer
// A longer slice that makes a service wait for the GPU does so at once.
constexpr Time kSoonAfterChange = seconds(1);
constexpr Time kFirstDistrust = seconds(4);
constexpr Time kLongestDistrust = seconds(64);
// A change of a slice is a round trip to the firmware. So slices go by steps of two, stay while
// what is wanted is near, and grow at most so often.
constexpr double kNear = 1.7;
constexpr Time kKeptFor = milliseconds(250);
constexpr double kFirstStepUs = 40;  // below it the shortest is as good

double slice_us(const HighState& high) {
  return high.yield_us == 0 ? kYieldShort.compute_us : high.yield_us;
}

void begin_window(const Rider& rider, Time now) {
  BurstState& state = rider.state->bursts;
  const Bursts& seen = rider.view->bursts;
  state.count = seen.count;
  state.waited_ns = seen.waited_ns;
  state.burst_ns = seen.burst_ns;
  state.since = now;
}

// Whether the client is bound by the GPU, by the mean wait of its last window.
void classify(BurstState& state, double wait_ns, const Tick& tick) {
  const HighState& high = tick.state.high;
  const Time now = tick.now;
  const double caught_up = caught_up_ns(tick);
  if (!state.gpu_bound && wait_ns > caught_up) {
    state.gpu_bound = true;
    // While waits are foreseen it is not in force, and margin.cpp judges by itself.
    const bool by_us =
        high.yield_us != 0 && high.foreseen_us == 0 && now - high.grew_at < kSoonAfterChange;
    state.distrust =
        by_us ? std::clamp(2 * state.distrust, kFirstDistrust, kLongestDistrust) : Time{0};
    state.bound_since = now;
  } else if (state.gpu_bound && wait_ns < kCaughtUp * caught_up &&
             now - state.bound_since >= state.distrust) {
    state.gpu_bound = false;
  }
}

void close_window(const Rider& rider, const Tick& tick) {
  BurstState& state = rider.state->bursts;
  const Bursts& seen = rider.view->bursts;
  const Time now = tick.now;
  const std::uint32_t count = seen.count - state.count;
  const std::uint64_t waited = seen.waited_ns - state.waited_ns;
  const std::uint64_t burst = seen.burst_ns - state.burst_ns;
  const auto most = static_cast<std::uint64_t>((now - state.since + kForgetAfter).count()) * 64;
  // A client can say anything: sums that fall, or more time than its threads may have had.
  if (waited <= burst && burst <= most) {
    const double cpu = static_cast<double>(burst - waited) / count;
    state.cpu_ns = state.cpu_ns < 0 ? cpu : state.cpu_ns + kNewest * (cpu - state.cpu_ns);
    state.known_at = now;
    classify(state, static_cast<double>(waited) / count, tick);
  }
  begin_window(rider, now);
}

void follow(const Rider& rider, const Tick& tick) {
  const Time now = tick.now;
  BurstState& state = rider.state->bursts;
  const Bursts& seen = rider.view->bursts;
  // Bursts seen with another slice say nothing of this one.
  const HighState& high = tick.state.high;
  if (state.since == Time{0} || state.since < std::max(high.yield_since, high.foreseen_since)) {
    if (state.since == Time{0}) {
      state.known_at = now;
      state.untimed = true;
    }
    begin_window(rider, now);
    return;
  }
  const std::uint32_t count = seen.count - state.count;
  if (state.untimed && count > 0) {
    state.untimed = false;
    begin_window(rider, now);
    return;
  }
  if (is_enough(now - state.since, count)) {
    close_window(rider, tick);
  } else if (rider.active && now - state.known_at >= kForgetAfter) {
    state.cpu_ns = -1;
  }
}

// In microseconds.
double allowed_us(const BurstState& state) {
  return state.cpu_ns < 0 || state.gpu_bound ? 0 : kPartOfCpu * state.cpu_ns / 1e3;
}

// What the most sensitive of the active ones allows.
double allowed_us(const Tick& tick) {
  double least = kYieldLongestUs;
  for (const Rider& rider : tick.riders) {
    if (!rider.high || !rider.active) continue;
    least = std::min(least, allowed_us(rider.state->bursts));
  }
  return least;
}

// 0: the shortest.
std::uint32_t stepped(double us) {
  if (us < kFirstStepUs) return 0;
  const double steps = std::round(std::log2(us / kFirstStepUs));
  return std::min(kYieldLongestUs, static_cast<std::uint32_t>(kFirstStepUs * std::exp2(steps)));
}

void choose_slice(HighState& high, double allowed, Time now) {
  const double now_us = slice_us(high);
  if (allowed < now_us * kNear && allowed * kNear > now_us) return;
  // A client that begins to wait for the GPU is protected at once.
  if (allowed > now_us && now - high.yield_since < kKeptFor) return;
  const std::uint32_t wanted = stepped(allowed);
  if (wanted == high.yield_us) return;
  if (wanted > high.yield_us) high.grew_at = now;
  high.yield_us = wanted;
  high.yield_since = now;
}

}  // namespace

void follow_bursts(Tick& tick) {
  HighState& high = tick.state.high;
  const bool beside = any_rider(tick, [](const Rider& r) { return !r.high && r.active; });
  const bool works = any_rider(tick, [](const Rider& r) { return r.high && r.active; });
  for (const Rider& rider : tick.riders) {
    if (!rider.high || !beside) {
      rider.state->bursts.since = Time{0};
      continue;
    }
    rider.plan->time_bursts = true;
    follow(rider, tick);
  }
  // While the whole high class sleeps, what it needed last holds on.
  if (!beside || !works) return;
  tick.again_in(kBurstWindow);
  choose_slice(high, allowed_us(tick), tick.now);
}

// Alone a client says little of how it is beside others.
void forget_windows(State& state) {
  for (auto& [id, client] : state.clients) client.bursts.since = Time{0};
}

double caught_up_ns(const Tick& tick) {
  const double us = tick.rules.slices ? slice_us(tick.state.high) : abi::kDefaultSliceUs;
  return kSwitchNs * active_highs(tick) + us * 1e3;
}

bool waits_for_gpu(const Tick& tick) {
  return tick.state.high.yield_us == 0 && tick.state.high.foreseen_us == 0;
}

namespace {

const char* why_not_foreseen(Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::kNone:
      return nullptr;
    case Obstacle::kNotWanted:
      return "the policy does not ask for it, or gates are not in use";
    case Obstacle::kNothingBelow:
      return "no lower job computes, or one can't be held";
    case Obstacle::kUnknown:
      return "too little is known of a high job's waits";
    case Obstacle::kBoundByGpu:
      return "a high job waits for the GPU, however early the gate closes";
    case Obstacle::kShortBursts:
      return "a high job's CPU works too briefly between two waits";
    case Obstacle::kBarred:
      return "it did not help, and is tried again later";
    case Obstacle::kIrregular:
      return "a high job's launches don't foretell its waits";
  }
  return nullptr;
}

const char* yield_reason(const HighState& high) {
  if (high.given_us == 0) return "no job yields to a high one";
  if (high.greedy) return "the high jobs never rest, so the others get the minimum";
  if (high.foreseen_us != 0) {
    return "the high job's waits are foreseen by its launches, and the low job's gate closes "
           "before each";
  }
  if (high.yield_us == 0) {
    return "a high job waits for the GPU, or does not say for what it waits";
  }
  return "the high jobs wait for their CPU, and the GPU is idle meanwhile";
}

}  // namespace

Yielding yielding(const HighState& high) {
  const char* const why = high.given_us == 0 ? nullptr : why_not_foreseen(high.obstacle);
  return {high.given_us, yield_reason(high), why};
}

const char* waits_for(const BurstState& bursts) {
  if (bursts.since == Time{0} || bursts.cpu_ns < 0) return nullptr;
  return allowed_us(bursts) < kFirstStepUs ? "gpu" : "cpu";
}

Slices yielding_slices(const Tick& tick) {
  const std::uint32_t us = tick.state.high.yield_us;
  return us == 0 ? kYieldShort : Slices{us, kYieldShort.copy_us};
}

}  // namespace switchyard::monitor::policy
