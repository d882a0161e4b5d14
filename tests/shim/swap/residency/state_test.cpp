// The table at the head of state.h: each row is a case here. The time is made up.
#include "shim/swap/residency/state.h"

#include <gtest/gtest.h>

namespace switchyard::shim::swap::residency {
namespace {

constexpr std::uint64_t kNow = 1'000'000'000'000;
constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kTotal = 100 * kMiB;

Residency in(State state, State before = State::kResident) {
  return {.state = state, .before = before};
}

// All of it is there, and nobody wants anything.
Seen calm() { return {.total = kTotal, .resident = kTotal}; }
Seen ordered(std::uint64_t limit, std::uint64_t resident = kTotal) {
  return {.limited = true, .limit = limit, .total = kTotal, .resident = resident};
}
Seen away(std::uint64_t resident = 0) {
  return {.total = kTotal, .resident = resident, .quiesced = true};
}
Seen away_under(std::uint64_t limit, std::uint64_t resident = 0) {
  Seen seen = ordered(limit, resident);
  seen.quiesced = true;
  return seen;
}

Step look(const Residency& from, const Seen& seen, std::uint64_t now = kNow) {
  return next(from, {.event = Event::kLook, .seen = seen}, now);
}
Step after(const Residency& from, Event event, const Seen& seen = calm(),
           Error error = Error::kFine) {
  return next(from, {.event = event, .seen = seen, .error = error}, kNow);
}

void expect(const Step& step, State state, Action action) {
  EXPECT_EQ(step.to.state, state);
  EXPECT_EQ(step.action, action);
}
void expect_says(const Step& step, Error error) {
  EXPECT_TRUE(step.says);
  EXPECT_EQ(step.error, error);
}
void expect_backs_off(const Step& step, Error error) {
  EXPECT_TRUE(step.failed);
  expect_says(step, error);
  EXPECT_EQ(step.to.not_before_ns, kNow + kFirstBackoffNs);
}

// --- Resident ---

TEST(ResidencyState, NothingMovesWithoutAnOrder) {
  const Step step = look(in(State::kResident), calm());
  expect(step, State::kResident, Action::kTendPool);
  EXPECT_FALSE(step.says);
  EXPECT_EQ(step.look_in_ns, kLookNs);
}

TEST(ResidencyState, WithAnOrderHostRoomIsFoundWhileWorkGoesOn) {
  for (const std::uint64_t limit : {std::uint64_t{0}, kTotal / 2, kTotal, 2 * kTotal}) {
    const Step step = look(in(State::kResident), ordered(limit));
    expect(step, State::kResident, Action::kFindHostRoom);
    EXPECT_FALSE(step.says);
  }
}

TEST(ResidencyState, WithHostRoomWorkIsHeldAndItSaysSo) {
  const Step step = after(in(State::kResident), Event::kHostRoom, ordered(0));
  expect(step, State::kQuiescing, Action::kQuiesce);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kLeaving);
  EXPECT_EQ(step.to.before, State::kResident);
}

TEST(ResidencyState, WithoutHostRoomNobodyIsHeld) {
  const Step step = after(in(State::kResident), Event::kNoHostRoom, ordered(0));
  expect(step, State::kResident, Action::kNothing);
  expect_backs_off(step, Error::kNoHostRoom);
}

TEST(ResidencyState, WithoutAContextNothingLeaves) {
  Seen seen = ordered(0);
  seen.context = false;
  const Step step = look(in(State::kResident), seen);
  expect(step, State::kResident, Action::kNothing);
  expect_backs_off(step, Error::kFailed);
}

TEST(ResidencyState, AnOrderWaitsForTheEndOfABackoff) {
  Residency from = in(State::kResident);
  from.not_before_ns = kNow + 1;
  expect(look(from, ordered(0)), State::kResident, Action::kNothing);
  EXPECT_EQ(look(from, ordered(0)).look_in_ns, kSoonNs);
  expect(look(from, ordered(0), kNow + 1), State::kResident, Action::kFindHostRoom);
}

TEST(ResidencyState, ARequestToConsolidateComesFirst) {
  Seen seen = ordered(0);
  seen.asked = true;
  Residency from = in(State::kResident);
  from.not_before_ns = kNow + 1;
  const Step step = look(from, seen);
  expect(step, State::kQuiescing, Action::kConsolidate);
  EXPECT_FALSE(step.says) << "it is no answer to the order";
}

TEST(ResidencyState, WhoHasNothingToMoveFollowsNoOrder) {
  Seen seen = ordered(0, 0);
  seen.total = 0;
  expect(look(in(State::kResident), seen), State::kResident, Action::kShrinkPool);
}

TEST(ResidencyState, WhatIsOfferedIsLookedAfterSoon) {
  Seen seen = calm();
  seen.offers = true;
  const Step step = look(in(State::kResident), seen);
  expect(step, State::kResident, Action::kNothing);
  EXPECT_EQ(step.look_in_ns, kSoonNs);
}

// --- Quiescing ---

TEST(ResidencyState, OnceWorkIsDoneMemoryLeaves) {
  const Step step = after(in(State::kQuiescing), Event::kQuiesced, ordered(0));
  expect(step, State::kSwappingOut, Action::kSwapOut);
  EXPECT_FALSE(step.says);
}

TEST(ResidencyState, AnOrderThatWasWithdrawnMeanwhileBringsAllBack) {
  const Step step = after(in(State::kQuiescing), Event::kQuiesced, calm());
  expect(step, State::kSwappingIn, Action::kSwapIn);
  expect_says(step, Error::kFine);
}

TEST(ResidencyState, WorkThatDoesNotEndInTimeGoesOn) {
  for (const State before : {State::kResident, State::kNoContext}) {
    Step step = after(in(State::kQuiescing, before), Event::kLate, ordered(0));
    expect(step, before, Action::kNothing);
    expect_backs_off(step, Error::kBusy);
    step = after(in(State::kQuiescing, before), Event::kFailed, ordered(0));
    expect(step, before, Action::kNothing);
    expect_backs_off(step, Error::kFailed);
  }
}

TEST(ResidencyState, WorkOverMemoryThatIsAwayIsHeldAgainAfterItWasLate) {
  const Step late = after(in(State::kQuiescing, State::kSwappedOut), Event::kLate, ordered(0, 0));
  expect(late, State::kNoContext, Action::kNothing);
  expect_backs_off(late, Error::kBusy);
  const Step step = look(late.to, away(), late.to.not_before_ns);
  expect(step, State::kSwappingIn, Action::kSwapIn);
}

TEST(ResidencyState, WhoAskedToConsolidateIsAnsweredAndWorkGoesOn) {
  for (const State before : {State::kResident, State::kNoContext}) {
    const Step step = after(in(State::kQuiescing, before), Event::kConsolidated);
    expect(step, before, Action::kAnswer);
    EXPECT_FALSE(step.says);
    EXPECT_EQ(step.look_in_ns, 0u);
  }
}

TEST(ResidencyState, WhatAConsolidationLeftAwayComesBackFirst) {
  const Input input{.event = Event::kConsolidated, .seen = calm(), .away = true};
  const Step step = next(in(State::kQuiescing), input, kNow);
  expect(step, State::kSwappingIn, Action::kAnswer);
  EXPECT_EQ(step.look_in_ns, 0u);
}

// --- SwappingOut ---

TEST(ResidencyState, WhatHasLeftIsSaidInAnswerToTheOrder) {
  Residency from = in(State::kSwappingOut);
  from.backoff_ns = kLastBackoffNs;
  const Step step = after(from, Event::kDone, ordered(0, 0));
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kAbsent);
  EXPECT_EQ(step.to.backoff_ns, 0u);
}

TEST(ResidencyState, WhenItStopsAllComesBackForWorkToGoOnAndTheReasonIsKept) {
  const Step step = after(in(State::kSwappingOut, State::kResident), Event::kStopped, ordered(0),
                          Error::kNoHostRoom);
  expect(step, State::kSwappingIn, Action::kSwapIn);
  expect_backs_off(step, Error::kNoHostRoom);
  const Step back = after(step.to, Event::kDone, ordered(0));
  expect(back, State::kResident, Action::kNothing);
  expect_says(back, Error::kNoHostRoom);
  EXPECT_EQ(back.to.backoff_ns, kFirstBackoffNs) << "no order has come to its end";
  EXPECT_EQ(back.to.kept, Error::kFine);
}

TEST(ResidencyState, WhenItStopsAndWorkWasHeldItStaysHeld) {
  const Step step = after(in(State::kSwappingOut, State::kSwappedOut), Event::kStopped, ordered(0),
                          Error::kFailed);
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kFailed);
}

// --- SwappedOut ---

TEST(ResidencyState, ALimitThatFallsMakesMoreLeaveWithoutSayingSo) {
  const Seen seen = away_under(kTotal / 4, kTotal / 2);
  const Step step = look(in(State::kSwappedOut), seen);
  expect(step, State::kSwappedOut, Action::kFindHostRoom);
  const Step found = after(step.to, Event::kHostRoom, seen);
  expect(found, State::kQuiescing, Action::kQuiesce);
  EXPECT_FALSE(found.says) << "work is held already";
  EXPECT_EQ(found.to.before, State::kSwappedOut);
}

TEST(ResidencyState, ALimitThatRisesBringsAPart) {
  const Step step = look(in(State::kSwappedOut), away_under(kTotal / 2));
  expect(step, State::kSwappedOut, Action::kSwapInPart);
  const Step done = after(step.to, Event::kDone, away_under(kTotal / 2, kTotal / 2));
  expect(done, State::kSwappedOut, Action::kNothing);
  EXPECT_FALSE(done.says);
  EXPECT_EQ(done.look_in_ns, kLookNs);
}

TEST(ResidencyState, APartThatStopsIsTriedAgain) {
  const Step step =
      after(in(State::kSwappedOut), Event::kStopped, away_under(kTotal / 2), Error::kNoDeviceRoom);
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kNoDeviceRoom);
}

TEST(ResidencyState, ForLessThanAChunkNothingComesUnlessItIsAll) {
  EXPECT_TRUE(has_room(in(State::kSwappedOut), away_under(kLeastPart)));
  EXPECT_FALSE(has_room(in(State::kSwappedOut), away_under(kLeastPart - 1)));
  EXPECT_TRUE(has_room(in(State::kSwappedOut), away_under(kTotal, kTotal - 1)));
  EXPECT_FALSE(has_room(in(State::kSwappedOut), away_under(kTotal, kTotal)));
  EXPECT_FALSE(has_room(in(State::kResident), away_under(kTotal)));
  expect(look(in(State::kSwappedOut), away_under(kLeastPart - 1)), State::kSwappedOut,
         Action::kShrinkPool);
}

// --- parked on another GPU ---

Seen parked(std::uint64_t bytes, std::uint64_t limit) {
  Seen seen = away_under(0);
  seen.parked = bytes;
  seen.park_limit = limit;
  return seen;
}

TEST(ResidencyState, WhereNothingMayBeParkedAndNoneIsWantedInTheHostNobodyIsHeld) {
  const Step step = after(in(State::kResident), Event::kNoPeerRoom, ordered(0));
  expect(step, State::kResident, Action::kNothing);
  expect_backs_off(step, Error::kNoPeerRoom);
}

TEST(ResidencyState, WhatIsParkedBeyondItsLimitMovesOn) {
  expect(look(in(State::kSwappedOut), parked(2 * kMiB, 2 * kMiB)), State::kSwappedOut,
         Action::kShrinkPool);
  expect(look(in(State::kSwappedOut), parked(2 * kMiB, kMiB)), State::kSwappedOut, Action::kMoveOn);
  expect(look(in(State::kSwappingIn), parked(2 * kMiB, kMiB)), State::kSwappedOut, Action::kMoveOn);
  EXPECT_TRUE(needs_context(Action::kMoveOn));
}

TEST(ResidencyState, ItMovesOnBeforeMoreLeavesOrComes) {
  Seen seen = parked(2 * kMiB, kMiB);
  seen.resident = kMiB;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kMoveOn);
  seen.limit = kTotal;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kMoveOn);
}

TEST(ResidencyState, ContextsLeaveWhatIsKeptBehindAndNothingElse) {
  Seen seen = parked(2 * kMiB, 2 * kMiB);
  seen.detaches = true;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kMoveOn);
  seen.kept = true;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kTakeContexts);
  seen.park_limit = kMiB;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kMoveOn);
}

TEST(ResidencyState, WhatMovesOnDoesNotWaitUntilHostMemoryForAllOfItIsPinned) {
  constexpr std::uint64_t kGiB = 1u << 30;
  EXPECT_EQ(moves_on_at_once(kGiB, 0, kGiB / 4), kGiB / 4);
  EXPECT_EQ(moves_on_at_once(kGiB, kGiB / 2, kGiB / 4), kGiB / 2);
  EXPECT_EQ(moves_on_at_once(kGiB, 2 * kGiB, kGiB / 4), kGiB);
  EXPECT_EQ(moves_on_at_once(kGiB / 8, 0, kGiB / 4), kGiB / 8) << "no more than must";
}

TEST(ResidencyState, WhatComesBackIsParkedNoMoreAnyway) {
  Seen seen = parked(2 * kMiB, 0);
  seen.limited = false;
  expect(look(in(State::kSwappedOut), seen), State::kSwappingIn, Action::kSwapIn);
}

TEST(ResidencyState, ThatItHasMovedOnEndsAnErrorOfBefore) {
  Residency from = in(State::kSwappedOut);
  from.backoff_ns = kFirstBackoffNs;
  const Step step = after(from, Event::kMovedOn, parked(kMiB, kMiB));
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(step.to.backoff_ns, 0u);
}

TEST(ResidencyState, WhatDoesNotMoveOnIsTriedAgainLater) {
  const Step step =
      after(in(State::kSwappedOut), Event::kStopped, parked(2 * kMiB, kMiB), Error::kNoHostRoom);
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kNoHostRoom);
}

TEST(ResidencyState, ContextsLeaveOnlyOnceNothingIsParked) {
  Seen seen = parked(kMiB, kMiB);
  seen.detaches = true;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kMoveOn);
  seen.parked = 0;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kTakeContexts);
}

TEST(ResidencyState, ALiftedLimitBringsAllBack) {
  const Step step = look(in(State::kSwappedOut), away());
  expect(step, State::kSwappingIn, Action::kSwapIn);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kReturning);
}

TEST(ResidencyState, WhenAllThatWasAwayIsFreedWorkGoesOnUnderTheLimit) {
  Seen seen = away_under(0);
  seen.total = 0;
  expect(look(in(State::kSwappedOut), seen), State::kSwappingIn, Action::kSwapIn);
}

TEST(ResidencyState, AnOrderThatHoldsAlreadyIsAnsweredOnce) {
  Seen seen = away_under(0);
  seen.answered = false;
  const Step step = look(in(State::kSwappedOut), seen);
  expect(step, State::kSwappedOut, Action::kShrinkPool);
  expect_says(step, Error::kFine);
  EXPECT_FALSE(look(in(State::kSwappedOut), away_under(0)).says);
}

TEST(ResidencyState, MemoryOfAnotherJobStandsReadyAndComesOnceItLeavesThere) {
  Seen seen = away_under(kTotal);
  seen.handoff = Handoff::kTaken;
  const Step ready = look(in(State::kSwappedOut), seen);
  expect(ready, State::kSwappedOut, Action::kStandReady);
  EXPECT_EQ(ready.look_in_ns, kHandoffNs);
  seen.handoff = Handoff::kBegun;
  seen.limit = 0;  // it rises as the other's memory leaves
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kSwapInPart);
  EXPECT_EQ(after(in(State::kSwappedOut), Event::kDone, seen).look_in_ns, kHandoffNs);
}

TEST(ResidencyState, AnOfferIsAwaitedButWhatHasRoomComes) {
  Seen seen = away_under(0);
  seen.handoff = Handoff::kAwaited;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kStandReady);
  seen.limit = kTotal;
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kSwapInPart);
}

TEST(ResidencyState, WithoutAContextAPartIsTriedAgain) {
  for (const Seen& order : {away_under(kTotal), away_under(0, kTotal)}) {
    Seen seen = order;
    seen.context = false;
    const Step step = look(in(State::kSwappedOut), seen);
    expect(step, State::kSwappedOut, Action::kNothing);
    expect_backs_off(step, Error::kFailed);
  }
}

// --- SwappingIn ---

TEST(ResidencyState, WhenAllIsBackWorkGoesOn) {
  Residency from = in(State::kSwappingIn);
  from.backoff_ns = kLastBackoffNs;
  const Step step = after(from, Event::kDone, calm());
  expect(step, State::kResident, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(step.to.backoff_ns, 0u);
}

TEST(ResidencyState, WithoutRoomItIsTriedAgainLaterAndLater) {
  Residency from = in(State::kSwappingIn);
  std::uint64_t expected = kFirstBackoffNs;
  for (int i = 0; i < 12; ++i) {
    const Step step = after(from, Event::kStopped, away(), Error::kNoDeviceRoom);
    expect(step, State::kSwappingIn, Action::kNothing);
    expect_says(step, Error::kNoDeviceRoom);
    EXPECT_EQ(step.to.not_before_ns, kNow + expected);
    expected = std::min(2 * expected, kLastBackoffNs);
    from = step.to;
  }
  EXPECT_EQ(from.backoff_ns, kLastBackoffNs);
}

TEST(ResidencyState, WithoutRoomAndMonitorItMayMakeWay) {
  Seen seen = away();
  seen.monitored = false;
  expect(after(in(State::kSwappingIn), Event::kStopped, seen, Error::kNoDeviceRoom),
         State::kSwappingIn, Action::kMakeWay);
  expect(after(in(State::kSwappingIn), Event::kStopped, seen, Error::kFailed), State::kSwappingIn,
         Action::kNothing);
}

TEST(ResidencyState, AnOrderStopsTheReturn) {
  expect(look(in(State::kSwappingIn), away_under(0, kTotal / 2)), State::kSwappedOut,
         Action::kFindHostRoom);
  Seen seen = away_under(0);
  seen.answered = false;
  const Step step = look(in(State::kSwappingIn), seen);
  expect(step, State::kSwappedOut, Action::kShrinkPool);
  expect_says(step, Error::kFine);
}

TEST(ResidencyState, WithoutAContextWorkFailsByItself) {
  Seen seen = away();
  seen.context = false;
  for (const State state : {State::kSwappedOut, State::kSwappingIn}) {
    const Step step = look(in(state), seen);
    expect(step, State::kNoContext, Action::kNothing);
    expect_backs_off(step, Error::kFailed);
    EXPECT_EQ(phase_of(step.to.state), abi::kResident);
  }
  const Step lost = after(in(State::kSwappingIn), Event::kContextLost, away(), Error::kFailed);
  expect(lost, State::kNoContext, Action::kNothing);
  expect_backs_off(lost, Error::kFailed);
}

// --- NoContext ---

TEST(ResidencyState, TheNextContextBringsMemoryBack) {
  Input input{.event = Event::kContextMade, .seen = {}, .away = true};
  const Step made = next(in(State::kNoContext), input, kNow);
  expect(made, State::kSwappingIn, Action::kNothing);
  expect(look(made.to, away()), State::kSwappingIn, Action::kSwapIn);
  input.away = false;
  expect(next(in(State::kNoContext), input, kNow), State::kResident, Action::kNothing);
}

TEST(ResidencyState, AContextThatIsMadeChangesNothingElse) {
  for (const State state : {State::kResident, State::kSwappedOut, State::kSwappingIn}) {
    const Input input{.event = Event::kContextMade, .seen = {}, .away = true};
    expect(next(in(state), input, kNow), state, Action::kNothing);
  }
}

TEST(ResidencyState, UntilThenNothingIsBroughtBack) {
  expect(look(in(State::kNoContext), away()), State::kNoContext, Action::kTendPool);
}

TEST(ResidencyState, AnOrderWithoutAContextIsFollowedAsWhenResident) {
  expect(look(in(State::kNoContext), ordered(0)), State::kNoContext, Action::kFindHostRoom);
  Seen seen = calm();
  seen.asked = true;
  expect(look(in(State::kNoContext), seen), State::kQuiescing, Action::kConsolidate);
}

// --- Detached ---

Seen detaching(std::uint64_t resident = 0) {
  Seen seen = away_under(0, resident);
  seen.detaches = true;
  return seen;
}

TEST(ResidencyState, OnceNothingIsLeftTheContextsAreTaken) {
  expect(look(in(State::kSwappedOut), detaching()), State::kSwappedOut, Action::kTakeContexts);
  expect(look(in(State::kSwappedOut), detaching(kMiB)), State::kSwappedOut, Action::kFindHostRoom);
  EXPECT_FALSE(needs_context(Action::kTakeContexts));
}

TEST(ResidencyState, TheContextsLeaveAlsoWhereNoMemoryIsToBeMoved) {
  Seen seen = detaching();
  seen.total = 0;
  expect(look(in(State::kResident), seen), State::kResident, Action::kFindHostRoom);
  expect(look(in(State::kSwappedOut), seen), State::kSwappedOut, Action::kTakeContexts);
}

TEST(ResidencyState, ThatTheContextsAreTakenIsSaidInAnswerToTheOrder) {
  const Step step = after(in(State::kSwappedOut), Event::kContextsTaken, detaching());
  expect(step, State::kDetached, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kDetached);
}

TEST(ResidencyState, ContextsThatStayAreTriedAgainLater) {
  const Step step =
      after(in(State::kSwappedOut), Event::kContextsStay, detaching(), Error::kContextsStay);
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kContextsStay);
}

TEST(ResidencyState, WhileTheContextsAreAwayNothingIsAskedOfTheDriver) {
  Seen seen = detaching();
  expect(look(in(State::kDetached), seen), State::kDetached, Action::kNothing);
  EXPECT_FALSE(look(in(State::kDetached), seen).says);
  seen.answered = false;
  expect_says(look(in(State::kDetached), seen), Error::kFine);
  seen.handoff = Handoff::kTaken;
  expect(look(in(State::kDetached), seen), State::kDetached, Action::kNothing);
  EXPECT_FALSE(wants_handoff(in(State::kDetached), away()));
  EXPECT_FALSE(may_offer(in(State::kDetached), away()));
  EXPECT_FALSE(admits(State::kDetached));
}

TEST(ResidencyState, AtAnyLowerLevelTheContextsComeFirst) {
  for (const Seen& seen : {away(), away_under(0), away_under(kTotal)}) {
    expect(look(in(State::kDetached), seen), State::kDetached, Action::kBringContexts);
  }
  const Step step = after(in(State::kDetached), Event::kContextsBack, away());
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(step.look_in_ns, 0u);
}

TEST(ResidencyState, ContextsThatCouldNotMoveAreBackAllTheSameWithTheReason) {
  const Step step = after(in(State::kDetached), Event::kContextsBack, away(), Error::kNotMoved);
  expect(step, State::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kNotMoved);
  EXPECT_FALSE(step.failed);
}

TEST(ResidencyState, ContextsThatFindNoRoomAreTriedAgainLater) {
  const Step step = after(in(State::kDetached), Event::kContextsAway, away(), Error::kNoDeviceRoom);
  expect(step, State::kDetached, Action::kNothing);
  expect_backs_off(step, Error::kNoDeviceRoom);
  expect(look(step.to, away(), kNow), State::kDetached, Action::kNothing);
}

TEST(ResidencyState, ContextsThatTheDriverHasLostLetWorkFailByItself) {
  const Step step = after(in(State::kDetached), Event::kContextLost, away(), Error::kFailed);
  expect(step, State::kNoContext, Action::kNothing);
  expect_backs_off(step, Error::kFailed);
}

// --- what the executor asks ---

TEST(ResidencyState, WorkIsAdmittedWhenAllIsThereOrNothingCanBringItBack) {
  EXPECT_TRUE(admits(State::kResident));
  EXPECT_TRUE(admits(State::kNoContext));
  for (const State state :
       {State::kQuiescing, State::kSwappingOut, State::kSwappedOut, State::kSwappingIn}) {
    EXPECT_FALSE(admits(state));
  }
}

TEST(ResidencyState, AnothersMemoryIsWantedOnlyWhileOursIsAway) {
  EXPECT_TRUE(wants_handoff(in(State::kSwappedOut), away_under(kTotal)));
  EXPECT_TRUE(wants_handoff(in(State::kSwappingIn), away()));
  EXPECT_FALSE(wants_handoff(in(State::kSwappedOut), away_under(0, kTotal)));
  EXPECT_FALSE(wants_handoff(in(State::kResident), calm()));
  Seen nothing = away();
  nothing.total = 0;
  EXPECT_FALSE(wants_handoff(in(State::kSwappedOut), nothing));
}

TEST(ResidencyState, WhatLeavesSoonIsOfferedOnlyWhileWorkGoesOn) {
  EXPECT_TRUE(may_offer(in(State::kResident), calm()));
  EXPECT_FALSE(may_offer(in(State::kResident), ordered(0)));
  EXPECT_FALSE(may_offer(in(State::kSwappedOut), away()));
}

TEST(ResidencyState, OnlyTheDrawnChangesAreLegal) {
  const State all[kStates] = {State::kResident,   State::kQuiescing,  State::kSwappingOut,
                              State::kSwappedOut, State::kSwappingIn, State::kNoContext,
                              State::kDetached};
  // from, by rows, to each of these, by columns.
  constexpr bool kLegal[kStates][kStates] = {
      {true, true, false, false, false, false, false},  // Resident
      {true, true, true, false, true, true, false},     // Quiescing
      {false, false, true, true, true, false, false},   // SwappingOut
      {false, true, false, true, true, true, true},     // SwappedOut
      {true, false, false, true, true, true, false},    // SwappingIn
      {true, true, false, false, true, true, false},    // NoContext
      {false, false, false, true, false, true, true},   // Detached
  };
  for (unsigned from = 0; from < kStates; ++from) {
    for (unsigned to = 0; to < kStates; ++to) {
      EXPECT_EQ(is_legal(all[from], all[to]), kLegal[from][to]) << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace switchyard::shim::swap::residency
