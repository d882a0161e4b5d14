// Where this process's swappable memory is, and what comes next: the rules alone.
//
// Concept. A state, what is seen of the world or what came of the last action, and the time give
// the next state and one action. The executor (executor.h) sees, acts and tells the page; here is
// no page, no driver, no log and no clock.
//
//     state        input                                    → state         action        says
//     Resident     order                                    → Resident      FindHostRoom
//                  no order                                 → Resident      TendPool
//                  nothing is swappable                     → Resident      ShrinkPool
//                  host room found, or some to park         → Quiescing     Quiesce       leaving
//                  none, or no context                      → Resident      backs off     error
//                  a thread asks to consolidate             → Quiescing     Consolidate
//     Quiescing    quiesced, the order stands               → SwappingOut   SwapOut
//                  quiesced, the order was withdrawn        → SwappingIn    SwapIn        returning
//                  late, or failed                          → as before     backs off     error
//                  consolidated, all is there               → as before     Answer
//                  consolidated, some is away               → SwappingIn    Answer
//     SwappingOut  done                                     → SwappedOut                  absent
//                  stopped, work was admitted before        → SwappingIn    SwapIn        error
//                  stopped, it was not                      → SwappedOut    backs off     error
//     SwappedOut   limit below what is there                → SwappedOut    FindHostRoom
//                  host room found                          → Quiescing     Quiesce
//                  more is parked than may be               → SwappedOut    MoveOn
//                  moved on                                 → SwappedOut                  absent
//                  limit above, or another's chunks leave   → SwappedOut    SwapInPart
//                  limit lifted, or nothing is left         → SwappingIn    SwapIn        returning
//                  another's memory is awaited              → SwappedOut    StandReady
//                  nothing is to be moved                   → SwappedOut    ShrinkPool
//                  nothing is left, the contexts shall go   → SwappedOut    TakeContexts
//                  the contexts are taken                   → Detached                    detached
//                  they stay                                → SwappedOut    backs off     error
//     Detached     the order stands                         → Detached
//                  the contexts may come                    → Detached      BringContexts
//                  they are back                            → SwappedOut                  absent
//                  they are, but on another GPU than meant  → SwappedOut                  error
//                  they are not                             → Detached      backs off     error
//                  the driver has lost them                 → NoContext                   error
//     SwappingIn   done                                     → Resident                    resident
//                  stopped                                  → SwappingIn    backs off     error
//                  the same without room or a monitor       → SwappingIn    MakeWay       error
//                  order                                    → as SwappedOut
//                  no context, or the context's error       → NoContext                   error
//     NoContext    a context is made                        → SwappingIn    (as any look)
//                  order, consolidation                     → as Resident
//
// Work is admitted in Resident and in NoContext, where it fails by itself and nobody is held for
// ever. In SwappedOut what is there follows the limit, in both directions. A process whose work is
// held quiesces at once, unless a context has just been made over memory that is away. After a
// failure the same state is tried again, later and later. Contexts leave also where no memory is to
// be moved, and never before what is parked: the driver would take that as well. Kept memory stays
// on the GPU. While they are away the driver may be asked for nothing but to bring them.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "switchyard/abi.h"

namespace switchyard::shim::swap::residency {

enum class MoverState : std::uint8_t {
  kResident,
  kQuiescing,
  kSwappingOut,
  kSwappedOut,
  kSwappingIn,
  kNoContext,
  kDetached,
};
inline constexpr unsigned kStates = 7;

// As abi.h: kSwap*.
enum class Error : std::uint32_t {
  kFine = abi::kSwapFine,
  kBusy = abi::kSwapBusy,
  kNoHostRoom = abi::kSwapNoHostRoom,
  kNoDeviceRoom = abi::kSwapNoDeviceRoom,
  kFailed = abi::kSwapFailed,
  kContextsStay = abi::kSwapContextsStay,
  kNotMoved = abi::kSwapNotMoved,
  kNoPeerRoom = abi::kSwapNoPeerRoom,
};

// A hand-over in which memory of another job comes.
enum class Handoff : std::uint8_t {
  kNone,
  kAwaited,  // there is an offer to wait for
  kTaken,    // the other's memory stands ready
  kBegun,    // and leaves there
};

// The observations before an action is chosen.
struct MoverView {
  bool limited = false;  // work is to be held, and so much may be there meanwhile
  std::uint64_t limit = UINT64_MAX;
  bool detaches = false;  // limited, and the contexts are to leave as well
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  bool monitored = true;
  bool context = true;           // there is one to copy by
  bool quiesced = false;         // work is held and done
  bool answered = true;          // that memory is away is said in answer to this order
  bool asked = false;            // a thread asks to consolidate, and may be answered
  bool offers = false;           // what leaves soon is offered to another job
  std::uint64_t parked = 0;      // on another GPU,
  std::uint64_t park_limit = 0;  // where no more than that may be
  bool kept = false;             // all of it without a mapping: contexts may leave it behind
  Handoff handoff = Handoff::kNone;
};

enum class MoverEvent : std::uint8_t {
  kLook,           // nothing is under way
  kHostRoom,       // FindHostRoom: it is there
  kNoHostRoom,     // it is not
  kNoPeerRoom,     // it is not wanted in the host, and other GPUs have none
  kQuiesced,       // Quiesce: the accepted work is done
  kLate,           // it is not, and work goes on
  kFailed,         // the driver refused to wait for it
  kDone,           // SwapOut, SwapIn, SwapInPart: all of it
  kStopped,        // less, and `error` says why
  kMovedOn,        // MoveOn: no more is parked than may be; or kStopped
  kContextLost,    // SwapIn: nothing can be done in the context any more
  kConsolidated,   // Consolidate: `away` tells whether some of it is away now
  kContextMade,    // by the application, over memory that may be `away`
  kContextsTaken,  // TakeContexts: nothing of the process is on the GPU any more
  kContextsStay,   // all is as before, and `error` says why
  kContextsBack,   // BringContexts: they are there; `error` says why not on another GPU
  kContextsAway,   // they are still away, and `error` says why; or kContextLost
};

struct Input {
  MoverEvent event = MoverEvent::kLook;
  MoverView seen;
  Error error = Error::kFine;  // of kStopped, kContextLost, kContextsBack
  bool away = false;           // of kConsolidated, kContextMade
};

enum class Action : std::uint8_t {
  kNothing,
  kFindHostRoom,  // for what must leave
  kQuiesce,       // block new work and wait for what was accepted
  kSwapOut,       // until no more than the limit is there
  kSwapIn,        // all of it
  kSwapInPart,    // as the limit permits
  kMoveOn,        // from another GPU to the host, until no more is parked than may be
  kTakeContexts,  // off the GPU
  kBringContexts,
  kMakeWay,      // perhaps: two without a monitor may each hold what the other lacks
  kConsolidate,  // what was asked for
  kAnswer,       // who asked
  kStandReady,   // for what another job hands over
  kShrinkPool,   // of pinned host memory
  kTendPool,     // the same, or let it grow for the next move
};

// The memory between two inputs.
struct Residency {
  MoverState state = MoverState::kResident;
  MoverState before = MoverState::kResident;  // of Quiescing and SwappingOut: where it came from
  Error kept = Error::kFine;                  // of SwappingIn: why memory had to come back
  bool context_made = false;                  // of NoContext: since it was lost
  std::uint64_t backoff_ns = 0;               // of the last failure
  std::uint64_t not_before_ns = 0;
};

struct MoverStep {
  Residency to;
  Action action = Action::kNothing;
  bool says = false;    // the page is told the state, with `error`
  bool failed = false;  // it backs off
  Error error = Error::kFine;
  std::uint64_t look_in_ns = 0;  // after the action, unless something happens; 0: at once
};

inline constexpr std::uint64_t kLookNs = 200'000'000;
inline constexpr std::uint64_t kSoonNs = 5'000'000;
// While another's memory is about to be handed over.
inline constexpr std::uint64_t kHandoffNs = 500'000;
inline constexpr std::uint64_t kFirstBackoffNs = 20'000'000;
inline constexpr std::uint64_t kLastBackoffNs = 2'000'000'000;
// For less of it a part isn't worth to begin.
inline constexpr std::uint64_t kLeastPart = 32u << 20;

// pre: the event is one that can come in this state: of the last action, or kLook or kContextMade.
MoverStep next(const Residency& from, const Input& input, std::uint64_t now_ns);

// How much of `excess` moves on to the host at a time, where that has pinned memory for `room`.
// Somebody waits: what finds room moves at once, and the rest by `slab`, as memory is pinned. To
// pin it for 4 GiB takes about a second.
constexpr std::uint64_t moves_on_at_once(std::uint64_t excess, std::uint64_t room,
                                         std::uint64_t slab) {
  const std::uint64_t most = room < slab ? slab : room;
  return excess < most ? excess : most;
}

// Whether work is admitted.
constexpr bool admits(MoverState state) {
  return state == MoverState::kResident || state == MoverState::kNoContext;
}
// Whether one may follow the other.
bool is_legal(MoverState from, MoverState to);
// The state's value in the page (abi.h: Residency::phase).
std::uint32_t phase_of(MoverState state);
// Whether the action needs a context to copy by.
bool needs_context(Action action);
// Whether memory that another job hands over can be used,
bool wants_handoff(const Residency& now, const MoverView& seen);
// and whether there is room for it already.
bool has_room(const Residency& now, const MoverView& seen);
// Whether what leaves soon may be offered already.
bool may_offer(const Residency& now, const MoverView& seen);

}  // namespace switchyard::shim::swap::residency
