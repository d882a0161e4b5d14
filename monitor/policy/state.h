// What the policy remembers between two looks at one GPU. Copied as a whole, it continues as the
// original would have.
//
// Threading: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "monitor/platform/time.h"
#include "monitor/policy/slices.h"

namespace switchyard::monitor::policy {

// Whether a client waits for the GPU or for its CPU (bursts.cpp).
struct BurstState {
  std::uint32_t count = 0;  // as they stood when the window began
  std::uint64_t waited_ns = 0;
  std::uint64_t burst_ns = 0;
  Time since{0};           // of the window; 0: none
  bool untimed = false;    // its first burst may have begun before bursts were timed
  Time known_at{0};        // when a window last closed
  double cpu_ns = -1;      // the CPU's part of a burst, smoothed over windows; -1: not known
  bool gpu_bound = false;  // its waits are longer than it takes to switch to it
  Time bound_since{0};
  Time distrust{0};  // for so long it stays bound by the GPU, whatever its waits say
};

// The launches of a client's last bursts (wait_history.h).
struct WaitHistory {
  static constexpr unsigned kKept = 24;
  std::uint32_t count = 0;  // the number of the newest
  bool began = false;
  std::array<std::uint16_t, kKept> launches{};  // the newest last
  unsigned kept = 0;
  // Sums over the last bursts that were judged, in launches: of all, and of those whose wait was
  // foreseen. The third is of those whose place in the order foretold it.
  double all = 0;
  double foreseen = 0;
  double in_order = 0;
  unsigned judged = 0;  // so many were; it stops where that is enough
};

// A client's long bursts, and how long before their waits the gate closes (margin.cpp).
struct Margin {
  // Sums of the window: of long bursts, whose CPU works for so long that the low job may come in.
  Time since{0};
  std::uint32_t count = 0;
  std::uint64_t launches = 0;
  double cpu_ns = 0;
  double waited_ns = 0;
  double heard_ns = 0;           // as much of it as the margin is steered by
  std::uint32_t long_waits = 0;  // longer than a GPU takes that has caught up
  // What came out.
  double burst_ns = -1;    // the CPU's part of a long burst, in the last window; -1: not known
  double launch_ns = 0;    // CPU time of a launch, smoothed over windows
  double ns = 0;           // so long before a wait the gate closes
  double own_ns = 0;       // of a wait: what no margin takes away
  double tried = 0;        // that is tried now, with so many times the margin; 0: it is known
  Time tried_at{0};        // when it was last
  unsigned too_long = 0;   // windows in a row with the longest margin and long waits all the same
  bool gpu_bound = false;  // the waits are long, whatever the margin is
  double short_ns = 0;     // that its short bursts took since the last long one
};

// When a client's next wait comes (foresight.cpp).
struct Foresight {
  enum class Phase : std::uint8_t {
    kOff,       // served by a slice
    kWorking,   // no wait is near
    kAwaiting,  // one is: the gate of the low job is closed
    kLate,      // it did not come in time, so the gate is open until it begins
    kWaiting,   // it has come: likewise
    kGivenUp,   // it lasts too long: the gate is open until it has ended
  };
  WaitHistory history;
  Phase phase = Phase::kOff;
  Time since{0};              // of the phase; of kAwaiting: of this span
  std::uint32_t span_to = 0;  // launches at which kAwaiting ends without a wait,
  double closed_ns = 0;       // and how long that should take
  std::uint32_t bursts = 0;   // as they were counted at the last look
  Margin margin;
  Time began_at{0};           // it is on since then,
  double began_burst_ns = 0;  // when the CPU's part of a long burst was this
  double closed = 0;          // of the time, smoothed over a second
  double given_up = 0;        // of the waits, smoothed likewise
  Time barred_until{0};       // it did not help: off until then
  Time barred_for{0};         // longer each time
};

struct ClientState {
  // When it worked (activity.cpp).
  std::uint64_t work = 0;
  std::uint64_t kernels = 0;  // of that, what computes
  Time last_moved{0};
  Time last_computed{-std::chrono::hours(1)};
  bool moved = false;  // ever
  std::uint64_t progress = 0;
  Time progressed_at{0};
  double stood_ns = 0;        // with work on the GPU and an open gate, since anything moved
  std::uint64_t seen_at = 0;  // the number of the last look at which it was there
  bool seen = false;
  bool progressed = false;  // its GPU got on since the last look
  bool at_work = false;     // has work on the GPU, or brought some since the last look
  bool wants = false;       // at work, or would be if its gate opened
  bool busy = false;        // the GPU had work of it at this look
  bool held = false;        // threads of it slept before its gate
  bool was_busy = false;    // either, at the last look
  bool deaf = false;        // a slice was not confirmed in time, nor has any been since

  // What the last plan said of it.
  Slices slices;
  bool watched = false;
  bool rings = false;  // when it works again
  bool closed = false;
  Time closed_at{0};
  std::uint32_t spacing_us = 0;

  // Its use of the GPU (account.cpp).
  double had_ns = 0;       // since the last look
  double worked_ns = 0;    // of that time, with work on the GPU, whoever had it
  double unproven_ns = 0;  // since its gate closed, if it turns out that it was still running
  double share = -1;
  // The figures told of the look (ClientPlan), and those not told yet, because its GPU has not got
  // on since.
  double told_ns = 0;
  double untold_ns = 0;
  double lost_ns = 0;
  bool divided = false;
  bool untold_divided = false;

  // What a window of sampling.cpp knows of it, and what the windows say: parts of the time.
  bool only_sampled = false;  // it is watched for the window alone
  bool heard = false;         // its GPU has told of its work in this window
  double window_had_ns = 0;
  double window_lost_ns = 0;
  double sampled = -1;  // what it has; -1: not known
  double sampled_lost = 0;

  BurstState bursts;
  Foresight foresight;
};

struct JobState {
  std::uint64_t seen_at = 0;  // the number of the last look at which it was there
  bool metered = false;       // has a limit, and the two below hold
  double budget_ns = 0;       // GPU time that it may still take
  bool spent = false;         // closed until the budget is full again
  double credit_ns = 0;       // of turns: on top of the next; negative: had beyond its last ones
  double unused_ns = 0;       // left of a turn when its work paused, until it wants again
  Time idle_since{0};         // its work pauses since then
};

// The holder of the turn among jobs that have the GPU one after the other.
struct Turns {
  enum class Phase : std::uint8_t {
    kNone,      // nobody takes turns
    kOpen,      // the holder has the GPU
    kDraining,  // the holder is closed, what runs of it ends
    kSlicing,   // the new holder's short slice is on its way
  };
  Phase phase = Phase::kNone;
  std::uint64_t holder = 0;  // a job
  std::uint64_t next = 0;    // likewise, while the holder drains
  double left_ns = 0;        // of the turn
  Time idle_since{0};        // the holder has had no work since
  Time closed_at{0};         // when the hand-over began
  Time phase_at{0};
  double handover_ns = 1e6;       // smoothed
  double cycle_ns = 0;            // a turn of each
  double patience_ns = 0;         // brief pauses in its work that don't end the turn
  bool repaying = false;          // the turn is of the lower classes' minimum
  std::uint64_t repaid = 0;       // a job of theirs, the last that had such a turn
  std::uint64_t interrupted = 0;  // a job, the last that had a turn before it
  double lower_owed_ns = 0;       // what they must still get of it
};

// Why the waits of the high class are not foreseen.
enum class Obstacle : std::uint8_t {
  kNone,
  kNotWanted,     // by the policy's options, or there are no gates
  kNothingBelow,  // nobody below uses the compute engine, or one who does can't be held
  kUnknown,       // too little is known, or an older library says nothing
  kBoundByGpu,    // the waits are long, whatever the margin is
  kShortBursts,   // the CPU works too briefly between two waits
  kBarred,        // it did not help, and is tried again later
  kIrregular,     // the launches don't foretell the waits
};

// The higher class, where it must be protected by gates or watched for leaving too little.
struct HighState {
  Time works_since{0};
  Time worked_at{-std::chrono::seconds(1)};
  bool works = false;
  double busy = 0;             // of the time, smoothed over a second
  bool greedy = false;         // it leaves nothing, so the minimum is in force
  double round_us = 0;         // what the active ones have of one round of slices
  std::uint32_t yield_us = 0;  // the slice of the one that yields; 0: the shortest
  Time yield_since{0};         // since then
  Time grew_at{0};             // it last did
  // Waits are foreseen, and the slice of the one that yields is so long; 0: they are not.
  std::uint32_t foreseen_us = 0;
  Time foreseen_since{0};  // or since then they are not
  Obstacle obstacle = Obstacle::kNotWanted;
  std::uint32_t given_us = 0;  // what the one that yields gets by this plan; 0: nobody yields
  double owed_ns = 0;          // gates only: what the lower ones must still get of their minimum
  bool repaying = false;       // their gates are open for it
};

// Windows in which all that share the GPU are watched (sampling.cpp).
struct Sampling {
  Time due{0};  // the next begins then, or as soon as it is wanted
  Time began{0};
  Time settled{0};  // since then the window counts; 0: not yet
  Time ended{0};
  bool on = false;
  double span_ns = 0;     // that it has counted
  std::uint64_t who = 0;  // a mark of those at work
  unsigned windows = 0;   // of these, so many
};

struct State {
  std::map<std::uint64_t, ClientState> clients;
  std::map<std::uint64_t, JobState> jobs;
  std::uint64_t short_holder = 0;  // a client; 0: nobody
  Turns turns;
  HighState high;
  Sampling sampling;
  Time looked_at{0};
  std::uint64_t looks = 0;
  bool looked = false;
};

}  // namespace switchyard::monitor::policy
