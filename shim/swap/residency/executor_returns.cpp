// What the mover does when memory and contexts come back, or move on.
#include <algorithm>

#include "shim/checkpoint/checkpoint.h"
#include "shim/clock.h"
#include "shim/gate/errors.h"
#include "shim/log.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/mover.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/swap/transfer/handover.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::residency {
namespace {

constexpr std::uint64_t kPatienceNs = 10'000'000;
constexpr std::uint64_t kNapNs = 50'000;

static_assert(kLeastPart == kChunk);

bool may_always(unsigned, std::uint64_t, bool) { return true; }

// As another's chunks leave the limit rises, several times in a millisecond.
bool may_come(unsigned lane, std::uint64_t bytes, bool waits) {
  for (const std::uint64_t end = monotonic_ns() + (waits ? kPatienceNs : 0);;) {
    const std::uint64_t limit = residency_page::told(lane).limit;
    const std::uint64_t there = residency_page::resident(lane);
    if (there <= limit && bytes <= limit - there) return true;
    if (monotonic_ns() >= end) return false;
    sleep_ns(kNapNs);
  }
}

}  // namespace

Input Executor::swap_in(const MoverView& seen) {
  const std::uint64_t begun = monotonic_ns();
  Moved in;
  {
    const ChunksLock held;
    // Also where all is counted as there: some of that may lack its contents.
    if (residency_page::total(lane_) != 0)
      in = move_in(lane_, may_always, residency_page::resident_changes);
  }
  count_in(in, begun);
  Input input = moved(seen, in);
  if (input.event == MoverEvent::kDone) residency_page::count_end(lane_);
  // An error that ends the context ends its memory: its work shall have its own error.
  const bool lost = ends_context(in.result) || no_context(in.result);
  if (input.event == MoverEvent::kStopped && lost) input.event = MoverEvent::kContextLost;
  return input;
}

Input Executor::swap_in_part(const MoverView& seen) {
  const std::uint64_t begun = monotonic_ns();
  Moved in;
  {
    const ChunksLock held;
    in = move_in(lane_, may_come, residency_page::resident_changes);
  }
  count_in(in, begun);
  return moved(seen, in);
}

void Executor::count_in(const Moved& moved, std::uint64_t begun) const {
  residency_page::count_in(lane_, moved);
  note("in", moved, begun);
}

bool Executor::stands_ready() const {
  const ChunksLock held;
  return !handover::put_in_place(lane_);
}

Input Executor::move_on(const MoverView& seen) {
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t limit = seen.detaches && !seen.kept ? 0 : seen.park_limit;
  const std::uint64_t excess = seen.parked - std::min(seen.parked, limit);
  const std::uint64_t kept = kept_now();
  const std::uint64_t room = pinned_pool::free_bytes(lane_) + kept;
  const std::uint64_t part = moves_on_at_once(excess, room, pinned_pool::kSlab);
  // Chunks that find no room stay parked.
  find_room(part, kept);
  Moved on;
  {
    const ChunksLock held;
    on = swap::move_on(lane_, part, residency_page::parked_left);
  }
  note("on to the host", on, begun);
  Input input = moved(seen, on);
  if (input.event == MoverEvent::kDone) input.event = MoverEvent::kMovedOn;
  return input;
}

Input Executor::take_contexts(const MoverView& seen) {
  if (context_.enter(lane_)) unpin_pool();
  context_.leave();
  result_ = checkpoint::take(lane_);
  return {.event = checkpoint::away() ? MoverEvent::kContextsTaken : MoverEvent::kContextsStay,
          .seen = seen,
          .error = result_ == kLate ? Error::kBusy : Error::kContextsStay};
}

Input Executor::bring_contexts(const MoverView& seen) {
  CUresult refused = CUDA_SUCCESS;
  result_ = checkpoint::bring(lane_, refused);
  Input input{.event = MoverEvent::kContextsBack, .seen = seen};
  if (result_ == CUDA_SUCCESS) {
    residency_page::follow_kept(lane_);
    if (refused == CUDA_SUCCESS) return input;
    residency_page::failed_with(lane_, refused);
    log_line(Level::kWarn, "the driver did not move GPU %u (%d): it is back where it was", lane_,
             static_cast<int>(refused));
    input.error = Error::kNotMoved;
    return input;
  }
  const bool no_room = result_ == CUDA_ERROR_OUT_OF_MEMORY;
  input.event = checkpoint::lost() ? MoverEvent::kContextLost : MoverEvent::kContextsAway;
  input.error = no_room ? Error::kNoDeviceRoom : Error::kFailed;
  return input;
}

bool Executor::context_made() {
  if (now_.state != MoverState::kNoContext) return false;
  Input input{.event = MoverEvent::kContextMade, .seen = {}};
  {
    const ChunksLock held;
    input.away = anything_away(lane_);
    if (input.away) admission::shut(lane_);  // before anybody works in it
  }
  adopt(next(now_, input, monotonic_ns()));
  return true;
}

// Two that lack room, each with a part of its memory there, would wait for each other for ever
// without a monitor. Each tosses a coin, until once only one of them goes.
void Executor::make_way() {
  if (monotonic_ns() / 1000 % 2 == 0) return;
  const ChunksLock held;
  if (!find_room(residency_page::resident(lane_), kept_bytes(lane_))) return;
  residency_page::count_out(lane_, move_out(lane_, UINT64_MAX, residency_page::resident_changes));
  residency_page::made_way(lane_, now_.not_before_ns);
  mover::poke();
}

}  // namespace switchyard::shim::swap::residency
