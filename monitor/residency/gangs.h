// Gangs: jobs whose ranks wait for each other in collectives, held where none of them waits.
//
// Concept. A job is a gang if one of its processes is in a communicator of several ranks. To hold
// one process of it after the other would leave some of them waiting on the GPU. So a pause or a
// swap-out of a gang begins with a cut (policy/cut.h), and goes on when all ranks are there:
//
//     Gathering   the cut is asked for                 → Draining, or None: the attempt failed
//     Draining    what all have launched ends, where that is numbered; 1 s at most
//                                                      → Closing: paused;  Leaving: its memory goes
//     Closing     until the gates are closed           → Leaving, if its memory goes; else None
//     Leaving     until its memory has left, or stays  → None
//     TurnEnds    the cut is asked for, for another's turn begins         → TurnEnded
//     TurnEnded   all ranks are there; the policy closes the gates        → None
//     both        once it is not to stop any more                         → None
//
// The cut stays asked for until None, so no rank begins a collective that another one could not
// join. Gates are open until the pause begins, because ranks that are behind must come. All of them
// know of the pause before the first one leaves: so they agree, if no monitor is there by then. The
// next monitor goes on with Closing (keep_cut).
//
// Threading: one thread.
#pragma once

#include "monitor/core/registry.h"

namespace switchyard::monitor::gangs {

bool is_gang(const Registry& registry, const Job& job);
// Whether its processes wait for each other as well, though no NCCL of theirs is seen: they share
// memory across GPUs. No cut of it can be asked for. So it is told to leave as it is, and what it
// accepted must end soon (residency.cpp).
bool is_unseen(const Registry& registry, const Job& job);
// Notes in each job what it is (Job::gang_kind).
void note(Registry& registry);
// Why no cut of it is possible; empty: it is. A rank on another machine can't be asked.
std::string why_no_cut(const Registry& registry, const Job& job);

// The action once all ranks are there. pre: it is a gang, and a cut of it is possible.
struct Wish {
  bool pauses = false;
  bool leaves = false;
  residency::Reasons reasons = {};  // for which it leaves
  Time until{0};                    // of the pause
  std::optional<Peer> by = {};      // the person who asks; none: the monitor
};
// While its ranks are awaited, wishes add up.
void hold(Job& job, const Wish& wish, Time now);
// Its memory stays after all. True: its ranks are awaited for a pause, too, and still are.
bool only_pauses(Job& job);
// A client of a paused job comes from another monitor. Its ranks may be at a cut, and one of them
// in the middle of leaving, with its gate open. pre: its page is not published yet.
void keep_cut(Job& job, const Client& client, Time now);
// Whether it leaves, or has left, from where its ranks were stopped together.
bool left_at_cut(const Job& job);
// A person asks anew: why the last attempt failed is of no interest any more.
void forget_failure(Job& job);
// Somebody wants something else of the job: it is not waited for any more.
void cancel(Registry& registry, Job& job);

// The monitor wants its memory out, by itself: of a gang at a cut, and after what a person wants.
// A gang that is not held is not asked again for a while (JobResidency::rests_until).
void want_out(const Registry& registry, Job& job, residency::Reason reason, bool contexts,
              Time now);

// Whether what was wished has still to begin.
inline bool waits(const Job& job) {
  return job.gang->gathers() || job.gang->stage == GangHold::Stage::kClosing;
}

// Whether its memory leaves soon: its ranks are being stopped, or just were.
inline bool is_stopping(const Job& job) {
  const bool stopped = job.gang->stage == GangHold::Stage::kLeaving;
  return waits(job) || (stopped && job.memory->state == residency::State::kResident);
}

// Looks at all of them. True: something changed, so decide anew.
bool follow(Registry& registry, Time now);
// When to look again; 0: when something happens.
Time due(const Registry& registry);

}  // namespace switchyard::monitor::gangs
