// The table at the head of state.h: each row is a case here. The time is made up.
#include "shim/swap/residency/state.h"

#include <gtest/gtest.h>

namespace switchyard::shim::swap::residency {
namespace {

constexpr std::uint64_t kNow = 1'000'000'000'000;
constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kTotal = 100 * kMiB;

Residency in(MoverState state, MoverState before = MoverState::kResident) {
  return {.state = state, .before = before};
}

// All of it is there, and nobody wants anything.
MoverView calm() { return {.total = kTotal, .resident = kTotal}; }
MoverView ordered(std::uint64_t limit, std::uint64_t resident = kTotal) {
  return {.limited = true, .limit = limit, .total = kTotal, .resident = resident};
}
MoverView away(std::uint64_t resident = 0) {
  return {.total = kTotal, .resident = resident, .quiesced = true};
}
MoverView away_under(std::uint64_t limit, std::uint64_t resident = 0) {
  MoverView seen = ordered(limit, resident);
  seen.quiesced = true;
  return seen;
}

MoverStep look(const Residency& from, const MoverView& seen, std::uint64_t now = kNow) {
  return next(from, {.event = MoverEvent::kLook, .seen = seen}, now);
}
MoverStep after(const Residency& from, MoverEvent event, const MoverView& seen = calm(),
                Error error = Error::kFine) {
  return next(from, {.event = event, .seen = seen, .error = error}, kNow);
}

void expect(const MoverStep& step, MoverState state, Action action) {
  EXPECT_EQ(step.to.state, state);
  EXPECT_EQ(step.action, action);
}
void expect_says(const MoverStep& step, Error error) {
  EXPECT_TRUE(step.says);
  EXPECT_EQ(step.error, error);
}
void expect_backs_off(const MoverStep& step, Error error) {
  EXPECT_TRUE(step.failed);
  expect_says(step, error);
  EXPECT_EQ(step.to.not_before_ns, kNow + kFirstBackoffNs);
}

// --- Resident ---

TEST(ResidencyState, NothingMovesWithoutAnOrder) {
  const MoverStep step = look(in(MoverState::kResident), calm());
  expect(step, MoverState::kResident, Action::kTendPool);
  EXPECT_FALSE(step.says);
  EXPECT_EQ(step.look_in_ns, kLookNs);
}

TEST(ResidencyState, WithAnOrderHostRoomIsFoundWhileWorkGoesOn) {
  for (const std::uint64_t limit : {std::uint64_t{0}, kTotal / 2, kTotal, 2 * kTotal}) {
    const MoverStep step = look(in(MoverState::kResident), ordered(limit));
    expect(step, MoverState::kResident, Action::kFindHostRoom);
    EXPECT_FALSE(step.says);
  }
}

TEST(ResidencyState, WithHostRoomWorkIsHeldAndItSaysSo) {
  const MoverStep step = after(in(MoverState::kResident), MoverEvent::kHostRoom, ordered(0));
  expect(step, MoverState::kQuiescing, Action::kQuiesce);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kLeaving);
  EXPECT_EQ(step.to.before, MoverState::kResident);
}

TEST(ResidencyState, WithoutHostRoomNobodyIsHeld) {
  const MoverStep step = after(in(MoverState::kResident), MoverEvent::kNoHostRoom, ordered(0));
  expect(step, MoverState::kResident, Action::kNothing);
  expect_backs_off(step, Error::kNoHostRoom);
}

TEST(ResidencyState, WithoutAContextNothingLeaves) {
  MoverView seen = ordered(0);
  seen.context = false;
  const MoverStep step = look(in(MoverState::kResident), seen);
  expect(step, MoverState::kResident, Action::kNothing);
  expect_backs_off(step, Error::kFailed);
}

TEST(ResidencyState, AnOrderWaitsForTheEndOfABackoff) {
  Residency from = in(MoverState::kResident);
  from.not_before_ns = kNow + 1;
  expect(look(from, ordered(0)), MoverState::kResident, Action::kNothing);
  EXPECT_EQ(look(from, ordered(0)).look_in_ns, kSoonNs);
  expect(look(from, ordered(0), kNow + 1), MoverState::kResident, Action::kFindHostRoom);
}

TEST(ResidencyState, ARequestToConsolidateComesFirst) {
  MoverView seen = ordered(0);
  seen.asked = true;
  Residency from = in(MoverState::kResident);
  from.not_before_ns = kNow + 1;
  const MoverStep step = look(from, seen);
  expect(step, MoverState::kQuiescing, Action::kConsolidate);
  EXPECT_FALSE(step.says) << "it is no answer to the order";
}

TEST(ResidencyState, WhoHasNothingToMoveFollowsNoOrder) {
  MoverView seen = ordered(0, 0);
  seen.total = 0;
  expect(look(in(MoverState::kResident), seen), MoverState::kResident, Action::kShrinkPool);
}

TEST(ResidencyState, WhatIsOfferedIsLookedAfterSoon) {
  MoverView seen = calm();
  seen.offers = true;
  const MoverStep step = look(in(MoverState::kResident), seen);
  expect(step, MoverState::kResident, Action::kNothing);
  EXPECT_EQ(step.look_in_ns, kSoonNs);
}

// --- Quiescing ---

TEST(ResidencyState, OnceWorkIsDoneMemoryLeaves) {
  const MoverStep step = after(in(MoverState::kQuiescing), MoverEvent::kQuiesced, ordered(0));
  expect(step, MoverState::kSwappingOut, Action::kSwapOut);
  EXPECT_FALSE(step.says);
}

TEST(ResidencyState, AnOrderThatWasWithdrawnMeanwhileBringsAllBack) {
  const MoverStep step = after(in(MoverState::kQuiescing), MoverEvent::kQuiesced, calm());
  expect(step, MoverState::kSwappingIn, Action::kSwapIn);
  expect_says(step, Error::kFine);
}

TEST(ResidencyState, WorkThatDoesNotEndInTimeGoesOn) {
  for (const MoverState before : {MoverState::kResident, MoverState::kNoContext}) {
    MoverStep step = after(in(MoverState::kQuiescing, before), MoverEvent::kLate, ordered(0));
    expect(step, before, Action::kNothing);
    expect_backs_off(step, Error::kBusy);
    step = after(in(MoverState::kQuiescing, before), MoverEvent::kFailed, ordered(0));
    expect(step, before, Action::kNothing);
    expect_backs_off(step, Error::kFailed);
  }
}

TEST(ResidencyState, WorkOverMemoryThatIsAwayIsHeldAgainAfterItWasLate) {
  const MoverStep late =
      after(in(MoverState::kQuiescing, MoverState::kSwappedOut), MoverEvent::kLate, ordered(0, 0));
  expect(late, MoverState::kNoContext, Action::kNothing);
  expect_backs_off(late, Error::kBusy);
  const MoverStep step = look(late.to, away(), late.to.not_before_ns);
  expect(step, MoverState::kSwappingIn, Action::kSwapIn);
}

TEST(ResidencyState, WhoAskedToConsolidateIsAnsweredAndWorkGoesOn) {
  for (const MoverState before : {MoverState::kResident, MoverState::kNoContext}) {
    const MoverStep step = after(in(MoverState::kQuiescing, before), MoverEvent::kConsolidated);
    expect(step, before, Action::kAnswer);
    EXPECT_FALSE(step.says);
    EXPECT_EQ(step.look_in_ns, 0u);
  }
}

TEST(ResidencyState, WhatAConsolidationLeftAwayComesBackFirst) {
  const Input input{.event = MoverEvent::kConsolidated, .seen = calm(), .away = true};
  const MoverStep step = next(in(MoverState::kQuiescing), input, kNow);
  expect(step, MoverState::kSwappingIn, Action::kAnswer);
  EXPECT_EQ(step.look_in_ns, 0u);
}

// --- SwappingOut ---

TEST(ResidencyState, WhatHasLeftIsSaidInAnswerToTheOrder) {
  Residency from = in(MoverState::kSwappingOut);
  from.backoff_ns = kLastBackoffNs;
  const MoverStep step = after(from, MoverEvent::kDone, ordered(0, 0));
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kAbsent);
  EXPECT_EQ(step.to.backoff_ns, 0u);
}

TEST(ResidencyState, WhenItStopsAllComesBackForWorkToGoOnAndTheReasonIsKept) {
  const MoverStep step = after(in(MoverState::kSwappingOut, MoverState::kResident),
                               MoverEvent::kStopped, ordered(0), Error::kNoHostRoom);
  expect(step, MoverState::kSwappingIn, Action::kSwapIn);
  expect_backs_off(step, Error::kNoHostRoom);
  const MoverStep back = after(step.to, MoverEvent::kDone, ordered(0));
  expect(back, MoverState::kResident, Action::kNothing);
  expect_says(back, Error::kNoHostRoom);
  EXPECT_EQ(back.to.backoff_ns, kFirstBackoffNs) << "no order has come to its end";
  EXPECT_EQ(back.to.kept, Error::kFine);
}

TEST(ResidencyState, WhenItStopsAndWorkWasHeldItStaysHeld) {
  const MoverStep step = after(in(MoverState::kSwappingOut, MoverState::kSwappedOut),
                               MoverEvent::kStopped, ordered(0), Error::kFailed);
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kFailed);
}

// --- SwappedOut ---

TEST(ResidencyState, ALimitThatFallsMakesMoreLeaveWithoutSayingSo) {
  const MoverView seen = away_under(kTotal / 4, kTotal / 2);
  const MoverStep step = look(in(MoverState::kSwappedOut), seen);
  expect(step, MoverState::kSwappedOut, Action::kFindHostRoom);
  const MoverStep found = after(step.to, MoverEvent::kHostRoom, seen);
  expect(found, MoverState::kQuiescing, Action::kQuiesce);
  EXPECT_FALSE(found.says) << "work is held already";
  EXPECT_EQ(found.to.before, MoverState::kSwappedOut);
}

TEST(ResidencyState, ALimitThatRisesBringsAPart) {
  const MoverStep step = look(in(MoverState::kSwappedOut), away_under(kTotal / 2));
  expect(step, MoverState::kSwappedOut, Action::kSwapInPart);
  const MoverStep done = after(step.to, MoverEvent::kDone, away_under(kTotal / 2, kTotal / 2));
  expect(done, MoverState::kSwappedOut, Action::kNothing);
  EXPECT_FALSE(done.says);
  EXPECT_EQ(done.look_in_ns, kLookNs);
}

TEST(ResidencyState, APartThatStopsIsTriedAgain) {
  const MoverStep step = after(in(MoverState::kSwappedOut), MoverEvent::kStopped,
                               away_under(kTotal / 2), Error::kNoDeviceRoom);
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kNoDeviceRoom);
}

TEST(ResidencyState, ForLessThanAChunkNothingComesUnlessItIsAll) {
  EXPECT_TRUE(has_room(in(MoverState::kSwappedOut), away_under(kLeastPart)));
  EXPECT_FALSE(has_room(in(MoverState::kSwappedOut), away_under(kLeastPart - 1)));
  EXPECT_TRUE(has_room(in(MoverState::kSwappedOut), away_under(kTotal, kTotal - 1)));
  EXPECT_FALSE(has_room(in(MoverState::kSwappedOut), away_under(kTotal, kTotal)));
  EXPECT_FALSE(has_room(in(MoverState::kResident), away_under(kTotal)));
  expect(look(in(MoverState::kSwappedOut), away_under(kLeastPart - 1)), MoverState::kSwappedOut,
         Action::kShrinkPool);
}

// --- parked on another GPU ---

MoverView parked(std::uint64_t bytes, std::uint64_t limit) {
  MoverView seen = away_under(0);
  seen.parked = bytes;
  seen.park_limit = limit;
  return seen;
}

TEST(ResidencyState, WhereNothingMayBeParkedAndNoneIsWantedInTheHostNobodyIsHeld) {
  const MoverStep step = after(in(MoverState::kResident), MoverEvent::kNoPeerRoom, ordered(0));
  expect(step, MoverState::kResident, Action::kNothing);
  expect_backs_off(step, Error::kNoPeerRoom);
}

TEST(ResidencyState, WhatIsParkedBeyondItsLimitMovesOn) {
  expect(look(in(MoverState::kSwappedOut), parked(2 * kMiB, 2 * kMiB)), MoverState::kSwappedOut,
         Action::kShrinkPool);
  expect(look(in(MoverState::kSwappedOut), parked(2 * kMiB, kMiB)), MoverState::kSwappedOut,
         Action::kMoveOn);
  expect(look(in(MoverState::kSwappingIn), parked(2 * kMiB, kMiB)), MoverState::kSwappedOut,
         Action::kMoveOn);
  EXPECT_TRUE(needs_context(Action::kMoveOn));
}

TEST(ResidencyState, ItMovesOnBeforeMoreLeavesOrComes) {
  MoverView seen = parked(2 * kMiB, kMiB);
  seen.resident = kMiB;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kMoveOn);
  seen.limit = kTotal;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kMoveOn);
}

TEST(ResidencyState, ContextsLeaveWhatIsKeptBehindAndNothingElse) {
  MoverView seen = parked(2 * kMiB, 2 * kMiB);
  seen.detaches = true;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kMoveOn);
  seen.kept = true;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kTakeContexts);
  seen.park_limit = kMiB;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kMoveOn);
}

TEST(ResidencyState, WhatMovesOnDoesNotWaitUntilHostMemoryForAllOfItIsPinned) {
  constexpr std::uint64_t kGiB = 1u << 30;
  EXPECT_EQ(moves_on_at_once(kGiB, 0, kGiB / 4), kGiB / 4);
  EXPECT_EQ(moves_on_at_once(kGiB, kGiB / 2, kGiB / 4), kGiB / 2);
  EXPECT_EQ(moves_on_at_once(kGiB, 2 * kGiB, kGiB / 4), kGiB);
  EXPECT_EQ(moves_on_at_once(kGiB / 8, 0, kGiB / 4), kGiB / 8) << "no more than must";
}

TEST(ResidencyState, WhatComesBackIsParkedNoMoreAnyway) {
  MoverView seen = parked(2 * kMiB, 0);
  seen.limited = false;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappingIn, Action::kSwapIn);
}

TEST(ResidencyState, ThatItHasMovedOnEndsAnErrorOfBefore) {
  Residency from = in(MoverState::kSwappedOut);
  from.backoff_ns = kFirstBackoffNs;
  const MoverStep step = after(from, MoverEvent::kMovedOn, parked(kMiB, kMiB));
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(step.to.backoff_ns, 0u);
}

TEST(ResidencyState, WhatDoesNotMoveOnIsTriedAgainLater) {
  const MoverStep step = after(in(MoverState::kSwappedOut), MoverEvent::kStopped,
                               parked(2 * kMiB, kMiB), Error::kNoHostRoom);
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kNoHostRoom);
}

TEST(ResidencyState, ContextsLeaveOnlyOnceNothingIsParked) {
  MoverView seen = parked(kMiB, kMiB);
  seen.detaches = true;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kMoveOn);
  seen.parked = 0;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kTakeContexts);
}

TEST(ResidencyState, ALiftedLimitBringsAllBack) {
  const MoverStep step = look(in(MoverState::kSwappedOut), away());
  expect(step, MoverState::kSwappingIn, Action::kSwapIn);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kReturning);
}

TEST(ResidencyState, WhenAllThatWasAwayIsFreedWorkGoesOnUnderTheLimit) {
  MoverView seen = away_under(0);
  seen.total = 0;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappingIn, Action::kSwapIn);
}

TEST(ResidencyState, AnOrderThatHoldsAlreadyIsAnsweredOnce) {
  MoverView seen = away_under(0);
  seen.answered = false;
  const MoverStep step = look(in(MoverState::kSwappedOut), seen);
  expect(step, MoverState::kSwappedOut, Action::kShrinkPool);
  expect_says(step, Error::kFine);
  EXPECT_FALSE(look(in(MoverState::kSwappedOut), away_under(0)).says);
}

TEST(ResidencyState, MemoryOfAnotherJobStandsReadyAndComesOnceItLeavesThere) {
  MoverView seen = away_under(kTotal);
  seen.handoff = Handoff::kTaken;
  const MoverStep ready = look(in(MoverState::kSwappedOut), seen);
  expect(ready, MoverState::kSwappedOut, Action::kStandReady);
  EXPECT_EQ(ready.look_in_ns, kHandoffNs);
  seen.handoff = Handoff::kBegun;
  seen.limit = 0;  // it rises as the other's memory leaves
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kSwapInPart);
  EXPECT_EQ(after(in(MoverState::kSwappedOut), MoverEvent::kDone, seen).look_in_ns, kHandoffNs);
}

TEST(ResidencyState, AnOfferIsAwaitedButWhatHasRoomComes) {
  MoverView seen = away_under(0);
  seen.handoff = Handoff::kAwaited;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kStandReady);
  seen.limit = kTotal;
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kSwapInPart);
}

TEST(ResidencyState, WithoutAContextAPartIsTriedAgain) {
  for (const MoverView& order : {away_under(kTotal), away_under(0, kTotal)}) {
    MoverView seen = order;
    seen.context = false;
    const MoverStep step = look(in(MoverState::kSwappedOut), seen);
    expect(step, MoverState::kSwappedOut, Action::kNothing);
    expect_backs_off(step, Error::kFailed);
  }
}

// --- SwappingIn ---

TEST(ResidencyState, WhenAllIsBackWorkGoesOn) {
  Residency from = in(MoverState::kSwappingIn);
  from.backoff_ns = kLastBackoffNs;
  const MoverStep step = after(from, MoverEvent::kDone, calm());
  expect(step, MoverState::kResident, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(step.to.backoff_ns, 0u);
}

TEST(ResidencyState, WithoutRoomItIsTriedAgainLaterAndLater) {
  Residency from = in(MoverState::kSwappingIn);
  std::uint64_t expected = kFirstBackoffNs;
  for (int i = 0; i < 12; ++i) {
    const MoverStep step = after(from, MoverEvent::kStopped, away(), Error::kNoDeviceRoom);
    expect(step, MoverState::kSwappingIn, Action::kNothing);
    expect_says(step, Error::kNoDeviceRoom);
    EXPECT_EQ(step.to.not_before_ns, kNow + expected);
    expected = std::min(2 * expected, kLastBackoffNs);
    from = step.to;
  }
  EXPECT_EQ(from.backoff_ns, kLastBackoffNs);
}

TEST(ResidencyState, WithoutRoomAndMonitorItMayMakeWay) {
  MoverView seen = away();
  seen.monitored = false;
  expect(after(in(MoverState::kSwappingIn), MoverEvent::kStopped, seen, Error::kNoDeviceRoom),
         MoverState::kSwappingIn, Action::kMakeWay);
  expect(after(in(MoverState::kSwappingIn), MoverEvent::kStopped, seen, Error::kFailed),
         MoverState::kSwappingIn, Action::kNothing);
}

TEST(ResidencyState, AnOrderStopsTheReturn) {
  expect(look(in(MoverState::kSwappingIn), away_under(0, kTotal / 2)), MoverState::kSwappedOut,
         Action::kFindHostRoom);
  MoverView seen = away_under(0);
  seen.answered = false;
  const MoverStep step = look(in(MoverState::kSwappingIn), seen);
  expect(step, MoverState::kSwappedOut, Action::kShrinkPool);
  expect_says(step, Error::kFine);
}

TEST(ResidencyState, WithoutAContextWorkFailsByItself) {
  MoverView seen = away();
  seen.context = false;
  for (const MoverState state : {MoverState::kSwappedOut, MoverState::kSwappingIn}) {
    const MoverStep step = look(in(state), seen);
    expect(step, MoverState::kNoContext, Action::kNothing);
    expect_backs_off(step, Error::kFailed);
    EXPECT_EQ(phase_of(step.to.state), abi::kResident);
  }
  const MoverStep lost =
      after(in(MoverState::kSwappingIn), MoverEvent::kContextLost, away(), Error::kFailed);
  expect(lost, MoverState::kNoContext, Action::kNothing);
  expect_backs_off(lost, Error::kFailed);
}

// --- NoContext ---

TEST(ResidencyState, TheNextContextBringsMemoryBack) {
  Input input{.event = MoverEvent::kContextMade, .seen = {}, .away = true};
  const MoverStep made = next(in(MoverState::kNoContext), input, kNow);
  expect(made, MoverState::kSwappingIn, Action::kNothing);
  expect(look(made.to, away()), MoverState::kSwappingIn, Action::kSwapIn);
  input.away = false;
  expect(next(in(MoverState::kNoContext), input, kNow), MoverState::kResident, Action::kNothing);
}

TEST(ResidencyState, AContextThatIsMadeChangesNothingElse) {
  for (const MoverState state :
       {MoverState::kResident, MoverState::kSwappedOut, MoverState::kSwappingIn}) {
    const Input input{.event = MoverEvent::kContextMade, .seen = {}, .away = true};
    expect(next(in(state), input, kNow), state, Action::kNothing);
  }
}

TEST(ResidencyState, UntilThenNothingIsBroughtBack) {
  expect(look(in(MoverState::kNoContext), away()), MoverState::kNoContext, Action::kTendPool);
}

TEST(ResidencyState, AnOrderWithoutAContextIsFollowedAsWhenResident) {
  expect(look(in(MoverState::kNoContext), ordered(0)), MoverState::kNoContext,
         Action::kFindHostRoom);
  MoverView seen = calm();
  seen.asked = true;
  expect(look(in(MoverState::kNoContext), seen), MoverState::kQuiescing, Action::kConsolidate);
}

// --- Detached ---

MoverView detaching(std::uint64_t resident = 0) {
  MoverView seen = away_under(0, resident);
  seen.detaches = true;
  return seen;
}

TEST(ResidencyState, OnceNothingIsLeftTheContextsAreTaken) {
  expect(look(in(MoverState::kSwappedOut), detaching()), MoverState::kSwappedOut,
         Action::kTakeContexts);
  expect(look(in(MoverState::kSwappedOut), detaching(kMiB)), MoverState::kSwappedOut,
         Action::kFindHostRoom);
  EXPECT_FALSE(needs_context(Action::kTakeContexts));
}

TEST(ResidencyState, TheContextsLeaveAlsoWhereNoMemoryIsToBeMoved) {
  MoverView seen = detaching();
  seen.total = 0;
  expect(look(in(MoverState::kResident), seen), MoverState::kResident, Action::kFindHostRoom);
  expect(look(in(MoverState::kSwappedOut), seen), MoverState::kSwappedOut, Action::kTakeContexts);
}

TEST(ResidencyState, ThatTheContextsAreTakenIsSaidInAnswerToTheOrder) {
  const MoverStep step =
      after(in(MoverState::kSwappedOut), MoverEvent::kContextsTaken, detaching());
  expect(step, MoverState::kDetached, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(phase_of(step.to.state), abi::kDetached);
}

TEST(ResidencyState, ContextsThatStayAreTriedAgainLater) {
  const MoverStep step = after(in(MoverState::kSwappedOut), MoverEvent::kContextsStay, detaching(),
                               Error::kContextsStay);
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_backs_off(step, Error::kContextsStay);
}

TEST(ResidencyState, WhileTheContextsAreAwayNothingIsAskedOfTheDriver) {
  MoverView seen = detaching();
  expect(look(in(MoverState::kDetached), seen), MoverState::kDetached, Action::kNothing);
  EXPECT_FALSE(look(in(MoverState::kDetached), seen).says);
  seen.answered = false;
  expect_says(look(in(MoverState::kDetached), seen), Error::kFine);
  seen.handoff = Handoff::kTaken;
  expect(look(in(MoverState::kDetached), seen), MoverState::kDetached, Action::kNothing);
  EXPECT_FALSE(wants_handoff(in(MoverState::kDetached), away()));
  EXPECT_FALSE(may_offer(in(MoverState::kDetached), away()));
  EXPECT_FALSE(admits(MoverState::kDetached));
}

TEST(ResidencyState, AtAnyLowerLevelTheContextsComeFirst) {
  for (const MoverView& seen : {away(), away_under(0), away_under(kTotal)}) {
    expect(look(in(MoverState::kDetached), seen), MoverState::kDetached, Action::kBringContexts);
  }
  const MoverStep step = after(in(MoverState::kDetached), MoverEvent::kContextsBack, away());
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kFine);
  EXPECT_EQ(step.look_in_ns, 0u);
}

TEST(ResidencyState, ContextsThatCouldNotMoveAreBackAllTheSameWithTheReason) {
  const MoverStep step =
      after(in(MoverState::kDetached), MoverEvent::kContextsBack, away(), Error::kNotMoved);
  expect(step, MoverState::kSwappedOut, Action::kNothing);
  expect_says(step, Error::kNotMoved);
  EXPECT_FALSE(step.failed);
}

TEST(ResidencyState, ContextsThatFindNoRoomAreTriedAgainLater) {
  const MoverStep step =
      after(in(MoverState::kDetached), MoverEvent::kContextsAway, away(), Error::kNoDeviceRoom);
  expect(step, MoverState::kDetached, Action::kNothing);
  expect_backs_off(step, Error::kNoDeviceRoom);
  expect(look(step.to, away(), kNow), MoverState::kDetached, Action::kNothing);
}

TEST(ResidencyState, ContextsThatTheDriverHasLostLetWorkFailByItself) {
  const MoverStep step =
      after(in(MoverState::kDetached), MoverEvent::kContextLost, away(), Error::kFailed);
  expect(step, MoverState::kNoContext, Action::kNothing);
  expect_backs_off(step, Error::kFailed);
}

// --- what the executor asks ---

TEST(ResidencyState, WorkIsAdmittedWhenAllIsThereOrNothingCanBringItBack) {
  EXPECT_TRUE(admits(MoverState::kResident));
  EXPECT_TRUE(admits(MoverState::kNoContext));
  for (const MoverState state : {MoverState::kQuiescing, MoverState::kSwappingOut,
                                 MoverState::kSwappedOut, MoverState::kSwappingIn}) {
    EXPECT_FALSE(admits(state));
  }
}

TEST(ResidencyState, AnothersMemoryIsWantedOnlyWhileOursIsAway) {
  EXPECT_TRUE(wants_handoff(in(MoverState::kSwappedOut), away_under(kTotal)));
  EXPECT_TRUE(wants_handoff(in(MoverState::kSwappingIn), away()));
  EXPECT_FALSE(wants_handoff(in(MoverState::kSwappedOut), away_under(0, kTotal)));
  EXPECT_FALSE(wants_handoff(in(MoverState::kResident), calm()));
  MoverView nothing = away();
  nothing.total = 0;
  EXPECT_FALSE(wants_handoff(in(MoverState::kSwappedOut), nothing));
}

TEST(ResidencyState, WhatLeavesSoonIsOfferedOnlyWhileWorkGoesOn) {
  EXPECT_TRUE(may_offer(in(MoverState::kResident), calm()));
  EXPECT_FALSE(may_offer(in(MoverState::kResident), ordered(0)));
  EXPECT_FALSE(may_offer(in(MoverState::kSwappedOut), away()));
}

TEST(ResidencyState, OnlyTheDrawnChangesAreLegal) {
  const MoverState all[kStates] = {MoverState::kResident,    MoverState::kQuiescing,
                                   MoverState::kSwappingOut, MoverState::kSwappedOut,
                                   MoverState::kSwappingIn,  MoverState::kNoContext,
                                   MoverState::kDetached};
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
