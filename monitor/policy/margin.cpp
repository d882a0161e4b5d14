// How long before a wait of the high job the low job's gate closes.
//
// This *margin* is the time in which the low job's accepted work and its slice drain, and the high
// job's new queue runs. It is steered by the waits: it grows by what they are too long, and shrinks
// by a part while they are short. One long wait among short ones says little.
//
// Only *long bursts* say anything of it, those whose CPU works for about a millisecond or more. A
// server that launches its first token kernel by kernel, and replays a graph for each other one,
// has both sorts. Its waits for a graph are as long as the graph takes, whatever the margin is.
// A thread that loses its CPU between a launch and its wait has no long burst. Its launches take
// longer than those of its other bursts. Otherwise one such moment would give the low job slices of
// milliseconds, and each of the next requests would find the GPU taken.
#include <algorithm>
#include <array>
#include <cmath>

#include "monitor/policy/look.h"
#include "monitor/policy/wait_history.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;

constexpr std::uint16_t kLongUs = 700;
constexpr double kNewest = 0.5;  // weight of the last window

constexpr double kFirstMarginNs = 1.2e6;  // and at most
constexpr double kFirstMargin = 0.5;      // of what the CPU does
constexpr double kLeastMarginNs = 100e3;
constexpr double kShrinks = 0.95;       // at each window
constexpr double kAllowedNs = 20e3;     // of a wait, beyond what is its own,
constexpr double kAllowed = 0.005;      // and that part of what the CPU does
constexpr double kOtherHighNs = 200e3;  // and this for each other high job
// Of each wait, beyond what is its own. A wait of several milliseconds was not foreseen, or another
// high job had the GPU. No margin helps it, and it must not count as ten that are too long.
constexpr double kHeardNs = 400e3;
constexpr Time kTryAgain = std::chrono::seconds(8);  // what no margin takes away
constexpr double kTryFactor = 3;
// One window may be disturbed.
constexpr unsigned kSure = 3;  // windows
// The low job had queued so much before its gate was armed, which no gate stops.
constexpr Time kUnarmed = milliseconds(600);

double most_ns(const Margin& margin) {
  return std::max(kLeastMarginNs, kMostClosed * margin.burst_ns);
}

std::uint32_t in_launches(double ns, const Margin& margin) {
  if (margin.launch_ns <= 0) return 0;
  const double launches = std::ceil(ns / margin.launch_ns);
  return static_cast<std::uint32_t>(std::clamp(launches, 1.0, 65'535.0));
}

void begin_window(Margin& margin, Time now) {
  margin.since = now;
  margin.count = 0;
  margin.launches = 0;
  margin.cpu_ns = margin.waited_ns = margin.heard_ns = 0;
  margin.long_waits = 0;
}

// CPU time of a launch in most of the last bursts.
double usual_launch_us(const Bursts& seen) {
  std::array<double, abi::kCountedBursts> each{};
  auto end = each.begin();
  for (const Burst& burst : seen.last) {
    if (burst.launches != 0 && burst.cpu_us != 0) {
      *end++ = static_cast<double>(burst.cpu_us) / burst.launches;
    }
  }
  const auto middle = each.begin() + (end - each.begin()) / 2;
  std::nth_element(each.begin(), middle, end);
  return *middle;
}

void add(Margin& margin, const Burst& burst, double launch_us, double caught_up) {
  if (burst.launches == 0 || burst.cpu_us == 0) return;
  if (std::min<double>(burst.cpu_us, burst.launches * launch_us) < kLongUs) {
    margin.short_ns += 1e3 * (burst.cpu_us + burst.waited_us);
    return;
  }
  margin.short_ns = 0;
  ++margin.count;
  margin.launches += burst.launches;
  margin.cpu_ns += 1e3 * burst.cpu_us;
  const double waited_ns = 1e3 * burst.waited_us;
  margin.waited_ns += waited_ns;
  margin.heard_ns += std::min(waited_ns, margin.own_ns + kHeardNs);
  margin.long_waits += waited_ns > caught_up ? 1 : 0;
}

double tried_ns(const Margin& margin) {
  return std::min(most_ns(margin), margin.tried * margin.ns);
}

// Most waits are long. The mean says less: one long kernel of the low job makes one wait in ten ten
// times as long.
bool waits_long(const Margin& margin) { return 2 * margin.long_waits > margin.count; }

void classify(Margin& margin) {
  if (waits_long(margin)) margin.gpu_bound = true;
  if (4 * margin.long_waits < margin.count) margin.gpu_bound = false;
}

// A wait's own time, by a margin that leaves nothing else in it.
void try_longer(Margin& margin, double wait_ns, const Tick& tick) {
  if (waits_long(margin)) {
    if (tried_ns(margin) < most_ns(margin)) {
      margin.tried *= kTryFactor;
      return;
    }
    if (++margin.too_long < kSure) return;
    margin.gpu_bound = true;
  }
  margin.too_long = 0;
  margin.tried = 0;
  margin.own_ns = wait_ns;
  margin.tried_at = tick.now;
}

void steer(Margin& margin, const Tick& tick) {
  if (margin.tried > 0) return try_longer(margin, margin.waited_ns / margin.count, tick);
  const double wait_ns = margin.heard_ns / margin.count;
  if (margin.ns >= most_ns(margin)) classify(margin);
  margin.own_ns = std::min(margin.own_ns, wait_ns);
  // No margin takes away that another high job has the GPU now and then.
  const double others = kOtherHighNs * (active_highs(tick) - 1);
  const double allowed = kAllowedNs + kAllowed * margin.burst_ns + others;
  const double over = wait_ns - margin.own_ns - allowed;
  const double wanted = over > 0 ? margin.ns + over : margin.ns * kShrinks;
  margin.ns = std::clamp(wanted, kLeastMarginNs, most_ns(margin));
  if (tick.now - margin.tried_at >= kTryAgain) try_margins(margin);
}

void close_window(Margin& margin, bool on, const Tick& tick) {
  margin.burst_ns = margin.cpu_ns / margin.count;
  const double each = margin.cpu_ns / static_cast<double>(margin.launches);
  margin.launch_ns =
      margin.launch_ns <= 0 ? each : margin.launch_ns + kNewest * (each - margin.launch_ns);
  if (on) {
    steer(margin, tick);
  } else {
    classify(margin);
    if (margin.ns <= 0) margin.ns = kFirstMarginNs;
    margin.ns = std::min(margin.ns, kFirstMargin * margin.burst_ns);
  }
  begin_window(margin, tick.now);
}

}  // namespace

void follow_long_bursts(Margin& margin, const Bursts& seen, std::uint32_t fresh, bool on,
                        const Tick& tick) {
  const double caught_up = caught_up_ns(tick);
  const double launch_us = fresh != 0 ? usual_launch_us(seen) : 0;  // most looks see no new burst
  for (std::uint32_t i = fresh; i-- > 0;) {
    add(margin, seen.number(seen.count - i), launch_us, caught_up);
  }
  // Bursts seen with another slice say nothing of this one.
  const HighState& high = tick.state.high;
  const Time stopped = high.foreseen_since + (on ? kUnarmed : Time{0});
  if (margin.since == Time{0} || margin.since < std::max(high.yield_since, stopped)) {
    begin_window(margin, tick.now);
    return;
  }
  if (is_enough(tick.now - margin.since, margin.count)) close_window(margin, on, tick);
}

std::uint32_t usual_launches(const Margin& margin) { return in_launches(margin.ns, margin); }

std::uint32_t launches_now(const Margin& margin) {
  return margin.tried > 0 ? in_launches(tried_ns(margin), margin) : usual_launches(margin);
}

void try_margins(Margin& margin) { margin.tried = kTryFactor; }

}  // namespace switchyard::monitor::policy
