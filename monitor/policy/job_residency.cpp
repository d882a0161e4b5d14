#include "monitor/policy/job_residency.h"

#include <algorithm>
#include <cassert>

namespace switchyard::monitor::residency {
namespace {

Step stays(const JobResidency& to, Action action = Action::kNothing) {
  return {.to = to, .action = action};
}

Step enter(JobResidency to, State state, Action action) {
  to.state = state;
  return {.to = to, .action = action};
}

JobResidency begin_move(JobResidency to, const Seen& seen, Time now) {
  to.moves_since = now;
  to.pinned_then = seen.pinned_bytes;
  return to;
}

Time cost_of_move(const JobResidency& from, const Seen& seen, Time now) {
  const Time took = now - from.moves_since;
  return seen.pinned_bytes > from.pinned_then ? std::min(took, kMostOfFirst) : took;
}

// Its limits are lifted. A job that came in parts has been moving since the first of them.
Step swapping_in(JobResidency to, Action action, const Seen& seen, Time now) {
  if (!to.arriving) to = begin_move(to, seen, now);
  to.arriving = false;
  to.returns_since = now;
  return enter(to, State::kSwappingIn, action);
}

Step wanted_in(JobResidency to, Reasons reasons) {
  to.wanted_out = to.wanted_out.without(reasons);
  to.contexts_out = to.contexts_out.without(reasons);
  // A person has seen it, or wants something else by now.
  if (reasons.has(Reason::kUser)) to.failure = {};
  to.worked_at = to.try_at = Time{0};
  return stays(to);
}

Step reported(JobResidency to, const Seen& seen, Time now) {
  if (released(to.state)) {
    // Until its first piece has left it still works: that is no cost of moving.
    const bool works = to.state == State::kSwappingOut && seen.all_there;
    return stays(works ? begin_move(to, seen, now) : to);
  }
  if (to.state == State::kSwappingIn && seen.resident) {
    to.cost_in = cost_of_move(to, seen, now);
    to.resident_since = now;
    to.state = State::kResident;
  }
  if (seen.has_memory && to.resident_since == Time{0}) to.resident_since = now;
  return stays(to);
}

Step found_away(JobResidency to) {
  if (released(to.state)) return stays(to, Action::kLimitThere);
  return enter(to, State::kSwappedOut, Action::kAdopt);
}

// A job that could not leave is asked again later only.
JobResidency backing_off(JobResidency to, Time now) {
  to.stayed_at = now;
  to.rests_until = now + kRests;
  return to;
}

Step begin_out(JobResidency to, const Seen& seen, Time now) {
  to = begin_move(to, seen, now);
  to.failure = {};
  to.arriving = false;
  return enter(to, State::kSwappingOut, Action::kBeginOut);
}

Step order_out(JobResidency to) {
  to.arriving = false;
  const bool contexts = to.state == State::kSwappedOut && to.contexts_out.any();
  return stays(to, contexts ? Action::kOrderContexts : Action::kOrderOut);
}

bool may_try(const JobResidency& from, const Seen& seen, Time now) {
  return seen.first && (now >= from.try_at || seen.all_there);
}

Step reclaim(JobResidency to, Time now) {
  to.try_at = now + kTryEvery;
  return stays(to, Action::kReclaim);
}

Step follow_room(JobResidency to, const Seen& seen, Time now) {
  if (seen.room_comes && !to.arriving) to = begin_move(to, seen, now);
  to.arriving = seen.room_comes;
  return stays(to, Action::kFollowRoom);
}

Step look(const JobResidency& from, const Seen& seen, Time now) {
  const bool out = from.wanted_out.any();
  switch (from.state) {
    case State::kResident:
    case State::kSwappingIn:
      return out ? begin_out(from, seen, now) : stays(from, Action::kPrepare);
    case State::kSwappingOut:
      // It leaves all the way before it stands in line.
      return !out && may_try(from, seen, now) ? reclaim(from, now) : order_out(from);
    case State::kSwappedOut:
      return out ? order_out(from) : follow_room(from, seen, now);
  }
  return stays(from);
}

Step left(JobResidency to, const Seen& seen, Time now) {
  if (to.state != State::kSwappingOut) return stays(to);
  to.cost_out = cost_of_move(to, seen, now);
  to.stayed_at = Time{0};  // whoever has waited since then may ask it again
  return enter(to, State::kSwappedOut, Action::kSuspend);
}

// Nobody wants it out for longer: it would be held for what cannot be.
Step could_not_leave(const JobResidency& from, const Input& input, Time now) {
  if (!released(from.state)) return stays(from);
  // Its memory has left. If it can't move, that is no reason to bring it back.
  const bool moves = from.state == State::kSwappedOut && from.wanted_out.has(Reason::kMove);
  const Reasons ends = moves ? Reasons(Reason::kMove) : kAllReasons.with(Reason::kMove);
  JobResidency to = backing_off(wanted_in(from, ends).to, now);
  to.failure = input.failure;
  // The room promised to it may be another's by now: then it waits.
  if (to.state == State::kSwappedOut) return stays(to);
  return swapping_in(to, Action::kStayIn, input.seen, now);
}

Step room(const JobResidency& from, const Seen& seen, Time now) {
  if (!released(from.state)) return stays(from);
  return swapping_in(from, Action::kLetIn, seen, now);
}

Step no_room(const JobResidency& from) {
  return from.state == State::kSwappingOut ? order_out(from) : stays(from);
}

Step works(JobResidency to, Time now) {
  to.worked_at = now;
  return stays(to);
}

// A reason that wanted it out asks again later. Its idle time counts anew.
Step not_held(const JobResidency& from, Time now) {
  JobResidency to = backing_off(from, now);
  to.worked_at = Time{0};
  return stays(to);
}

Step by_event(const JobResidency& from, const Input& input, Time now) {
  JobResidency to = from;
  switch (input.event) {
    case Event::kWantedOut:
      to.wanted_out = from.wanted_out.with(input.reasons);
      to.contexts_out = input.contexts ? from.contexts_out.with(input.reasons)
                                       : from.contexts_out.without(input.reasons);
      return stays(to);
    case Event::kWantedIn:
      return wanted_in(from, input.reasons);
    case Event::kRoomCame:
      to.try_at = Time{0};
      return stays(to);
    case Event::kWorks:
      return works(from, now);
    case Event::kNotHeld:
      return not_held(from, now);
    case Event::kReported:
      return reported(from, input.seen, now);
    case Event::kFoundAway:
      return found_away(from);
    case Event::kKeeps:
      return stays(from.state == State::kSwappedOut ? backing_off(from, now) : from);
    case Event::kLook:
      return look(from, input.seen, now);
    case Event::kLeaves:
      return stays(from);
    case Event::kLeft:
      return left(from, input.seen, now);
    case Event::kStays:
      return could_not_leave(from, input, now);
    case Event::kRoomFollowed:
      if (from.state != State::kSwappedOut || from.wanted_out.any()) return stays(from);
      return may_try(from, input.seen, now) ? reclaim(from, now) : stays(from);
    case Event::kRoom:
      return room(from, input.seen, now);
    case Event::kNoRoom:
      return no_room(from);
  }
  return stays(from);
}

}  // namespace

Step next(const JobResidency& from, const Input& input, Time now) {
  Step step = by_event(from, input, now);
  JobResidency& to = step.to;
  const bool waits = to.state == State::kSwappedOut && !to.wanted_out.any();
  if (waits && to.waits_since == Time{0}) to.waits_since = now;
  if (!released(to.state)) to.waits_since = Time{0};
  step.changed = to.state != from.state || to.wanted_out != from.wanted_out;
  return step;
}

bool is_legal(State from, State to) {
  if (from == to) return true;
  switch (from) {
    case State::kResident:
      return to == State::kSwappingOut || to == State::kSwappedOut;
    case State::kSwappingOut:
      return to == State::kSwappedOut || to == State::kSwappingIn;
    case State::kSwappedOut:
      return to == State::kSwappingIn;
    case State::kSwappingIn:
      return to != State::kSwappingIn;
  }
  return false;
}

Step Machine::take(const Input& input, Time now) {
  Step step = next(now_, input, now);
  assert(is_legal(now_.state, step.to.state));
  now_ = step.to;
  return step;
}

}  // namespace switchyard::monitor::residency
