#include "shim/swap/residency/state.h"

#include <algorithm>

namespace switchyard::shim::swap::residency {
namespace {

MoverStep stays(const Residency& from, Action action, std::uint64_t look_in_ns) {
  return {.to = from, .action = action, .look_in_ns = look_in_ns};
}

MoverStep enter(Residency to, MoverState state, Action action, std::uint64_t look_in_ns = kSoonNs) {
  to.state = state;
  return {.to = to, .action = action, .look_in_ns = look_in_ns};
}

MoverStep saying(MoverStep step, Error error) {
  step.says = true;
  step.error = error;
  return step;
}

// Tried again later, each time twice as late.
MoverStep backing_off(MoverStep step, Error error, std::uint64_t now_ns) {
  Residency& to = step.to;
  to.backoff_ns = std::clamp(2 * to.backoff_ns, kFirstBackoffNs, kLastBackoffNs);
  to.not_before_ns = now_ns + to.backoff_ns;
  step.failed = true;
  return saying(step, error);
}

MoverStep quiescing(Residency to, Action action) {
  to.before = to.state;
  return enter(to, MoverState::kQuiescing, action);
}

// `error`: why it has to come back.
MoverStep swapping_in(Residency to, Error error) {
  to.kept = error;
  return saying(enter(to, MoverState::kSwappingIn, Action::kSwapIn), error);
}

// Nothing can bring it back now, and nothing can work on it: whoever is held shall have the
// driver's own error instead.
MoverStep no_context(Residency to, Error error, bool context_made, std::uint64_t now_ns) {
  to.context_made = context_made;
  return backing_off(enter(to, MoverState::kNoContext, Action::kNothing, kLookNs), error, now_ns);
}

MoverStep look_admitted(const Residency& from, const MoverView& seen, std::uint64_t now_ns) {
  if (seen.asked) return quiescing(from, Action::kConsolidate);
  if (seen.total == 0 && !seen.detaches) return stays(from, Action::kShrinkPool, kLookNs);
  if (now_ns < from.not_before_ns) return stays(from, Action::kNothing, kSoonNs);
  if (seen.limited) {
    if (seen.context) return stays(from, Action::kFindHostRoom, kSoonNs);
    return backing_off(stays(from, Action::kNothing, kLookNs), Error::kFailed, now_ns);
  }
  if (from.state == MoverState::kNoContext && from.context_made)
    return swapping_in(from, Error::kFine);
  if (seen.offers) return stays(from, Action::kNothing, kSoonNs);
  return stays(from, Action::kTendPool, kLookNs);
}

// Work stays held, and there is nothing to move.
MoverStep wait_away(Residency from, const MoverView& seen) {
  const bool awaits = seen.handoff != Handoff::kNone;
  from.state = MoverState::kSwappedOut;
  const MoverStep step = awaits ? stays(from, Action::kStandReady, kHandoffNs)
                                : stays(from, Action::kShrinkPool, kLookNs);
  return seen.answered ? step : saying(step, Error::kFine);
}

MoverStep look_detached(const Residency& from, const MoverView& seen, std::uint64_t now_ns) {
  if (seen.detaches) {
    const MoverStep step = stays(from, Action::kNothing, kLookNs);
    return seen.answered ? step : saying(step, Error::kFine);
  }
  if (now_ns < from.not_before_ns) return stays(from, Action::kNothing, kSoonNs);
  return stays(from, Action::kBringContexts, 0);
}

// Its place on another GPU is wanted, or the contexts are.
bool moves_on(const MoverView& seen) {
  const bool stays = !seen.detaches || seen.kept;
  return seen.limited && seen.parked > (stays ? seen.park_limit : 0);
}

MoverStep look_away(Residency from, const MoverView& seen, std::uint64_t now_ns) {
  if (now_ns < from.not_before_ns) return stays(from, Action::kNothing, kSoonNs);
  const bool leaves = seen.limited && seen.resident > seen.limit;
  const bool empty = seen.total == 0 && !seen.detaches;
  if (!leaves && (!seen.limited || empty)) {
    return seen.context ? swapping_in(from, Error::kFine)
                        : no_context(from, Error::kFailed, false, now_ns);
  }
  const bool taken = seen.handoff == Handoff::kTaken || seen.handoff == Handoff::kBegun;
  const bool comes = taken ? seen.handoff == Handoff::kBegun : has_room(from, seen);
  const bool on = moves_on(seen);
  if (!on && !leaves && !comes && !(seen.detaches && seen.resident == 0)) {
    return wait_away(from, seen);
  }
  from.state = MoverState::kSwappedOut;
  if (!on && !leaves && !comes) return stays(from, Action::kTakeContexts, 0);
  if (!seen.context) {
    return backing_off(stays(from, Action::kNothing, kLookNs), Error::kFailed, now_ns);
  }
  if (on) return stays(from, Action::kMoveOn, 0);  // somebody waits for that
  if (leaves) return stays(from, Action::kFindHostRoom, kSoonNs);
  return stays(from, Action::kSwapInPart, 0);
}

MoverStep host_room_found(const Residency& from, const MoverView& seen) {
  const MoverStep step = quiescing(from, Action::kQuiesce);
  return seen.quiesced ? step : saying(step, Error::kFine);
}

MoverStep quiesced(const Residency& from, const MoverView& seen) {
  if (!seen.limited) return swapping_in(from, Error::kFine);
  return enter(from, MoverState::kSwappingOut, Action::kSwapOut);
}

// Work goes on.
MoverStep not_quiesced(const Residency& from, Error error, std::uint64_t now_ns) {
  // Memory is away, so nobody would bring it back: the next look does.
  if (!admits(from.before)) return no_context(from, error, true, now_ns);
  return backing_off(enter(from, from.before, Action::kNothing), error, now_ns);
}

MoverStep swapped_out(Residency to) {
  to.backoff_ns = 0;
  return saying(enter(to, MoverState::kSwappedOut, Action::kNothing), Error::kFine);
}

MoverStep swap_out_stopped(const Residency& from, Error error, std::uint64_t now_ns) {
  if (admits(from.before)) return backing_off(swapping_in(from, error), error, now_ns);
  return backing_off(enter(from, MoverState::kSwappedOut, Action::kNothing), error, now_ns);
}

MoverStep swapped_in(Residency to) {
  const Error error = to.kept;
  to.kept = Error::kFine;
  if (error == Error::kFine) to.backoff_ns = 0;
  return saying(enter(to, MoverState::kResident, Action::kNothing), error);
}

MoverStep swap_in_stopped(const Residency& from, const Input& input, std::uint64_t now_ns) {
  const bool stuck = input.error == Error::kNoDeviceRoom && !input.seen.monitored;
  const Action action = stuck ? Action::kMakeWay : Action::kNothing;
  return backing_off(stays(from, action, kSoonNs), input.error, now_ns);
}

MoverStep part_ended(const Residency& from, const Input& input, std::uint64_t now_ns) {
  const bool awaits = input.seen.handoff != Handoff::kNone;
  const MoverStep step = stays(from, Action::kNothing, awaits ? kHandoffNs : kLookNs);
  return input.event == MoverEvent::kDone ? step : backing_off(step, input.error, now_ns);
}

MoverStep moved_on(Residency to) {
  to.backoff_ns = 0;
  return saying(stays(to, Action::kNothing, 0), Error::kFine);
}

MoverStep consolidated(const Residency& from, bool away) {
  return enter(from, away ? MoverState::kSwappingIn : from.before, Action::kAnswer, 0);
}

MoverStep context_made(const Residency& from, bool away) {
  if (from.state != MoverState::kNoContext) return stays(from, Action::kNothing, 0);
  return enter(from, away ? MoverState::kSwappingIn : MoverState::kResident, Action::kNothing, 0);
}

MoverStep contexts_taken(Residency to) {
  to.backoff_ns = 0;
  return saying(enter(to, MoverState::kDetached, Action::kNothing, kLookNs), Error::kFine);
}

MoverStep contexts_back(Residency to, Error error) {
  to.backoff_ns = 0;
  return saying(enter(to, MoverState::kSwappedOut, Action::kNothing, 0), error);
}

// They are where they were, on the device or not.
MoverStep contexts_unmoved(const Residency& from, Error error, std::uint64_t now_ns) {
  return backing_off(stays(from, Action::kNothing, kSoonNs), error, now_ns);
}

MoverStep look(const Residency& from, const MoverView& seen, std::uint64_t now_ns) {
  if (from.state == MoverState::kDetached) return look_detached(from, seen, now_ns);
  return admits(from.state) ? look_admitted(from, seen, now_ns) : look_away(from, seen, now_ns);
}

MoverStep move_ended(const Residency& from, const Input& input, std::uint64_t now_ns) {
  const bool done = input.event == MoverEvent::kDone;
  switch (from.state) {
    case MoverState::kSwappingOut:
      return done ? swapped_out(from) : swap_out_stopped(from, input.error, now_ns);
    case MoverState::kSwappingIn:
      return done ? swapped_in(from) : swap_in_stopped(from, input, now_ns);
    default:
      return part_ended(from, input, now_ns);
  }
}

}  // namespace

MoverStep next(const Residency& from, const Input& input, std::uint64_t now_ns) {
  switch (input.event) {
    case MoverEvent::kLook:
      return look(from, input.seen, now_ns);
    case MoverEvent::kHostRoom:
      return host_room_found(from, input.seen);
    case MoverEvent::kNoHostRoom:
      return backing_off(stays(from, Action::kNothing, kSoonNs), Error::kNoHostRoom, now_ns);
    case MoverEvent::kNoPeerRoom:
      return backing_off(stays(from, Action::kNothing, kSoonNs), Error::kNoPeerRoom, now_ns);
    case MoverEvent::kMovedOn:
      return moved_on(from);
    case MoverEvent::kQuiesced:
      return quiesced(from, input.seen);
    case MoverEvent::kLate:
      return not_quiesced(from, Error::kBusy, now_ns);
    case MoverEvent::kFailed:
      return not_quiesced(from, Error::kFailed, now_ns);
    case MoverEvent::kDone:
    case MoverEvent::kStopped:
      return move_ended(from, input, now_ns);
    case MoverEvent::kContextLost:
      return no_context(from, input.error, false, now_ns);
    case MoverEvent::kConsolidated:
      return consolidated(from, input.away);
    case MoverEvent::kContextMade:
      return context_made(from, input.away);
    case MoverEvent::kContextsTaken:
      return contexts_taken(from);
    case MoverEvent::kContextsBack:
      return contexts_back(from, input.error);
    case MoverEvent::kContextsStay:
    case MoverEvent::kContextsAway:
      return contexts_unmoved(from, input.error, now_ns);
  }
  return stays(from, Action::kNothing, kLookNs);
}

bool is_legal(MoverState from, MoverState to) {
  if (from == to) return true;
  switch (from) {
    case MoverState::kResident:
      return to == MoverState::kQuiescing;
    case MoverState::kQuiescing:
      return to != MoverState::kSwappedOut && to != MoverState::kDetached;
    case MoverState::kSwappingOut:
      return to == MoverState::kSwappedOut || to == MoverState::kSwappingIn;
    case MoverState::kSwappedOut:
      return to == MoverState::kQuiescing || to == MoverState::kSwappingIn ||
             to == MoverState::kNoContext || to == MoverState::kDetached;
    case MoverState::kDetached:
      return to == MoverState::kSwappedOut || to == MoverState::kNoContext;
    case MoverState::kSwappingIn:
      return to == MoverState::kSwappedOut || to == MoverState::kResident ||
             to == MoverState::kNoContext;
    case MoverState::kNoContext:
      return to == MoverState::kQuiescing || to == MoverState::kSwappingIn ||
             to == MoverState::kResident;
  }
  return false;
}

std::uint32_t phase_of(MoverState state) {
  switch (state) {
    case MoverState::kResident:
    case MoverState::kNoContext:
      return abi::kResident;
    case MoverState::kQuiescing:
    case MoverState::kSwappingOut:
      return abi::kLeaving;
    case MoverState::kSwappedOut:
      return abi::kAbsent;
    case MoverState::kSwappingIn:
      return abi::kReturning;
    case MoverState::kDetached:
      return abi::kDetached;
  }
  return abi::kResident;
}

bool needs_context(Action action) {
  return action == Action::kFindHostRoom || action == Action::kSwapIn ||
         action == Action::kSwapInPart || action == Action::kMoveOn;
}

bool wants_handoff(const Residency& now, const MoverView& seen) {
  const bool leaves = seen.limited && seen.resident > seen.limit;
  return !admits(now.state) && now.state != MoverState::kDetached && !leaves && seen.total != 0;
}

bool has_room(const Residency& now, const MoverView& seen) {
  return !admits(now.state) && seen.resident < seen.total && seen.resident < seen.limit &&
         seen.limit - seen.resident >= std::min(kLeastPart, seen.total - seen.resident);
}

bool may_offer(const Residency& now, const MoverView& seen) {
  return admits(now.state) && (!seen.limited || seen.total == 0);
}

}  // namespace switchyard::shim::swap::residency
