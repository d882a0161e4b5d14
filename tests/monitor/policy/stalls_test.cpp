// Which rank the others wait for: one test for each row of the table.
#include "monitor/policy/stalls.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::stalls {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kId = 7, kOtherId = 8;
constexpr Operation kReduce{1, 4}, kGather{4, 64};

class Stalls : public ::testing::Test {
 protected:
  Stalls() {
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      all.push_back({static_cast<pid_t>(100 + rank), {{kId, rank, 5, kReduce, now}}});
    }
  }
  // Looks five times a second, as the monitor does.
  std::vector<Stall> pass(Time span) {
    std::vector<Stall> told;
    for (const Time end = now + span; now < end;) {
      now += milliseconds(200);
      told = next(state, all, now);
    }
    return told;
  }
  void launch(std::size_t rank, Operation operation = kReduce, std::size_t place = 0) {
    Place& at = all[rank].places[place];
    ++at.launched;
    at.last = operation;
    at.last_at = now;
  }

  Time now = seconds(100);
  State state;
  std::vector<Process> all;
};

TEST_F(Stalls, EqualRanksAreNotTold) { EXPECT_EQ(pass(seconds(60)), std::vector<Stall>{}); }

TEST_F(Stalls, OneThatIsLateIsToldAfterThreeSeconds) {
  pass(seconds(1));
  launch(0);
  launch(2);
  const Time since = now;
  EXPECT_EQ(pass(seconds(2)), std::vector<Stall>{});
  const auto told = pass(seconds(2));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(
      told[0],
      (Stall{
          .communicator = kId, .rank = 1, .pid = 101, .number = 6, .since = since, .waiting = 2}));
  launch(1);
  EXPECT_EQ(pass(milliseconds(200)), std::vector<Stall>{}) << "it has come";
}

TEST_F(Stalls, OneThatIsBehindAndMovesIsNotLate) {
  launch(0);
  for (int i = 0; i < 20; ++i) {
    for (std::size_t rank = 0; rank < 3; ++rank) launch(rank);
    EXPECT_EQ(pass(seconds(1)), std::vector<Stall>{});
  }
}

TEST_F(Stalls, OneThatComesLateHasItsTimeForTheNextOne) {
  pass(seconds(1));
  for (const std::size_t rank : {0, 2, 0, 2}) launch(rank);
  EXPECT_EQ(pass(seconds(5)).size(), 1u);
  launch(1);  // the others wait for one more, as before
  EXPECT_EQ(pass(seconds(2)), std::vector<Stall>{});
  EXPECT_EQ(pass(seconds(2)).size(), 1u);
}

TEST_F(Stalls, OneThatIsHeldByUsIsToldAsHeld) {
  pass(seconds(1));
  launch(0);
  all[1].hold = Hold::kPause;
  const auto told = pass(seconds(10));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].hold, Hold::kPause);
  EXPECT_EQ(told[1].hold, Hold::kNone) << "it is free, and late";
  all[2].hold = Hold::kPause;
  const auto held = pass(seconds(10));
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].hold, Hold::kPause);
  EXPECT_EQ(held[1].hold, Hold::kPause);
  EXPECT_GE(held[1].held_since, held[0].held_since + seconds(9));
}

TEST_F(Stalls, TheTimeOfAHoldIsNobodysFault) {
  launch(0);
  all[1].hold = all[2].hold = Hold::kPause;
  pass(seconds(10));
  all[1].hold = all[2].hold = Hold::kNone;
  EXPECT_EQ(pass(seconds(2)), std::vector<Stall>{});
  EXPECT_EQ(pass(seconds(2)).size(), 2u);
}

TEST_F(Stalls, OneWhoseProcessHasEndedIsGone) {
  pass(seconds(1));
  all.pop_back();
  EXPECT_EQ(pass(seconds(10)), std::vector<Stall>{}) << "nobody waits for it yet";
  launch(0);
  launch(1);
  const auto told = pass(seconds(4));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].rank, 2u);
  EXPECT_EQ(told[0].pid, 102);
  EXPECT_TRUE(told[0].gone);
}

TEST_F(Stalls, ACommunicatorThatEndedIsForgotten) {
  pass(seconds(1));
  all[2].places.clear();
  launch(0);
  launch(1);
  EXPECT_EQ(pass(seconds(10)), std::vector<Stall>{});
  all.clear();
  EXPECT_EQ(pass(seconds(1)), std::vector<Stall>{});
  EXPECT_TRUE(state.communicators.empty());
}

TEST_F(Stalls, AnotherOperationAtTheSameNumberIsTold) {
  pass(seconds(1));
  launch(0);
  launch(1, kGather);
  launch(2);
  EXPECT_EQ(pass(seconds(2)), std::vector<Stall>{});
  const auto told = pass(seconds(2));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].what, What::kOther);
  EXPECT_EQ(told[0].rank, 1u);
  EXPECT_EQ(told[0].number, 6u);
  EXPECT_EQ(told[0].waiting, 2u);
}

TEST_F(Stalls, AnOperationThatIsNotKnownIsNotAnother) {
  launch(0);
  launch(1, {});
  launch(2);
  EXPECT_EQ(pass(seconds(10)), std::vector<Stall>{});
}

TEST_F(Stalls, OneThatIsStoppedAfterItLaunchedIsTold) {
  pass(seconds(1));
  for (std::size_t rank = 0; rank < 3; ++rank) launch(rank);
  all[1].stopped = true;
  const Time since = now + milliseconds(200);
  EXPECT_EQ(pass(seconds(3)), std::vector<Stall>{});
  const auto told = pass(seconds(1));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0], (Stall{.what = What::kStopped,
                            .communicator = kId,
                            .rank = 1,
                            .pid = 101,
                            .number = 6,
                            .since = since,
                            .waiting = 2}));
  all[1].stopped = false;
  EXPECT_EQ(pass(milliseconds(200)), std::vector<Stall>{}) << "it goes on";
  all[1].stopped = true;
  EXPECT_EQ(pass(seconds(2)), std::vector<Stall>{}) << "it has its time anew";
}

TEST_F(Stalls, OneThatIsStoppedWhileOthersGoOnIsNotTold) {
  all[1].stopped = true;
  for (int second = 0; second < 10; ++second) {
    for (std::size_t rank = 0; rank < 3; ++rank) launch(rank);
    EXPECT_EQ(pass(seconds(1)), std::vector<Stall>{});
  }
}

TEST_F(Stalls, WhereAllAreStoppedNobodyIsTold) {
  for (Process& each : all) each.stopped = true;
  EXPECT_EQ(pass(seconds(10)), std::vector<Stall>{});
}

TEST_F(Stalls, OneThatIsStoppedDuringAHoldIsNotTold) {
  all[1].stopped = true;
  all[0].hold = Hold::kPause;
  EXPECT_EQ(pass(seconds(10)), std::vector<Stall>{});
}

TEST_F(Stalls, AnotherOperationIsNothingDuringAHold) {
  launch(0);
  launch(1, kGather);
  launch(2);
  for (Process& each : all) each.hold = Hold::kPause;
  EXPECT_EQ(pass(seconds(10)), std::vector<Stall>{});
}

TEST_F(Stalls, OneThatWaitsItselfIsNotToBlame) {
  // Ranks 1 and 2 have a communicator of their own, in which rank 1 waits for rank 2.
  all[1].places.push_back({kOtherId, 0, 3, kGather, now});
  all[2].places.push_back({kOtherId, 1, 3, kGather, now});
  pass(seconds(1));
  launch(0);
  launch(1, kGather, 1);
  const auto told = pass(seconds(4));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].pid, 102);
  EXPECT_EQ(told[1].pid, 102);
}

TEST_F(Stalls, ThoseThatWaitForEachOtherAreAllTold) {
  all[0].places.push_back({kOtherId, 0, 3, kGather, now});
  all[1].places.push_back({kOtherId, 1, 3, kGather, now});
  all.pop_back();
  pass(seconds(1));
  launch(0);
  launch(1, kGather, 1);
  EXPECT_EQ(pass(seconds(4)).size(), 2u);
}

TEST_F(Stalls, WhoClaimsToBeManyRanksIsBounded) {
  for (std::uint32_t rank = 0; rank < 3 * kMostRanks; ++rank) {
    all = {{100, {{kId, 0, 5}}}, {static_cast<pid_t>(1000 + rank), {{kId, 1 + rank, 5}}}};
    next(state, all, now);
  }
  EXPECT_EQ(state.communicators.at(kId).size(), kMostRanks);
}

TEST_F(Stalls, ARankThatIsReplacedBeginsAnew) {
  pass(seconds(1));
  all[1] = {201, {{kId, 1, 0, {}, Time{0}}}};
  EXPECT_EQ(pass(seconds(2)), std::vector<Stall>{});
}

// A process may claim to be many ranks.
TEST_F(Stalls, NoMoreAreToldThanPeopleRead) {
  for (std::uint32_t rank = 3; rank < 500; ++rank) {
    all.push_back({static_cast<pid_t>(100 + rank), {{kId, rank, 5, kReduce, now}}});
  }
  pass(seconds(1));
  launch(0);
  const auto told = pass(seconds(5));
  ASSERT_EQ(told.size(), kMostTold);
  EXPECT_EQ(told[0].rank, 1u);
  EXPECT_EQ(told[0].waiting, 1u);
}

TEST_F(Stalls, OfThoseThatHaveEndedNoMoreAreKnownThanThat) {
  const Process first = all[0];
  for (std::uint32_t i = 0; i < 3 * kMostGone; ++i) {
    const auto pid = static_cast<pid_t>(1000 + i);
    all = {first, {pid, {{kId + i % 4, 1 + i / 4, 5, kReduce, now}, {kId + i % 4, 0, 5}}}};
    for (std::uint64_t id = kId; id < kId + 4; ++id) all[0].places.push_back({id, 9999, 5});
    pass(milliseconds(200));
  }
  std::size_t gone = 0;
  for (const auto& [id, ranks] : state.communicators) {
    for (const auto& [rank, member] : ranks) gone += member.present ? 0 : 1;
  }
  EXPECT_GT(gone, kMostGone / 2);
  EXPECT_LE(gone, kMostGone);
}

}  // namespace
}  // namespace switchyard::monitor::stalls
