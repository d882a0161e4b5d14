// Closes the low job's gate before the high job's CPU waits.
//
// While the CPU of an eager server works, nobody waits for the GPU: the low job may have slices of
// milliseconds, which lose next to nothing to switches. What matters is that the GPU is the high
// job's own when its CPU begins to wait. So the gate closes a *margin* before that:
//
//     high's CPU   launch launch launch ............ launch | wait       | launch launch ...
//     low's gate   open ........................ | closed                | open ............
//                                                |< margin >|
//
// The margin is what the low job's accepted work and its slice take to drain, and what the high job
// has queued meanwhile takes to run. It is steered by the waits: it grows by what they are too
// long, and shrinks by a part while they are short.
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
//     any                 waits can't be foreseen, two high jobs work,
//                         or not just one client yields                    -> off
//                         it does not help: the high job waits for the GPU
//                         all the same, or the low job is hardly let in    -> off, for a while
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
constexpr double kLeastCpuNs = 1e6;
constexpr double kFirstMarginNs = 1.2e6;  // and at most
constexpr double kFirstMargin = 0.5;      // of what the CPU does
constexpr double kLeastMarginNs = 100e3;
constexpr double kShrinks = 0.95;    // at each window
constexpr double kAllowedNs = 20e3;  // of a wait, beyond what is its own,
constexpr double kAllowed = 0.005;   // and that part of what the CPU does
constexpr double kTried = 3;         // times the margin, to find what no margin takes away,
constexpr Time kTryAgain = std::chrono::seconds(8);  // so often
constexpr Time kFirstBar = std::chrono::seconds(4);
constexpr Time kLongestBar = std::chrono::seconds(64);
constexpr Time kHasHelped = std::chrono::seconds(16);
constexpr double kShutOut = 0.9;  // of the time
constexpr double kSmoothOverNs = 1e9;
constexpr Time kLongestAwait = milliseconds(1);
constexpr Time kLongestWait = milliseconds(20);
constexpr double kQueuedLaunches = 500;  // of a thousand that a queue has room for
constexpr double kShortestLongUs = 1000;
constexpr double kLongestLongUs = 8000;
constexpr double kNear = 1.5;  // a slice stays while what is wanted is near

struct Pair {
  const Rider* high = nullptr;
  const Rider* low = nullptr;
};

// One high client that works beside one that yields, whose gate can be closed.
std::optional<Pair> pair_of(const Tick& tick) {
  Pair pair;
  for (const Rider& rider : tick.riders) {
    if (!rider.active) continue;
    const Rider*& place = rider.high ? pair.high : pair.low;
    if (place != nullptr) return std::nullopt;
    place = &rider;
  }
  if (pair.high == nullptr || pair.low == nullptr || !pair.low->view->gateable) return std::nullopt;
  return pair;
}

double most_margin_ns(double cpu_ns) { return std::max(kLeastMarginNs, kMostClosed * cpu_ns); }

double tried_margin_ns(const Foresight& foresight, double cpu_ns) {
  return std::min(most_margin_ns(cpu_ns), kTried * foresight.margin_ns);
}

std::uint32_t in_launches(double ns, const Foresight& foresight) {
  if (foresight.launch_ns <= 0) return 0;
  const double launches = std::ceil(ns / foresight.launch_ns);
  return static_cast<std::uint32_t>(std::clamp(launches, 1.0, 65'535.0));
}

bool on(const Foresight& foresight) { return foresight.phase != Phase::kOff; }

bool closed(const Foresight& foresight) {
  return foresight.phase == Phase::kAwaiting || foresight.phase == Phase::kWaiting;
}

bool can_foresee(const Foresight& foresight, const BurstState& bursts, const Tick& tick) {
  const double cpu_ns = (on(foresight) ? 0.7 : 1) * kLeastCpuNs;
  const double trusted = on(foresight) ? kDistrusted : kTrusted;
  return tick.state.high.yield_us != 0 && bursts.cpu_ns >= cpu_ns && foresight.launch_ns > 0 &&
         tick.now >= foresight.barred_until && trust(foresight.history) >= trusted;
}

// Where it doesn't help, it is tried again more and more rarely.
void judge(Foresight& foresight, const BurstState& bursts, const Tick& tick) {
  if (!on(foresight)) return;
  const double part = 1 - std::exp(-tick.dt_ns / kSmoothOverNs);
  foresight.closed += part * ((closed(foresight) ? 1 : 0) - foresight.closed);
  if (tick.now - foresight.began_at >= kHasHelped) foresight.barred_for = Time{0};
  // Who does something else by now was not made to wait by this.
  const double changed = bursts.last_cpu_ns / foresight.began_cpu_ns;
  const bool helpless = bursts.gpu_bound && changed > 0.5 && changed < 2;
  if (!helpless && foresight.closed < kShutOut) return;
  foresight.barred_for = std::clamp(2 * foresight.barred_for, kFirstBar, kLongestBar);
  foresight.barred_until = tick.now + foresight.barred_for;
}

// As long as may be: until the gate closes nobody waits for the GPU, and each switch costs the low
// job more than the high one gains. But what the high job launches meanwhile must fit its queue.
std::uint32_t slice_us(const Foresight& foresight) {
  const double us = kQueuedLaunches * foresight.launch_ns / 1e3;
  return static_cast<std::uint32_t>(std::clamp(us, kShortestLongUs, kLongestLongUs));
}

void enter(Foresight& foresight, Phase phase, Time now) {
  foresight.phase = phase;
  foresight.since = now;
}

// A wait has ended, or the launches have passed a span.
void work_on(Foresight& foresight, const std::optional<Span>& span, std::uint32_t launched,
             Time now) {
  const bool awaits = foresight.phase == Phase::kAwaiting || foresight.phase == Phase::kLate;
  if (!span || launched < span->from) {
    if (foresight.phase != Phase::kWorking) enter(foresight, Phase::kWorking, now);
  } else if (!awaits || foresight.span_to != span->to) {
    foresight.span_to = span->to;
    foresight.closed_ns = (span->to - span->from) * foresight.launch_ns;
    enter(foresight, Phase::kAwaiting, now);
  }
}

Time longest(const Foresight& foresight) {
  if (foresight.phase == Phase::kWaiting) return kLongestWait;
  return kLongestAwait + Time(static_cast<Time::rep>(2 * foresight.closed_ns));
}

void follow(Foresight& foresight, const std::optional<Span>& span, const Bursts& seen, Time now) {
  const bool ended = seen.count != foresight.bursts;
  foresight.bursts = seen.count;
  if (ended) enter(foresight, Phase::kWorking, now);
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

void order(Tick& tick, const Pair& pair, const std::optional<Span>& span) {
  const Foresight& foresight = pair.high->state->foresight;
  ClientPlan& plan = *pair.high->plan;
  plan.tell_waits = true;
  plan.wait_foreseen = closed(foresight);
  if (span) plan.ring_after = foresight.phase == Phase::kAwaiting ? span->to : span->from;
  pair.low->arm(kHighSpacingUs);
  if (!closed(foresight)) return;
  pair.low->close(abi::kClosedByTurn);
  tick.again_at(foresight.since + longest(foresight));
}

void start(Foresight& foresight, const Bursts& seen, double cpu_ns, const Tick& tick) {
  tick.state.high.foreseen_since = tick.now;
  foresight.began_at = tick.now;
  foresight.began_cpu_ns = cpu_ns;
  foresight.bursts = seen.count;
  foresight.trying = true;
  foresight.closed = 0;
  enter(foresight, Phase::kWorking, tick.now);
}

void stop(Tick& tick) {
  HighState& high = tick.state.high;
  for (auto& [id, client] : tick.state.clients) client.foresight.phase = Phase::kOff;
  if (high.foreseen_us != 0) high.foreseen_since = tick.now;
  high.foreseen_us = 0;
}

}  // namespace

void foresee_waits(Tick& tick) {
  HighState& high = tick.state.high;
  const bool wanted = tick.rules.foresee && tick.rules.slices && tick.rules.gates;
  const auto pair =
      wanted && tick.state.turns.phase == Turns::Phase::kNone ? pair_of(tick) : std::nullopt;
  if (!pair) return stop(tick);
  Foresight& foresight = pair->high->state->foresight;
  const BurstState& bursts = pair->high->state->bursts;
  const Bursts& seen = pair->high->view->bursts;
  learn(foresight.history, seen, in_launches(foresight.margin_ns, foresight));
  judge(foresight, bursts, tick);
  if (!can_foresee(foresight, bursts, tick)) return stop(tick);
  if (!on(foresight)) start(foresight, seen, bursts.cpu_ns, tick);
  const std::uint32_t us = slice_us(foresight);
  const bool near = us < high.foreseen_us * kNear && us * kNear > high.foreseen_us;
  if (!near) high.foreseen_us = us;
  const double margin_ns =
      foresight.trying ? tried_margin_ns(foresight, bursts.cpu_ns) : foresight.margin_ns;
  const auto span = next_span(foresight.history, seen.launched, in_launches(margin_ns, foresight));
  follow(foresight, span, seen, tick.now);
  order(tick, *pair, span);
}

void steer(Foresight& foresight, double wait_ns, double cpu_ns, std::uint32_t bursts,
           std::uint64_t kernels, Time now) {
  const std::uint64_t launched = kernels - foresight.kernels;
  if (launched != 0 && launched < (std::uint64_t{1} << 32)) {
    const double each = cpu_ns * bursts / static_cast<double>(launched);
    foresight.launch_ns =
        foresight.launch_ns <= 0 ? each : foresight.launch_ns + 0.5 * (each - foresight.launch_ns);
  }
  const double most = most_margin_ns(cpu_ns);
  if (!on(foresight)) {
    if (foresight.margin_ns <= 0) foresight.margin_ns = kFirstMarginNs;
    foresight.margin_ns = std::min(foresight.margin_ns, kFirstMargin * cpu_ns);
    return;
  }
  if (foresight.trying) {
    foresight.trying = false;
    foresight.own_ns = wait_ns;
    foresight.tried_at = now;
    return;
  }
  foresight.own_ns = std::min(foresight.own_ns, wait_ns);
  const double over = wait_ns - foresight.own_ns - kAllowedNs - kAllowed * cpu_ns;
  const double wanted = over > 0 ? foresight.margin_ns + over : foresight.margin_ns * kShrinks;
  foresight.margin_ns = std::clamp(wanted, kLeastMarginNs, most);
  foresight.trying = now - foresight.tried_at >= kTryAgain;
}

bool steerable(const Foresight& foresight, double cpu_ns) {
  return on(foresight) && foresight.margin_ns < most_margin_ns(cpu_ns);
}

}  // namespace switchyard::monitor::policy
