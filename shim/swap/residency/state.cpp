#include "shim/swap/residency/state.h"

#include <algorithm>

namespace switchyard::shim::swap::residency {
namespace {

Step stays(const Residency& from, Action action, std::uint64_t look_in_ns) {
  return {.to = from, .action = action, .look_in_ns = look_in_ns};
}

Step enter(Residency to, State state, Action action, std::uint64_t look_in_ns = kSoonNs) {
  to.state = state;
  return {.to = to, .action = action, .look_in_ns = look_in_ns};
}

Step saying(Step step, Error error) {
  step.says = true;
  step.error = error;
  return step;
}

// Tried again later, each time twice as late.
Step backing_off(Step step, Error error, std::uint64_t now_ns) {
  Residency& to = step.to;
  to.backoff_ns = std::clamp(2 * to.backoff_ns, kFirstBackoffNs, kLastBackoffNs);
  to.not_before_ns = now_ns + to.backoff_ns;
  step.failed = true;
  return saying(step, error);
}

Step quiescing(Residency to, Action action) {
  to.before = to.state;
  return enter(to, State::kQuiescing, action);
}

// `error`: why it has to come back.
Step swapping_in(Residency to, Error error) {
  to.kept = error;
  return saying(enter(to, State::kSwappingIn, Action::kSwapIn), error);
}

// Nothing can bring it back now, and nothing can work on it: whoever is held shall have the
// driver's own error instead.
Step no_context(Residency to, Error error, bool context_made, std::uint64_t now_ns) {
  to.context_made = context_made;
  return backing_off(enter(to, State::kNoContext, Action::kNothing, kLookNs), error, now_ns);
}

Step look_admitted(const Residency& from, const Seen& seen, std::uint64_t now_ns) {
  if (seen.asked) return quiescing(from, Action::kConsolidate);
  if (seen.total == 0 && !seen.detaches) return stays(from, Action::kShrinkPool, kLookNs);
  if (now_ns < from.not_before_ns) return stays(from, Action::kNothing, kSoonNs);
  if (seen.limited) {
    if (seen.context) return stays(from, Action::kFindHostRoom, kSoonNs);
    return backing_off(stays(from, Action::kNothing, kLookNs), Error::kFailed, now_ns);
  }
  if (from.state == State::kNoContext && from.context_made) return swapping_in(from, Error::kFine);
  if (seen.offers) return stays(from, Action::kNothing, kSoonNs);
  return stays(from, Action::kTendPool, kLookNs);
}

// Work stays held, and there is nothing to move.
Step wait_away(Residency from, const Seen& seen) {
  const bool awaits = seen.handoff != Handoff::kNone;
  from.state = State::kSwappedOut;
  const Step step = awaits ? stays(from, Action::kStandReady, kHandoffNs)
                           : stays(from, Action::kShrinkPool, kLookNs);
  return seen.answered ? step : saying(step, Error::kFine);
}

Step look_detached(const Residency& from, const Seen& seen, std::uint64_t now_ns) {
  if (seen.detaches) {
    const Step step = stays(from, Action::kNothing, kLookNs);
    return seen.answered ? step : saying(step, Error::kFine);
  }
  if (now_ns < from.not_before_ns) return stays(from, Action::kNothing, kSoonNs);
  return stays(from, Action::kBringContexts, 0);
}

// Its place on another GPU is wanted, or the contexts are.
bool moves_on(const Seen& seen) {
  const bool stays = !seen.detaches || seen.kept;
  return seen.limited && seen.parked > (stays ? seen.park_limit : 0);
}

Step look_away(Residency from, const Seen& seen, std::uint64_t now_ns) {
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
  from.state = State::kSwappedOut;
  if (!on && !leaves && !comes) return stays(from, Action::kTakeContexts, 0);
  if (!seen.context) {
    return backing_off(stays(from, Action::kNothing, kLookNs), Error::kFailed, now_ns);
  }
  if (on) return stays(from, Action::kMoveOn, 0);  // somebody waits for that
  if (leaves) return stays(from, Action::kFindHostRoom, kSoonNs);
  return stays(from, Action::kSwapInPart, 0);
}

Step host_room_found(const Residency& from, const Seen& seen) {
  const Step step = quiescing(from, Action::kQuiesce);
  return seen.quiesced ? step : saying(step, Error::kFine);
}

Step quiesced(const Residency& from, const Seen& seen) {
  if (!seen.limited) return swapping_in(from, Error::kFine);
  return enter(from, State::kSwappingOut, Action::kSwapOut);
}

// Work goes on.
Step not_quiesced(const Residency& from, Error error, std::uint64_t now_ns) {
  // Memory is away, so nobody would bring it back: the next look does.
  if (!admits(from.before)) return no_context(from, error, true, now_ns);
  return backing_off(enter(from, from.before, Action::kNothing), error, now_ns);
}

Step swapped_out(Residency to) {
  to.backoff_ns = 0;
  return saying(enter(to, State::kSwappedOut, Action::kNothing), Error::kFine);
}

Step swap_out_stopped(const Residency& from, Error error, std::uint64_t now_ns) {
  if (admits(from.before)) return backing_off(swapping_in(from, error), error, now_ns);
  return backing_off(enter(from, State::kSwappedOut, Action::kNothing), error, now_ns);
}

Step swapped_in(Residency to) {
  const Error error = to.kept;
  to.kept = Error::kFine;
  if (error == Error::kFine) to.backoff_ns = 0;
  return saying(enter(to, State::kResident, Action::kNothing), error);
}

Step swap_in_stopped(const Residency& from, const Input& input, std::uint64_t now_ns) {
  const bool stuck = input.error == Error::kNoDeviceRoom && !input.seen.monitored;
  const Action action = stuck ? Action::kMakeWay : Action::kNothing;
  return backing_off(stays(from, action, kSoonNs), input.error, now_ns);
}

Step part_ended(const Residency& from, const Input& input, std::uint64_t now_ns) {
  const bool awaits = input.seen.handoff != Handoff::kNone;
  const Step step = stays(from, Action::kNothing, awaits ? kHandoffNs : kLookNs);
  return input.event == Event::kDone ? step : backing_off(step, input.error, now_ns);
}

Step moved_on(Residency to) {
  to.backoff_ns = 0;
  return saying(stays(to, Action::kNothing, 0), Error::kFine);
}

Step consolidated(const Residency& from, bool away) {
  return enter(from, away ? State::kSwappingIn : from.before, Action::kAnswer, 0);
}

Step context_made(const Residency& from, bool away) {
  if (from.state != State::kNoContext) return stays(from, Action::kNothing, 0);
  return enter(from, away ? State::kSwappingIn : State::kResident, Action::kNothing, 0);
}

Step contexts_taken(Residency to) {
  to.backoff_ns = 0;
  return saying(enter(to, State::kDetached, Action::kNothing, kLookNs), Error::kFine);
}

Step contexts_back(Residency to, Error error) {
  to.backoff_ns = 0;
  return saying(enter(to, State::kSwappedOut, Action::kNothing, 0), error);
}

// They are where they were, on the device or not.
Step contexts_unmoved(const Residency& from, Error error, std::uint64_t now_ns) {
  return backing_off(stays(from, Action::kNothing, kSoonNs), error, now_ns);
}

Step look(const Residency& from, const Seen& seen, std::uint64_t now_ns) {
  if (from.state == State::kDetached) return look_detached(from, seen, now_ns);
  return admits(from.state) ? look_admitted(from, seen, now_ns) : look_away(from, seen, now_ns);
}

Step move_ended(const Residency& from, const Input& input, std::uint64_t now_ns) {
  const bool done = input.event == Event::kDone;
  switch (from.state) {
    case State::kSwappingOut:
      return done ? swapped_out(from) : swap_out_stopped(from, input.error, now_ns);
    case State::kSwappingIn:
      return done ? swapped_in(from) : swap_in_stopped(from, input, now_ns);
    default:
      return part_ended(from, input, now_ns);
  }
}

}  // namespace

Step next(const Residency& from, const Input& input, std::uint64_t now_ns) {
  switch (input.event) {
    case Event::kLook:
      return look(from, input.seen, now_ns);
    case Event::kHostRoom:
      return host_room_found(from, input.seen);
    case Event::kNoHostRoom:
      return backing_off(stays(from, Action::kNothing, kSoonNs), Error::kNoHostRoom, now_ns);
    case Event::kNoPeerRoom:
      return backing_off(stays(from, Action::kNothing, kSoonNs), Error::kNoPeerRoom, now_ns);
    case Event::kMovedOn:
      return moved_on(from);
    case Event::kQuiesced:
      return quiesced(from, input.seen);
    case Event::kLate:
      return not_quiesced(from, Error::kBusy, now_ns);
    case Event::kFailed:
      return not_quiesced(from, Error::kFailed, now_ns);
    case Event::kDone:
    case Event::kStopped:
      return move_ended(from, input, now_ns);
    case Event::kContextLost:
      return no_context(from, input.error, false, now_ns);
    case Event::kConsolidated:
      return consolidated(from, input.away);
    case Event::kContextMade:
      return context_made(from, input.away);
    case Event::kContextsTaken:
      return contexts_taken(from);
    case Event::kContextsBack:
      return contexts_back(from, input.error);
    case Event::kContextsStay:
    case Event::kContextsAway:
      return contexts_unmoved(from, input.error, now_ns);
  }
  return stays(from, Action::kNothing, kLookNs);
}

bool is_legal(State from, State to) {
  if (from == to) return true;
  switch (from) {
    case State::kResident:
      return to == State::kQuiescing;
    case State::kQuiescing:
      return to != State::kSwappedOut && to != State::kDetached;
    case State::kSwappingOut:
      return to == State::kSwappedOut || to == State::kSwappingIn;
    case State::kSwappedOut:
      return to == State::kQuiescing || to == State::kSwappingIn || to == State::kNoContext ||
             to == State::kDetached;
    case State::kDetached:
      return to == State::kSwappedOut || to == State::kNoContext;
    case State::kSwappingIn:
      return to == State::kSwappedOut || to == State::kResident || to == State::kNoContext;
    case State::kNoContext:
      return to == State::kQuiescing || to == State::kSwappingIn || to == State::kResident;
  }
  return false;
}

std::uint32_t phase_of(State state) {
  switch (state) {
    case State::kResident:
    case State::kNoContext:
      return abi::kResident;
    case State::kQuiescing:
    case State::kSwappingOut:
      return abi::kLeaving;
    case State::kSwappedOut:
      return abi::kAbsent;
    case State::kSwappingIn:
      return abi::kReturning;
    case State::kDetached:
      return abi::kDetached;
  }
  return abi::kResident;
}

bool needs_context(Action action) {
  return action == Action::kFindHostRoom || action == Action::kSwapIn ||
         action == Action::kSwapInPart || action == Action::kMoveOn;
}

bool wants_handoff(const Residency& now, const Seen& seen) {
  const bool leaves = seen.limited && seen.resident > seen.limit;
  return !admits(now.state) && now.state != State::kDetached && !leaves && seen.total != 0;
}

bool has_room(const Residency& now, const Seen& seen) {
  return !admits(now.state) && seen.resident < seen.total && seen.resident < seen.limit &&
         seen.limit - seen.resident >= std::min(kLeastPart, seen.total - seen.resident);
}

bool may_offer(const Residency& now, const Seen& seen) {
  return admits(now.state) && (!seen.limited || seen.total == 0);
}

}  // namespace switchyard::shim::swap::residency
