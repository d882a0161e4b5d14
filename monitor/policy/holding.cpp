// A high class beside a lower one: held by gates where there are no slices, and watched for
// leaving too little where there are.
#include <cmath>

#include "monitor/policy/look.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// The gaps between the kernels of one request are no reason to open.
constexpr Time kGap = microseconds(200);
constexpr Time kSoonest = microseconds(100);
constexpr Time kLatest = milliseconds(1);
constexpr Time kWhileResting = milliseconds(5);
// The minimum is given at least four times a second.
constexpr double kOwedOverNs = 250e6;

constexpr double kSmoothOverNs = 1e9;
constexpr double kGreedyAbove = 0.9;
constexpr double kModestBelow = 0.8;
constexpr Time kSampleEvery = milliseconds(20);

bool lower_active(const Tick& tick) {
  return any_rider(tick, [](const Rider& rider) { return !rider.high && rider.active; });
}

// Work that is queued behind a closed gate is not work on the GPU.
bool works(const Rider& rider) { return rider.state->at_work && !rider.state->closed; }

void note_high_work(const Tick& tick, HighState& high) {
  const bool now = any_rider(tick, [](const Rider& rider) { return rider.high && works(rider); });
  if (now) high.worked_at = tick.now;
  const bool works = now || (high.works && tick.now - high.worked_at < kGap);
  if (works && !high.works) high.works_since = tick.now;
  high.works = works;
}

// What the lower class must get of its minimum while the high one works without end. True: now.
bool repay(const Tick& tick, HighState& high, bool held_until_now) {
  const double minimum = std::clamp(tick.rules.minimum, 0.0, 0.5);
  high.owed_ns += (held_until_now ? minimum : minimum - 1) * tick.dt_ns;
  high.owed_ns = std::clamp(high.owed_ns, 0.0, kOwedOverNs);
  if (high.owed_ns <= 0) high.repaying = false;
  if (high.owed_ns >= minimum * kOwedOverNs && minimum > 0) high.repaying = true;
  return high.repaying;
}

}  // namespace

bool hold_for_high(Tick& tick) {
  HighState& high = tick.state.high;
  const bool high_there = any_rider(tick, [](const Rider& rider) { return rider.high; });
  if (!high_there || !lower_active(tick)) {
    high.works = false;
    high.owed_ns = 0;
    high.repaying = false;
    return false;
  }
  const bool held_until_now = high.works && !high.repaying;
  note_high_work(tick, high);
  const bool repaying = repay(tick, high, held_until_now);
  const bool hold = high.works && !repaying;
  for (const Rider& rider : tick.riders) {
    if (rider.high) {
      rider.plan->watch = true;
      if (!rider.state->at_work) rider.plan->wake = true;
    } else if (rider.view->gateable) {
      rider.arm(kHighSpacingUs);
      if (hold) rider.close(abi::kClosedByTurn);
    }
  }
  if (high.works) {
    // A long burst may be noticed to end a little later than a short one.
    tick.again_in(std::clamp((tick.now - high.works_since) / 8, kSoonest, kLatest));
  } else {
    tick.again_in(kWhileResting);
  }
  return hold;
}

void watch_the_greedy(Tick& tick) {
  HighState& high = tick.state.high;
  bool working = false;
  bool active = false;
  for (const Rider& rider : tick.riders) {
    if (!rider.high) continue;
    // A launch since the last look is no sign of being busy all the time: every service has one.
    working = working || (rider.view->numbered && rider.state->busy && !rider.state->closed);
    active = active || rider.active;
  }
  // One that waits for its CPU looks busy by its numbers, and its GPU idles all the same.
  if (!active || !lower_active(tick) || !waits_for_gpu(tick)) {
    high.busy = 0;
    high.greedy = false;
    return;
  }
  high.busy += (1 - std::exp(-tick.dt_ns / kSmoothOverNs)) * ((working ? 1 : 0) - high.busy);
  if (high.busy > kGreedyAbove) high.greedy = tick.rules.minimum > 0;
  if (high.busy < kModestBelow) high.greedy = false;
  for (const Rider& rider : tick.riders) {
    if (rider.high) rider.plan->watch = true;
  }
  tick.again_in(kSampleEvery);
}

}  // namespace switchyard::monitor::policy
