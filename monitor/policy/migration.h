// How a job comes from one GPU to another: the rules alone.
//
// Concept. The host pool of a process is unpinned first, while the job works. Memory that goes by
// the host is copied there before. All memory of the job leaves to the host, or stays behind
// without it. Then its contexts leave, and it uses no GPU (job_residency.h, reason kMove). Each of
// its processes is told on which GPU it shall be, and brings its contexts back there. Then the
// memory comes. A failure on the way leads back. Each process that the driver does not restore on
// the other GPU is where it was, and those that are there leave once more. The executor
// (residency/migrations.h) looks, does the actions, and keeps room for the job on both GPUs until
// the end.
//
//     stage      seen                                       → stage            action
//     Idle       asked, and some host pool can be unpinned  → Preparing        Prepare
//                asked                                      → Leaving          Leave
//     Preparing  all have prepared                          → Leaving          Leave
//                it is held or leaves for another reason    → Leaving          Leave
//                not all have within kPreparesWithin        → Leaving          Leave
//                one of these, and it cannot go any more    → Idle             End
//     Leaving    nothing of it is on a GPU                  → Landing          Land
//                it stays                                   → Arriving, back   Arrive
//     Landing    all are on the other GPU                   → Arriving         Arrive
//                none is there, none is on its way          → Arriving, back   Arrive
//                some are there, none is on its way         → Leaving, back    Leave
//                not all have landed within kLandsWithin    → Leaving, back    Leave
//     Arriving   its memory is there, or shall stay out     → Idle             End
//                it is refused, and nothing more of it
//                  came for kComesWithin                    → Leaving, back    Leave
//                what it left behind does not follow        → Leaving, back    Leave
//     any        none of its processes is left              → Idle             End
//
// On the way back "the other GPU" is the one where it was, and nothing turns once more:
//
//     Landing    none is on its way, or kLandsWithin        → Arriving, back   Arrive
//     Arriving   it is refused, and nothing more of it
//                  came for kComesWithin                    → Idle             End
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "monitor/platform/time.h"

namespace switchyard::monitor::migration {

enum class Stage : std::uint8_t { kIdle, kPreparing, kLeaving, kLanding, kArriving };

struct State {
  Stage stage = Stage::kIdle;
  bool back = false;   // it goes back to where it was: it has failed
  Time since{0};       // of the stage; of kArriving: since it gets no further
  bool fails = false;  // of kArriving: its memory was refused since then
};

struct Seen {
  bool any = false;         // some process of it has a context
  bool prepares = false;    // a process that was asked to has not prepared
  bool held = false;        // it does not work, or is wanted out for another reason
  bool refused = false;     // something has come up that speaks against the move
  bool stays = false;       // the attempt to leave was given up
  bool away = false;        // nothing of it is on a GPU
  bool on_its_way = false;  // a process is neither where it was nor on the other GPU
  bool there = false;       // a process is on the other GPU
  bool elsewhere = false;   // a process is where it was
  bool in = false;          // its memory is there, or shall stay out for another reason
  bool comes = false;       // more of its memory is there than ever since its contexts are
  // Its memory finds no room, or the driver refuses to make or to fill it. An attempt that is under
  // way says nothing: it is tried again and again.
  bool does_not_come = false;
  bool cut_off = false;  // likewise: what it left behind on the GPU where it was
};

enum class Action : std::uint8_t {
  kNothing,
  kPrepare,  // ask for host pools to be unpinned
  kLeave,    // with all that it has
  kLand,     // tell each process on which GPU it shall be, and count it there
  kArrive,   // count it where it is, and let its memory in
  kEnd,      // of the migration
};

struct Step {
  State to;
  Action action = Action::kNothing;
};

// 44 GiB are copied in 0.9 s, and unpinned in 0.8 s. Between its parts work has as long, and each
// begins with a drain.
inline constexpr Time kPreparesWithin = std::chrono::seconds(20);
// A restore takes less than a second for each gigabyte that could not be swapped out.
inline constexpr Time kLandsWithin = std::chrono::seconds(30);
inline constexpr Time kComesWithin = std::chrono::seconds(10);

inline bool is_under_way(const State& state) { return state.stage != Stage::kIdle; }

// Somebody asks for it. `prepares`: some host pool can be unpinned. pre: none is under way.
Step begin(bool prepares, Time now);
// Whether it leaves now, unless something speaks against that. pre: it is in Preparing.
bool leaves_now(const State& state, const Seen& seen, Time now);
Step next(const State& from, const Seen& seen, Time now);

}  // namespace switchyard::monitor::migration
