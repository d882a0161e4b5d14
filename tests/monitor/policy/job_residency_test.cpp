// The table at the head of job_residency.h: each row is a case here. The time is made up.
#include "monitor/policy/job_residency.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::residency {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kNow = std::chrono::hours(1);
constexpr Reason kEachReason[] = {Reason::kUser, Reason::kPause, Reason::kIdle, Reason::kYield,
                                  Reason::kMove};
constexpr State kEachState[] = {State::kResident, State::kSwappingOut, State::kSwappedOut,
                                State::kSwappingIn};

JobResidency in(State state, Reasons wanted_out = {}) {
  JobResidency out;
  out.state = state;
  out.wanted_out = wanted_out;
  out.try_at = kNow + seconds(1);
  return out;
}
// Nothing of it is away.
Seen there() { return {.has_memory = true, .all_there = true, .resident = true}; }
// It is first in the line, and some of it is away.
Seen away() { return {.has_memory = true}; }
Seen behind_another() { return {.has_memory = true, .first = false}; }

Step after(const JobResidency& from, Event event, const Seen& seen = away(), Time now = kNow) {
  return next(from, {.event = event, .seen = seen}, now);
}
Step look(const JobResidency& from, const Seen& seen = away()) {
  return after(from, Event::kLook, seen);
}
Step could_not(const JobResidency& from, const Failure& failure) {
  return next(from, {.event = Event::kStays, .seen = away(), .failure = failure}, kNow);
}
Step wanted(const JobResidency& from, Event event, Reasons reasons) {
  return next(from, {.event = event, .reasons = reasons}, kNow);
}

void expect(const Step& step, State state, Action action) {
  EXPECT_EQ(step.to.state, state);
  EXPECT_EQ(step.action, action);
}

// --- Resident ---

TEST(JobResidencyTable, ResidentPreparesWhileNobodyWantsItOut) {
  const Step step = look(in(State::kResident), there());
  expect(step, State::kResident, Action::kPrepare);
  EXPECT_FALSE(step.changed);
}

TEST(JobResidencyTable, ResidentBeginsToLeaveForEachReason) {
  for (const Reason reason : kEachReason) {
    JobResidency from = in(State::kResident, reason);
    from.failure = {.failed = true, .error = 1};
    const Step step = look(from, {.has_memory = true, .all_there = true, .pinned_bytes = 7});
    expect(step, State::kSwappingOut, Action::kBeginOut);
    EXPECT_TRUE(step.changed);
    EXPECT_EQ(step.to.moves_since, kNow);
    EXPECT_EQ(step.to.pinned_then, 7u);
    EXPECT_EQ(step.to.failure, Failure()) << "it is tried anew";
  }
}

TEST(JobResidencyTable, ResidentFoundAwayWaitsForRoom) {
  const Step step = after(in(State::kResident), Event::kFoundAway);
  expect(step, State::kSwappedOut, Action::kAdopt);
  EXPECT_EQ(step.to.waits_since, kNow);
}

TEST(JobResidencyTable, ItIsResidentSinceItFirstHadMemory) {
  EXPECT_EQ(after(in(State::kResident), Event::kReported, {}).to.resident_since, Time{0});
  JobResidency from = after(in(State::kResident), Event::kReported, there()).to;
  EXPECT_EQ(from.resident_since, kNow);
  from = after(from, Event::kReported, there(), kNow + seconds(1)).to;
  EXPECT_EQ(from.resident_since, kNow);
}

TEST(JobResidencyTable, WhoIsNotHeldIsLeftAloneForAWhileInAnyState) {
  for (unsigned state = 0; state < kStates; ++state) {
    JobResidency from = in(static_cast<State>(state));
    from.worked_at = kNow - seconds(5);
    const Step step = after(from, Event::kNotHeld);
    expect(step, from.state, Action::kNothing);
    EXPECT_EQ(step.to.rests_until, kNow + kRests);
    EXPECT_EQ(step.to.stayed_at, kNow);
    EXPECT_EQ(step.to.worked_at, Time{0}) << "it idles from now on";
    EXPECT_EQ(step.to.wanted_out, from.wanted_out);
  }
}

// --- SwappingOut ---

TEST(JobResidencyTable, SwappingOutIsOrderedAgainWhileAReasonStands) {
  for (const Reason reason : kEachReason) {
    JobResidency from = in(State::kSwappingOut, reason);
    from.arriving = true;
    const Step step = look(from);
    expect(step, State::kSwappingOut, Action::kOrderOut);
    EXPECT_FALSE(step.to.arriving);
  }
}

TEST(JobResidencyTable, SwappingOutWithoutAReasonComesBackInItsTurn) {
  JobResidency from = in(State::kSwappingOut);
  from.try_at = kNow;
  const Step step = look(from);
  expect(step, State::kSwappingOut, Action::kReclaim);
  EXPECT_EQ(step.to.try_at, kNow + kTryEvery);
}

TEST(JobResidencyTable, SwappingOutWithoutAReasonLeavesOnOutOfItsTurn) {
  JobResidency from = in(State::kSwappingOut);
  from.try_at = kNow;
  expect(look(from, behind_another()), State::kSwappingOut, Action::kOrderOut);
  from.try_at = kNow + milliseconds(1);
  expect(look(from), State::kSwappingOut, Action::kOrderOut);
}

TEST(JobResidencyTable, SwappingOutIsLetInWhenThereIsRoom) {
  const Step step = after(in(State::kSwappingOut), Event::kRoom);
  expect(step, State::kSwappingIn, Action::kLetIn);
  EXPECT_EQ(step.to.returns_since, kNow);
  EXPECT_EQ(step.to.moves_since, kNow);
}

TEST(JobResidencyTable, SwappingOutLeavesOnWithoutRoom) {
  expect(after(in(State::kSwappingOut), Event::kNoRoom), State::kSwappingOut, Action::kOrderOut);
}

TEST(JobResidencyTable, SwappingOutGoesOnUntilAllHasLeft) {
  expect(after(in(State::kSwappingOut, Reason::kUser), Event::kLeaves), State::kSwappingOut,
         Action::kNothing);
}

TEST(JobResidencyTable, SwappingOutEndsWhenAllHasLeft) {
  JobResidency from = in(State::kSwappingOut, Reason::kUser);
  from.moves_since = kNow - seconds(3);
  const Step step = after(from, Event::kLeft);
  expect(step, State::kSwappedOut, Action::kSuspend);
  EXPECT_EQ(step.to.cost_out, seconds(3));
  EXPECT_EQ(step.to.waits_since, Time{0}) << "it is wanted out";
}

TEST(JobResidencyTable, WhoHasLeftIsNotTakenForOneThatStays) {
  JobResidency from = in(State::kSwappingOut, Reason::kYield);
  from.stayed_at = kNow - seconds(20);
  EXPECT_EQ(after(from, Event::kLeft).to.stayed_at, Time{0});
}

TEST(JobResidencyTable, SwappingOutThatFailsStaysAndIsLeftAlone) {
  for (const Reason reason : kEachReason) {
    JobResidency from = in(State::kSwappingOut, reason);
    from.worked_at = kNow - seconds(100);
    const Failure failure{.failed = true, .error = 2, .result = 700};
    const Step step = could_not(from, failure);
    expect(step, State::kSwappingIn, Action::kStayIn);
    EXPECT_FALSE(step.to.wanted_out.any());
    EXPECT_EQ(step.to.failure, failure);
    EXPECT_EQ(step.to.stayed_at, kNow);
    EXPECT_EQ(step.to.rests_until, kNow + kRests);
    EXPECT_EQ(step.to.worked_at, Time{0}) << "its idle clock begins anew";
  }
}

TEST(JobResidencyTable, SwappingOutFoundAwayIsLimitedToWhatIsThere) {
  expect(after(in(State::kSwappingOut, Reason::kPause), Event::kFoundAway), State::kSwappingOut,
         Action::kLimitThere);
}

TEST(JobResidencyTable, WorkUntilTheFirstPieceHasLeftIsNoCostOfMoving) {
  JobResidency from = in(State::kSwappingOut, Reason::kUser);
  from.moves_since = kNow - seconds(3);
  EXPECT_EQ(after(from, Event::kReported, there()).to.moves_since, kNow);
  EXPECT_EQ(after(from, Event::kReported, away()).to.moves_since, kNow - seconds(3));
  from.state = State::kSwappedOut;
  EXPECT_EQ(after(from, Event::kReported, there()).to.moves_since, kNow - seconds(3));
}

TEST(JobResidencyTable, AMoveThatPinsHostMemoryCostsLittle) {
  JobResidency from = in(State::kSwappingOut, Reason::kUser);
  from.moves_since = kNow - seconds(3);
  from.pinned_then = 1;
  EXPECT_EQ(after(from, Event::kLeft, {.pinned_bytes = 2}).to.cost_out, kMostOfFirst);
  from.moves_since = kNow - milliseconds(1);
  EXPECT_EQ(after(from, Event::kLeft, {.pinned_bytes = 2}).to.cost_out, milliseconds(1));
}

// --- SwappedOut ---

TEST(JobResidencyTable, SwappedOutIsOrderedAgainWhileAReasonStands) {
  for (const Reason reason : kEachReason) {
    expect(look(in(State::kSwappedOut, reason)), State::kSwappedOut, Action::kOrderOut);
  }
}

Step wanted_with_contexts(const JobResidency& from, Reasons reasons, bool contexts = true) {
  return next(from, {.event = Event::kWantedOut, .reasons = reasons, .contexts = contexts}, kNow);
}

TEST(JobResidencyTable, TheContextsAreOrderedOnceAllMemoryHasLeft) {
  for (const Reason reason : kEachReason) {
    JobResidency from = wanted_with_contexts(in(State::kSwappingOut), reason).to;
    expect(look(from), State::kSwappingOut, Action::kOrderOut);
    from = after(from, Event::kLeft).to;
    expect(look(from), State::kSwappedOut, Action::kOrderContexts);
    expect(after(from, Event::kLeft), State::kSwappedOut, Action::kNothing);
  }
}

TEST(JobResidencyTable, ContextsStayForReasonsThatDoNotTakeThem) {
  JobResidency from = wanted_with_contexts(in(State::kSwappedOut), Reason::kPause).to;
  from = wanted_with_contexts(from, Reason::kUser, false).to;
  expect(look(from), State::kSwappedOut, Action::kOrderContexts);
  from = wanted(from, Event::kWantedIn, Reason::kPause).to;
  expect(look(from), State::kSwappedOut, Action::kOrderOut);
}

TEST(JobResidencyTable, AReasonSaysAnewWhetherItTakesTheContexts) {
  const JobResidency from = wanted_with_contexts(in(State::kSwappedOut), Reason::kPause).to;
  expect(look(wanted_with_contexts(from, Reason::kPause, false).to), State::kSwappedOut,
         Action::kOrderOut);
}

TEST(JobResidencyTable, ContextsThatStayEndAllReasons) {
  const Failure why{.failed = true, .error = 5, .result = 801};
  const JobResidency from =
      wanted_with_contexts(in(State::kSwappedOut), Reasons(Reason::kPause)).to;
  const Step step = could_not(from, why);
  expect(step, State::kSwappedOut, Action::kNothing);
  EXPECT_FALSE(step.to.wanted_out.any());
  EXPECT_FALSE(step.to.contexts_out.any());
  EXPECT_EQ(step.to.failure, why);
}

TEST(JobResidencyTable, SwappedOutWithoutAReasonFollowsTheRoom) {
  const Step step = look(in(State::kSwappedOut));
  expect(step, State::kSwappedOut, Action::kFollowRoom);
  EXPECT_FALSE(step.to.arriving);
}

TEST(JobResidencyTable, SwappedOutBeginsToArriveOnceAsRoomComes) {
  const Seen seen{.has_memory = true, .room_comes = true, .pinned_bytes = 7};
  JobResidency from = look(in(State::kSwappedOut), seen).to;
  EXPECT_TRUE(from.arriving);
  EXPECT_EQ(from.moves_since, kNow);
  EXPECT_EQ(from.pinned_then, 7u);
  from = next(from, {.event = Event::kLook, .seen = seen}, kNow + seconds(1)).to;
  EXPECT_EQ(from.moves_since, kNow) << "the same move";
  EXPECT_FALSE(look(from).to.arriving);
}

TEST(JobResidencyTable, SwappedOutIsCountedInFullInItsTurn) {
  JobResidency from = in(State::kSwappedOut);
  expect(after(from, Event::kRoomFollowed), State::kSwappedOut, Action::kNothing);
  expect(after(from, Event::kRoomFollowed, there()), State::kSwappedOut, Action::kReclaim);
  from.try_at = kNow;
  expect(after(from, Event::kRoomFollowed), State::kSwappedOut, Action::kReclaim);
  expect(after(from, Event::kRoomFollowed, behind_another()), State::kSwappedOut, Action::kNothing);
  from.wanted_out = Reason::kUser;
  expect(after(from, Event::kRoomFollowed), State::kSwappedOut, Action::kNothing);
}

TEST(JobResidencyTable, SwappedOutIsLetInWhenThereIsRoom) {
  JobResidency from = in(State::kSwappedOut);
  from.waits_since = kNow - seconds(1);
  const Step step = after(from, Event::kRoom);
  expect(step, State::kSwappingIn, Action::kLetIn);
  EXPECT_EQ(step.to.waits_since, Time{0});
}

TEST(JobResidencyTable, WhoCameInPartsHasMovedSinceTheFirst) {
  JobResidency from = in(State::kSwappedOut);
  from.arriving = true;
  from.moves_since = kNow - seconds(2);
  const Step step = after(from, Event::kRoom);
  EXPECT_EQ(step.to.moves_since, kNow - seconds(2));
  EXPECT_FALSE(step.to.arriving);
}

TEST(JobResidencyTable, SwappedOutWaitsOnWithoutRoom) {
  const Step step = after(in(State::kSwappedOut), Event::kNoRoom);
  expect(step, State::kSwappedOut, Action::kNothing);
  EXPECT_FALSE(step.changed);
}

TEST(JobResidencyTable, SwappedOutThatStaysInPartWaitsForRoom) {
  const Failure failure{.failed = true, .overdue = true};
  const Step step = could_not(in(State::kSwappedOut, Reason::kUser), failure);
  expect(step, State::kSwappedOut, Action::kNothing);
  EXPECT_TRUE(step.changed);
  EXPECT_FALSE(step.to.wanted_out.any());
  EXPECT_EQ(step.to.failure, failure);
  EXPECT_EQ(step.to.waits_since, kNow);
}

TEST(JobResidencyTable, SwappedOutThatCannotMoveStaysOutForItsOtherReasons) {
  JobResidency from = in(State::kSwappedOut, Reason::kUser);
  from.wanted_out = from.contexts_out = Reason::kUser | Reason::kMove;
  const Step step = could_not(from, {.failed = true, .error = 5});
  expect(step, State::kSwappedOut, Action::kNothing);
  EXPECT_EQ(step.to.wanted_out, Reasons(Reason::kUser));
  EXPECT_EQ(step.to.contexts_out, Reasons(Reason::kUser));
  EXPECT_TRUE(step.to.failure.failed);
}

TEST(JobResidencyTable, APersonWhoWantsItInEndsNoMove) {
  JobResidency from = in(State::kSwappedOut, Reason::kUser);
  from.wanted_out = Reason::kUser | Reason::kMove;
  const Input in{.event = Event::kWantedIn, .reasons = kAllReasons};
  EXPECT_EQ(next(from, in, kNow).to.wanted_out, Reasons(Reason::kMove));
}

TEST(JobResidencyTable, SwappedOutThatHasLeftChangesNothing) {
  for (const Event event : {Event::kLeft, Event::kLeaves}) {
    const Step step = after(in(State::kSwappedOut, Reason::kUser), event);
    expect(step, State::kSwappedOut, Action::kNothing);
    EXPECT_FALSE(step.changed);
  }
}

TEST(JobResidencyTable, SwappedOutFoundAwayIsLimitedToWhatIsThere) {
  expect(after(in(State::kSwappedOut), Event::kFoundAway), State::kSwappedOut, Action::kLimitThere);
}

TEST(JobResidencyTable, WhatKeepsMoreThanItMayIsLeftAlone) {
  const Step step = after(in(State::kSwappedOut, Reason::kYield), Event::kKeeps);
  expect(step, State::kSwappedOut, Action::kNothing);
  EXPECT_EQ(step.to.stayed_at, kNow);
  EXPECT_EQ(step.to.rests_until, kNow + kRests);
  EXPECT_TRUE(step.to.wanted_out.any()) << "it works no more than before";
}

TEST(JobResidencyTable, ItWaitsSinceItWasFirstWantedInAndStillWaits) {
  JobResidency from =
      wanted(in(State::kSwappedOut, Reason::kIdle), Event::kWantedIn, Reason::kIdle).to;
  EXPECT_EQ(from.waits_since, kNow);
  from = next(from, {.event = Event::kRoomCame}, kNow + seconds(1)).to;
  EXPECT_EQ(from.waits_since, kNow);
}

// --- SwappingIn ---

TEST(JobResidencyTable, SwappingInEndsWhenAllIsResident) {
  JobResidency from = in(State::kSwappingIn);
  from.moves_since = kNow - seconds(2);
  expect(after(from, Event::kReported, away()), State::kSwappingIn, Action::kNothing);
  const Step step = after(from, Event::kReported, there());
  expect(step, State::kResident, Action::kNothing);
  EXPECT_EQ(step.to.cost_in, seconds(2));
  EXPECT_EQ(step.to.resident_since, kNow);
}

TEST(JobResidencyTable, SwappingInIsAsResidentForALook) {
  expect(look(in(State::kSwappingIn)), State::kSwappingIn, Action::kPrepare);
  expect(look(in(State::kSwappingIn, Reason::kUser)), State::kSwappingOut, Action::kBeginOut);
}

TEST(JobResidencyTable, SwappingInWhoseRoomIsAnothersWaitsForRoom) {
  expect(after(in(State::kSwappingIn), Event::kFoundAway), State::kSwappedOut, Action::kAdopt);
}

// --- in any state ---

TEST(JobResidencyTable, AReasonIsRememberedUntilTheNextLook) {
  for (const State state : kEachState) {
    for (const Reason reason : kEachReason) {
      const Step step = wanted(in(state), Event::kWantedOut, reason);
      expect(step, state, Action::kNothing);
      EXPECT_TRUE(step.changed);
      EXPECT_EQ(step.to.wanted_out, Reasons(reason));
      EXPECT_FALSE(wanted(step.to, Event::kWantedOut, reason).changed) << "once is enough";
    }
  }
}

TEST(JobResidencyTable, AReasonThatEndsLeavesTheOthers) {
  for (const State state : kEachState) {
    JobResidency from = in(state, kAllReasons);
    from.worked_at = kNow;
    const Step step = wanted(from, Event::kWantedIn, kUntilItWorks);
    expect(step, state, Action::kNothing);
    EXPECT_EQ(step.to.wanted_out, Reason::kUser | Reason::kPause);
    EXPECT_EQ(step.to.try_at, Time{0}) << "tried at once";
    EXPECT_EQ(step.to.worked_at, Time{0}) << "its idle clock begins anew";
  }
}

TEST(JobResidencyTable, OnlyAPersonForgetsAFailure) {
  JobResidency from = in(State::kResident);
  from.failure = {.failed = true, .overdue = true};
  EXPECT_TRUE(wanted(from, Event::kWantedIn, kUntilItWorks).to.failure.failed);
  EXPECT_EQ(wanted(from, Event::kWantedIn, kAllReasons).to.failure, Failure());
}

TEST(JobResidencyTable, RoomThatCameIsTriedAtOnce) {
  for (const State state : kEachState) {
    const Step step = after(in(state), Event::kRoomCame);
    expect(step, state, Action::kNothing);
    EXPECT_EQ(step.to.try_at, Time{0});
  }
}

TEST(JobResidencyTable, WorkRestartsTheIdleClock) {
  for (const State state : kEachState) {
    const Step step = after(in(state), Event::kWorks);
    expect(step, state, Action::kNothing);
    EXPECT_EQ(step.to.worked_at, kNow);
  }
}

TEST(JobResidencyTable, AnAnswerThatNobodyWaitsForChangesNothing) {
  for (const State state : {State::kResident, State::kSwappingIn}) {
    for (const Event event : {Event::kLeaves, Event::kLeft, Event::kStays, Event::kKeeps,
                              Event::kRoomFollowed, Event::kRoom, Event::kNoRoom}) {
      const Step step = after(in(state, Reason::kUser), event, there());
      expect(step, state, Action::kNothing);
      EXPECT_FALSE(step.changed);
      EXPECT_EQ(step.to.stayed_at, Time{0});
    }
  }
}

TEST(JobResidencyTable, OnlyYieldingKeepsAPart) {
  EXPECT_TRUE(Reasons().only_yields());
  EXPECT_TRUE(Reasons(Reason::kYield).only_yields());
  for (const Reason reason : {Reason::kUser, Reason::kPause, Reason::kIdle}) {
    EXPECT_FALSE(Reasons(reason).only_yields());
    EXPECT_FALSE((reason | Reason::kYield).only_yields());
  }
}

TEST(JobResidencyTable, WhatIsNotInTheTableIsIllegal) {
  EXPECT_FALSE(is_legal(State::kResident, State::kSwappingIn));
  EXPECT_FALSE(is_legal(State::kSwappingOut, State::kResident));
  EXPECT_FALSE(is_legal(State::kSwappedOut, State::kResident));
  EXPECT_FALSE(is_legal(State::kSwappedOut, State::kSwappingOut));
}

}  // namespace
}  // namespace switchyard::monitor::residency
