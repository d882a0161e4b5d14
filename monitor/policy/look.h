// One look, as the rooms of the policy pass it on. Private to monitor/policy.
//
// Threading: plain values, on the stack of decide().
#pragma once

#include <algorithm>
#include <vector>

#include "monitor/policy/policy.h"

namespace switchyard::monitor::policy {

// A client that has a context, as the rooms see it.
struct Rider {
  const ClientView* view = nullptr;
  ClientPlan* plan = nullptr;
  ClientState* state = nullptr;
  bool active = false;
  bool high = false;
  double weight = 0;  // of the job, after the class's factor
  double capped = 0;  // the same, but no more than its limit makes of it
  double unit = 0;    // of one of its channel groups: what a slice is proportional to

  std::uint32_t groups() const { return std::max(1u, view->compute_groups); }
  std::uint64_t job() const { return view->job; }
  bool limited() const { return view->limit > 0 && view->limit < 1; }
  bool shut(std::uint32_t why) const { return (plan->closed & why) != 0; }
  // Waits stand around its launches from now on, and its progress is told.
  void arm(std::uint32_t spacing_us = 0) const {
    plan->armed = plan->watch = true;
    if (spacing_us != 0) plan->spacing_us = spacing_us;
  }
  void close(std::uint32_t why) const {
    plan->armed = plan->watch = true;
    plan->closed |= why;
  }
};

struct Tick {
  const Rules& rules;
  Time now;
  double dt_ns;  // since the last look
  State& state;
  Plan& plan;
  std::vector<Rider> riders;  // not those that are paused

  void again_at(Time at) {
    if (plan.look_again == Time{0} || at < plan.look_again) plan.look_again = at;
  }
  void again_in(Time span) { again_at(now + span); }
  void again_in_ns(double ns) { again_in(Time(static_cast<Time::rep>(ns))); }
};

template <typename Test>
bool any_rider(const Tick& tick, Test test) {
  return std::any_of(tick.riders.begin(), tick.riders.end(), test);
}

inline bool active_high(const Rider& rider) { return rider.high && rider.active; }
inline bool active_low(const Rider& rider) { return !rider.high && rider.active; }
inline double active_highs(const Tick& tick) {
  return static_cast<double>(std::count_if(tick.riders.begin(), tick.riders.end(), active_high));
}

// A yielder works that nothing holds back. Beside it nobody may be short: it would have nearly all
// that the yielders have together.
inline bool one_is_not_held(const Tick& tick) {
  return any_rider(tick, [](const Rider& rider) {
    return rider.active && !rider.high && !rider.view->gateable;
  });
}

// One that only copies never has the compute engine, so there is nothing to keep from it.
inline bool computes(const Rider& rider, Time now) {
  return now - rider.state->last_computed < kActiveFor;
}

// --- activity.cpp ---
// Notes whether the client works or would, and when the activity of one that works may end.
void observe(const ClientView& view, Time now, double dt_ns, ClientState& state);
// Nothing of a client whose gate is closed runs on the GPU any more, as far as one can tell. Work
// queued behind the gate counts as submitted, so only a lack of progress shows it.
bool drained(const Rider& rider, Time now);

// --- account.cpp ---
// How much of the GPU each had since the last look, by estimate. Takes paused clients, too.
// `part`: Rules::part. `sampling`: its window, if one is on, counts this look.
void account(const std::vector<Rider>& everybody, double dt_ns, double part, Sampling& sampling);

// --- sampling.cpp ---
// Plans the windows in which those are watched that no gate needs to know.
void sample(Tick& tick);

// --- limits.cpp ---
// Shuts the gates of jobs that have had what they may.
void hold_limits(Tick& tick);

// --- classes.cpp ---
void rank(Tick& tick);   // who is high
void weigh(Tick& tick);  // what each job counts
void say_what_is_asked(Tick& tick);
void give_slices(Tick& tick);

// --- turns.cpp ---
// Active jobs have the GPU one after the other. False: there are not two of them.
struct TurnRules {
  bool highs = false;         // they take part, too
  bool by_class = false;      // the higher class goes first, but for the minimum
  bool short_slice = false;   // the holder gets the short slice
  bool long_turns = false;    // as long as they may be
  bool only_unequal = false;  // equals need no turns
  bool suspended = false;     // a higher class has the GPU: no time passes
  std::uint32_t spacing_us = 0;
};
bool take_turns(Tick& tick, const TurnRules& rules);
// The rider of the turn's holder that may be short: its only active one, with one channel group.
const Rider* shortable_holder(const Tick& tick);

// --- claims.cpp ---
// Tells of the jobs that take turns here (by `queue`; null: none does), if one of them is a gang.
// Tells of gangs with a limit, too.
class TurnQueue;
void list_claims(Tick& tick, const TurnQueue* queue);
// Whether a turn of one of them is decided for all GPUs together.
bool is_granted(const Tick& tick, const TurnQueue& queue);
// Shuts the gates of gangs that wait, also where they take no turns.
void hold_ungranted(const Tick& tick);

// --- bursts.cpp ---
// A window of bursts is closed after so long, and has enough bursts to be believed. One without a
// burst says nothing.
inline constexpr Time kBurstWindow = std::chrono::milliseconds(100);
constexpr bool is_enough(Time window, std::uint32_t bursts) {
  return (window >= kBurstWindow && bursts >= 3) || (window >= 4 * kBurstWindow && bursts > 0);
}
// Follows how long the CPUs of the high class work between two waits. From that follows how long
// the slice of the one that yields may be. Only beside an active lower class.
void follow_bursts(Tick& tick);
// Bursts are not timed now, so no window goes on.
void forget_windows(State& state);
// The high class waits for the GPU, as far as one can tell: lingering and numbers are worth it.
bool waits_for_gpu(const Tick& tick);
// The longest wait where the GPU has caught up when it begins. Each high job is switched to once,
// after the rest of the other's slice.
double caught_up_ns(const Tick& tick);
// What the one that yields gets instead of the shortest slice.
Slices yielding_slices(const Tick& tick);

// --- foresight.cpp ---
// Closes the lower class's gates before the next wait of a high job, where it can be foreseen.
enum class Foreseen : std::uint8_t { kNot, kOpen, kClosed };
Foreseen foresee_waits(Tick& tick);

// --- margin.cpp ---
// Follows how long the waits of long bursts are; `fresh`: so many of the last bursts are new; `on`:
// waits are foreseen now.
void follow_long_bursts(Margin& margin, const Bursts& seen, std::uint32_t fresh, bool on,
                        const Tick& tick);
// The margin as so many launches as the CPU makes in that time; 0: not known. It is a longer one
// now and then.
std::uint32_t usual_launches(const Margin& margin);
std::uint32_t launches_now(const Margin& margin);
// Finds anew, by longer margins, what a wait has of its own.
void try_margins(Margin& margin);

// --- holding.cpp ---
// By gates alone: the lower class waits while the high one works. True: it waits now.
bool hold_for_high(Tick& tick);
// Whether the high class leaves the others less than the minimum.
void watch_the_greedy(Tick& tick);

}  // namespace switchyard::monitor::policy
