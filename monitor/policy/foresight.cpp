// Closes the low job's gate before the high job's CPU waits.
//
// While the CPU of an eager server works, it does not wait for the GPU. The low job may have slices
// of milliseconds, which lose next to nothing to switches. The GPU must be the high job's own when
// its CPU begins to wait. So the gate closes a *margin* before that:
//
//     high's CPU   launch launch launch ............ launch | wait       | launch launch ...
//     low's gate   open ........................ | closed                | open ............
//                                                |< margin >|
//
//     phase      closed   leaves it when
//     off        no       the high job's waits can be foreseen             -> working
//     working    no       the launches reach a span                        -> awaiting
//                         a wait begins, unforeseen                        -> waiting
//     awaiting   yes      a wait begins                                    -> waiting
//                         the launches pass the span                       -> working
//                         that takes twice as long as it should            -> late
//     late       no       a wait begins                                    -> waiting
//                         the launches pass the span                       -> working
//     waiting    yes      the wait has ended                               -> working, awaiting
//                         it takes longer than a client may be kept out    -> given up
//     given up   no       a wait has ended                                 -> working, awaiting
//     any                 the waits of one of the high jobs can't be
//                         foreseen, or a gate can't be closed              -> off
//                         it does not help: the high job waits for the GPU
//                         all the same, or the low job is hardly let in    -> off, for a while
//
// Each high job that works has a phase of its own; while one of them says closed, every lower gate
// is. Several lower jobs take turns while the gates are open (turns.cpp). A burst with few launches
// is behind the closed gate as a whole. So a server that replays a graph for each token has the GPU
// to itself from the first token to the last.
#include <algorithm>
#include <cmath>
#include <optional>

#include "monitor/policy/look.h"
#include "monitor/policy/wait_history.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;

using Phase = Foresight::Phase;

constexpr double kTrusted = 0.75;
constexpr double kDistrusted = 0.5;
// Below it a burst is hardly longer than the low job takes to leave the GPU.
constexpr double kLeastBurstNs = 1e6;
// A server that has had only short bursts for so long does something else now.
constexpr double kStaleNs = 600e6;
constexpr Time kFirstBar = std::chrono::seconds(4);
constexpr Time kLongestBar = std::chrono::seconds(64);
constexpr Time kHasHelped = std::chrono::seconds(16);
constexpr double kShutOut = 0.95;  // of the time
constexpr double kHopeless = 0.3;  // of the waits
constexpr double kNewestWait = 0.125;
constexpr double kSmoothOverNs = 1e9;
constexpr Time kLongestAwait = milliseconds(1);
constexpr Time kLongestWait = milliseconds(20);
constexpr double kQueuedLaunches = 500;  // of a thousand that a queue has room for
constexpr double kShortestLongUs = 1000;
constexpr double kLongestLongUs = 8000;
constexpr double kNear = 1.5;  // a slice stays while what is wanted is near

bool on(const Foresight& foresight) { return foresight.phase != Phase::kOff; }

bool closed(const Foresight& foresight) {
  return foresight.phase == Phase::kAwaiting || foresight.phase == Phase::kWaiting;
}

// Somebody works at high and somebody below, and all who do below can be held.
bool can_close(const Tick& tick) {
  const auto computes_below = [&tick](const Rider& rider) {
    return active_low(rider) && computes(rider, tick.now);
  };
  return any_rider(tick, active_high) && any_rider(tick, computes_below) && !one_is_not_held(tick);
}

// Where it doesn't help, it is tried again more and more rarely.
void judge(Foresight& foresight, const Tick& tick) {
  if (!on(foresight)) return;
  const double part = 1 - std::exp(-tick.dt_ns / kSmoothOverNs);
  foresight.closed += part * ((closed(foresight) ? 1 : 0) - foresight.closed);
  if (tick.now - foresight.began_at >= kHasHelped) foresight.barred_for = Time{0};
  // A client that does something else by now was not made to wait by this.
  const double changed = foresight.margin.burst_ns / foresight.began_burst_ns;
  const bool bound = foresight.margin.gpu_bound && changed > 0.5 && changed < 2;
  if (!bound && foresight.given_up < kHopeless && foresight.closed < kShutOut) return;
  foresight.barred_for = std::clamp(2 * foresight.barred_for, kFirstBar, kLongestBar);
  foresight.barred_until = tick.now + foresight.barred_for;
}

void observe_high(const Rider& rider, const Tick& tick) {
  Foresight& foresight = rider.state->foresight;
  const Bursts& seen = rider.view->bursts;
  const std::uint32_t fresh = learn(foresight.history, seen, usual_launches(foresight.margin));
  follow_long_bursts(foresight.margin, seen, fresh, on(foresight), tick);
  judge(foresight, tick);
}

Obstacle obstacle_of(const Rider& rider, const Tick& tick) {
  const Foresight& foresight = rider.state->foresight;
  const Margin& margin = foresight.margin;
  if (rider.state->bursts.cpu_ns < 0 || margin.burst_ns < 0) return Obstacle::kUnknown;
  if (margin.gpu_bound) return Obstacle::kBoundByGpu;
  if (tick.now < foresight.barred_until) return Obstacle::kBarred;
  if (margin.short_ns >= kStaleNs) return Obstacle::kShortBursts;
  if (!on(foresight) && margin.burst_ns < kLeastBurstNs) return Obstacle::kShortBursts;
  const double trusted = on(foresight) ? kDistrusted : kTrusted;
  return trust(foresight.history) >= trusted ? Obstacle::kNone : Obstacle::kIrregular;
}

// The first one of what stands in the way.
Obstacle obstacle(const Tick& tick) {
  if (!tick.rules.foresee || !tick.rules.gates || tick.rules.kind == Kind::kExclusive) {
    return Obstacle::kNotWanted;
  }
  if (!can_close(tick)) return Obstacle::kNothingBelow;
  for (const Rider& rider : tick.riders) {
    if (active_high(rider)) observe_high(rider, tick);
  }
  for (const Rider& rider : tick.riders) {
    if (!active_high(rider)) continue;
    const Obstacle found = obstacle_of(rider, tick);
    if (found != Obstacle::kNone) return found;
  }
  return Obstacle::kNone;
}

// As long as may be. Until the gate closes no client waits for the GPU, and each switch costs the
// low job more than the high one gains. But what the high job launches meanwhile must fit its
// queue.
double slice_us(const Margin& margin) {
  return std::clamp(kQueuedLaunches * margin.launch_ns / 1e3, kShortestLongUs, kLongestLongUs);
}

void choose_slice(Tick& tick) {
  double us = kLongestLongUs;
  for (const Rider& rider : tick.riders) {
    if (active_high(rider)) us = std::min(us, slice_us(rider.state->foresight.margin));
  }
  std::uint32_t& now_us = tick.state.high.foreseen_us;
  const bool near = us < now_us * kNear && us * kNear > now_us;
  if (!near) now_us = static_cast<std::uint32_t>(us);
}

void enter(Foresight& foresight, Phase phase, Time now) {
  foresight.phase = phase;
  foresight.since = now;
}

void start(Foresight& foresight, const Bursts& seen, Time now) {
  foresight.began_at = now;
  foresight.began_burst_ns = foresight.margin.burst_ns;
  foresight.bursts = seen.count;
  try_margins(foresight.margin);
  foresight.closed = foresight.given_up = 0;
  enter(foresight, Phase::kWorking, now);
}

// A wait has ended, or the launches have passed a span.
void work_on(Foresight& foresight, const std::optional<Span>& span, std::uint32_t launched,
             Time now) {
  const bool awaits = foresight.phase == Phase::kAwaiting || foresight.phase == Phase::kLate;
  if (!span || launched < span->from) {
    if (foresight.phase != Phase::kWorking) enter(foresight, Phase::kWorking, now);
  } else if (!awaits || foresight.span_to != span->to) {
    foresight.span_to = span->to;
    foresight.closed_ns = (span->to - span->from) * foresight.margin.launch_ns;
    enter(foresight, Phase::kAwaiting, now);
  }
}

Time longest(const Foresight& foresight) {
  if (foresight.phase == Phase::kWaiting) return kLongestWait;
  return kLongestAwait + Time(static_cast<Time::rep>(2 * foresight.closed_ns));
}

void note_end(Foresight& foresight, Time now) {
  const double given_up = foresight.phase == Phase::kGivenUp ? 1 : 0;
  foresight.given_up += kNewestWait * (given_up - foresight.given_up);
  enter(foresight, Phase::kWorking, now);
}

void follow(Foresight& foresight, const std::optional<Span>& span, const Bursts& seen, Time now) {
  if (seen.count != foresight.bursts) note_end(foresight, now);
  foresight.bursts = seen.count;
  if (foresight.phase == Phase::kGivenUp) return;
  if (seen.waiting) {
    if (foresight.phase != Phase::kWaiting) enter(foresight, Phase::kWaiting, now);
  } else {
    work_on(foresight, span, seen.launched, now);
  }
  if (closed(foresight) && now - foresight.since >= longest(foresight)) {
    const bool waits = foresight.phase == Phase::kWaiting;
    enter(foresight, waits ? Phase::kGivenUp : Phase::kLate, now);
  }
}

// True: the gates are closed for this one.
bool follow_high(const Rider& rider, Tick& tick) {
  Foresight& foresight = rider.state->foresight;
  const Bursts& seen = rider.view->bursts;
  const auto span = next_span(foresight.history, seen.launched, launches_now(foresight.margin));
  follow(foresight, span, seen, tick.now);
  ClientPlan& plan = *rider.plan;
  plan.tell_waits = true;
  plan.wait_foreseen = closed(foresight);
  if (span) plan.ring_after = seen.launched >= span->from ? span->to : span->from;
  if (closed(foresight)) tick.again_at(foresight.since + longest(foresight));
  return closed(foresight);
}

void hold_lower(const Tick& tick, bool close) {
  for (const Rider& rider : tick.riders) {
    if (rider.high || !rider.view->gateable || !computes(rider, tick.now)) continue;
    rider.arm(kHighSpacingUs);
    if (close) rider.close(abi::kClosedByTurn);
  }
}

void stop(Tick& tick) {
  HighState& high = tick.state.high;
  for (auto& [id, client] : tick.state.clients) client.foresight.phase = Phase::kOff;
  if (high.foreseen_us != 0) high.foreseen_since = tick.now;
  high.foreseen_us = 0;
}

}  // namespace

Foreseen foresee_waits(Tick& tick) {
  HighState& high = tick.state.high;
  high.obstacle = obstacle(tick);
  if (high.obstacle != Obstacle::kNone) {
    stop(tick);
    return Foreseen::kNot;
  }
  if (high.foreseen_us == 0) high.foreseen_since = tick.now;
  high.greedy = false;
  high.busy = 0;
  choose_slice(tick);
  bool close = false;
  for (const Rider& rider : tick.riders) {
    if (!active_high(rider)) continue;
    Foresight& foresight = rider.state->foresight;
    if (!on(foresight)) start(foresight, rider.view->bursts, tick.now);
    close = follow_high(rider, tick) || close;
  }
  hold_lower(tick, close);
  return close ? Foreseen::kClosed : Foreseen::kOpen;
}

}  // namespace switchyard::monitor::policy
