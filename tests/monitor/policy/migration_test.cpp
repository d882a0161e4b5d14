// A job's way to another GPU: each row of its table.
#include "monitor/policy/migration.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::migration {
namespace {

constexpr Time kNow = std::chrono::seconds(100);

State in(Stage stage, bool back = false) { return {stage, back, kNow}; }

void expect(const Step& step, Stage stage, bool back, Action action) {
  EXPECT_EQ(step.to.stage, stage);
  EXPECT_EQ(step.to.back, back);
  EXPECT_EQ(step.action, action);
}

TEST(Migration, BeginsWithLeavingWhereNoHostPoolIsSpare) {
  const Step step = begin(false, kNow);
  expect(step, Stage::kLeaving, false, Action::kLeave);
  EXPECT_EQ(step.to.since, kNow);
  EXPECT_TRUE(is_under_way(step.to));
  EXPECT_FALSE(is_under_way({}));
}

TEST(Migration, ASpareHostPoolIsUnpinnedBeforeItLeaves) {
  const Step step = begin(true, kNow);
  expect(step, Stage::kPreparing, false, Action::kPrepare);
  EXPECT_EQ(step.to.since, kNow);
  EXPECT_TRUE(is_under_way(step.to));
  expect(next(step.to, {.any = true, .prepares = true}, kNow), Stage::kPreparing, false,
         Action::kNothing);
  const Step leaves = next(step.to, {.any = true}, kNow + Time(1));
  expect(leaves, Stage::kLeaving, false, Action::kLeave);
  EXPECT_EQ(leaves.to.since, kNow + Time(1));
}

TEST(Migration, WhoDoesNotPrepareInTimeLeavesAllTheSame) {
  const Seen late{.any = true, .prepares = true};
  expect(next(in(Stage::kPreparing), late, kNow + kPreparesWithin - Time(1)), Stage::kPreparing,
         false, Action::kNothing);
  expect(next(in(Stage::kPreparing), late, kNow + kPreparesWithin), Stage::kLeaving, false,
         Action::kLeave);
}

TEST(Migration, WhatIsHeldAnywayPreparesNoLonger) {
  const Seen held{.any = true, .prepares = true, .held = true};
  expect(next(in(Stage::kPreparing), held, kNow), Stage::kLeaving, false, Action::kLeave);
}

TEST(Migration, WhatSpeaksAgainstItOncePreparedEndsItUntouched) {
  const Seen refused{.any = true, .refused = true};
  expect(next(in(Stage::kPreparing), refused, kNow), Stage::kIdle, false, Action::kEnd);
  const Seen not_yet{.any = true, .prepares = true, .refused = true};
  expect(next(in(Stage::kPreparing), not_yet, kNow), Stage::kPreparing, false, Action::kNothing);
}

// The laws: whatever is seen, and whenever.
TEST(Migration, PreparingIsBoundedComesOnceAndFailsInNoOtherWayThanToLeave) {
  for (unsigned bits = 0; bits < 1u << 13; ++bits) {
    const auto bit = [bits](unsigned i) { return (bits >> i & 1) != 0; };
    const Seen seen{.any = bit(0),
                    .prepares = bit(1),
                    .held = bit(2),
                    .refused = bit(3),
                    .stays = bit(4),
                    .away = bit(5),
                    .on_its_way = bit(6),
                    .there = bit(7),
                    .elsewhere = bit(8),
                    .in = bit(9),
                    .comes = bit(12),
                    .does_not_come = bit(10),
                    .cut_off = bit(11)};
    const Step late = next(in(Stage::kPreparing), seen, kNow + kPreparesWithin);
    EXPECT_NE(late.to.stage, Stage::kPreparing);
    EXPECT_FALSE(late.to.back) << "nothing was touched";
    EXPECT_EQ(late.action == Action::kEnd, !seen.any || seen.refused);
    EXPECT_EQ(late.action == Action::kLeave, seen.any && !seen.refused);
    for (const Stage stage : {Stage::kIdle, Stage::kLeaving, Stage::kLanding, Stage::kArriving}) {
      for (const bool back : {false, true}) {
        const Step step = next(in(stage, back), seen, kNow + kPreparesWithin);
        EXPECT_NE(step.to.stage, Stage::kPreparing);
        EXPECT_NE(step.action, Action::kPrepare);
      }
    }
  }
}

TEST(Migration, AnIdleJobDoesNothing) {
  expect(next({}, {.any = true, .away = true, .in = true}, kNow), Stage::kIdle, false,
         Action::kNothing);
}

TEST(Migration, ItWaitsUntilNothingOfItIsOnAGpu) {
  expect(next(in(Stage::kLeaving), {.any = true}, kNow + 10 * kLandsWithin), Stage::kLeaving, false,
         Action::kNothing);
  for (const bool back : {false, true}) {
    const Step step = next(in(Stage::kLeaving, back), {.any = true, .away = true}, kNow + Time(1));
    expect(step, Stage::kLanding, back, Action::kLand);
    EXPECT_EQ(step.to.since, kNow + Time(1));
  }
}

TEST(Migration, WhatStaysHasFailed) {
  for (const bool back : {false, true}) {
    expect(next(in(Stage::kLeaving, back), {.any = true, .stays = true}, kNow), Stage::kArriving,
           true, Action::kArrive);
  }
}

TEST(Migration, ItLandsWhenAllProcessesAreThere) {
  for (const bool back : {false, true}) {
    expect(next(in(Stage::kLanding, back), {.any = true, .on_its_way = true, .there = true}, kNow),
           Stage::kLanding, back, Action::kNothing);
    expect(next(in(Stage::kLanding, back), {.any = true, .there = true}, kNow), Stage::kArriving,
           back, Action::kArrive);
  }
}

TEST(Migration, WhenNoneCouldLandAllAreBackAlready) {
  expect(next(in(Stage::kLanding), {.any = true, .elsewhere = true}, kNow), Stage::kArriving, true,
         Action::kArrive);
}

TEST(Migration, WhenSomeCouldNotLandTheOthersGoBack) {
  const Seen some{.any = true, .there = true, .elsewhere = true};
  expect(next(in(Stage::kLanding), some, kNow), Stage::kLeaving, true, Action::kLeave);
  Seen on_its_way = some;
  on_its_way.on_its_way = true;
  expect(next(in(Stage::kLanding), on_its_way, kNow), Stage::kLanding, false, Action::kNothing);
}

TEST(Migration, WhoDoesNotLandInTimeGoesBack) {
  const Seen late{.any = true, .on_its_way = true};
  expect(next(in(Stage::kLanding), late, kNow + kLandsWithin - Time(1)), Stage::kLanding, false,
         Action::kNothing);
  expect(next(in(Stage::kLanding), late, kNow + kLandsWithin), Stage::kLeaving, true,
         Action::kLeave);
}

TEST(Migration, OnTheWayBackNothingTurnsOnceMore) {
  const Seen some{.any = true, .there = true, .elsewhere = true};
  expect(next(in(Stage::kLanding, true), some, kNow), Stage::kArriving, true, Action::kArrive);
  const Seen late{.any = true, .on_its_way = true};
  expect(next(in(Stage::kLanding, true), late, kNow + kLandsWithin), Stage::kArriving, true,
         Action::kArrive);
  const Seen waits{.any = true, .does_not_come = true};
  const Step step = next(in(Stage::kArriving, true), waits, kNow);
  expect(next(step.to, waits, kNow + kComesWithin), Stage::kIdle, true, Action::kEnd);
}

TEST(Migration, WhatItLeftBehindAndCannotReachLeadsBackOnce) {
  const Seen cut_off{.any = true, .does_not_come = true, .cut_off = true};
  expect(next(in(Stage::kArriving), cut_off, kNow + Time(1)), Stage::kLeaving, true,
         Action::kLeave);
  expect(next(in(Stage::kArriving, true), cut_off, kNow + Time(1)), Stage::kArriving, true,
         Action::kNothing);
}

TEST(Migration, OnTheWayBackWhatItCannotReachEndsIt) {
  const Seen cut_off{.any = true, .does_not_come = true, .cut_off = true};
  Step step = next(in(Stage::kArriving, true), cut_off, kNow);
  step = next(step.to, cut_off, kNow + kComesWithin - Time(1));
  expect(step, Stage::kArriving, true, Action::kNothing);
  expect(next(step.to, cut_off, kNow + kComesWithin), Stage::kIdle, true, Action::kEnd);
}

TEST(Migration, ItEndsWhenItsMemoryIsIn) {
  for (const bool back : {false, true}) {
    expect(next(in(Stage::kArriving, back), {.any = true}, kNow + Time(1)), Stage::kArriving, back,
           Action::kNothing);
    expect(next(in(Stage::kArriving, back), {.any = true, .in = true}, kNow), Stage::kIdle, back,
           Action::kEnd);
  }
}

TEST(Migration, WhoseMemoryDoesNotComeForTooLongGoesBack) {
  const Seen waits{.any = true, .does_not_come = true};
  Step step = next(in(Stage::kArriving), {.any = true}, kNow);
  step = next(step.to, waits, kNow + kComesWithin);
  expect(step, Stage::kArriving, false, Action::kNothing);
  step = next(step.to, waits, kNow + 2 * kComesWithin - Time(1));
  expect(step, Stage::kArriving, false, Action::kNothing);
  expect(next(step.to, waits, kNow + 2 * kComesWithin), Stage::kLeaving, true, Action::kLeave);
}

TEST(Migration, AnAttemptThatIsUnderWaySaysNothingButWhatItBrings) {
  const Seen waits{.any = true, .does_not_come = true};
  const Seen tries{.any = true};
  Step step = next(in(Stage::kArriving), waits, kNow);
  step = next(step.to, tries, kNow + kComesWithin / 2);
  EXPECT_EQ(next(step.to, tries, kNow + kComesWithin).action, Action::kNothing);
  EXPECT_EQ(next(step.to, waits, kNow + kComesWithin).action, Action::kLeave);
  // More of it is there than ever.
  step = next(step.to, {.any = true, .comes = true}, kNow + kComesWithin);
  step = next(step.to, waits, kNow + kComesWithin + Time(1));
  EXPECT_EQ(next(step.to, waits, kNow + 2 * kComesWithin).action, Action::kNothing);
  EXPECT_EQ(next(step.to, waits, kNow + 2 * kComesWithin + Time(1)).action, Action::kLeave);
}

TEST(Migration, WhatIsNotRefusedHasAllTime) {
  const Step step = next(in(Stage::kArriving), {.any = true}, kNow);
  EXPECT_EQ(next(step.to, {.any = true}, kNow + 100 * kComesWithin).action, Action::kNothing);
}

TEST(Migration, ItEndsWithItsLastProcess) {
  for (const Stage stage : {Stage::kLeaving, Stage::kLanding, Stage::kArriving}) {
    expect(next(in(stage), {.away = true}, kNow), Stage::kIdle, false, Action::kEnd);
  }
}

}  // namespace
}  // namespace switchyard::monitor::migration
