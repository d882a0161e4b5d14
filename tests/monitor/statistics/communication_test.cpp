// Timings of collectives, from the words of pages to the listing.
#include "monitor/statistics/communication.h"

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

using abi::TimingMark;

constexpr std::uint64_t kTrainingId = 78;
constexpr std::uint32_t kAllReduce = 1, kSends = 9;

class CommunicationListing : public ::testing::Test {
 protected:
  CommunicationListing() {
    place(first, 0);
    place(second, 1);
    ask();
    pass(milliseconds(1000));
  }

  static void place(const Joined& who, std::uint32_t rank, std::uint32_t ranks = 2) {
    who.shim.joins_communicator(kTrainingId, rank, ranks, 3);
  }
  static void mark(const Joined& who, TimingMark which, std::uint32_t began_us = 0,
                   std::uint32_t took_ns = 0) {
    who.shim.tell_timing(abi::timing_mark(0, which), began_us, took_ns);
  }
  static void collective(const Joined& who, std::uint64_t number, std::uint32_t began_us,
                         std::uint32_t took_us, std::uint32_t kind = kAllReduce) {
    who.shim.tell_timing(abi::collective_record(3, kind, number), began_us, took_us * 1000);
  }
  // Iterations of 1 ms: of each, 0.2 ms of communication, of which half is waited for.
  void train(const Joined& who, int count, std::uint32_t from_us = 0) {
    for (int i = 0; i < count; ++i) {
      const std::uint32_t at = from_us + static_cast<std::uint32_t>(i) * 1000;
      collective(who, static_cast<std::uint64_t>(i) + 1, at, 200);
      mark(who, TimingMark::kStalled, at + 100, 100'000);
    }
  }
  json ask() { return rig.ask({{"op", "ps"}, {"iterations", true}})["jobs"][0]; }
  json process(std::size_t at = 0) { return rig.job()["processes"][at]; }
  void pass(Time span) {
    for (const Time end = rig.now + span; rig.now < end;) rig.pass(milliseconds(200));
  }
  static bool asked(const Joined& who) {
    return (who.lane().attention & abi::kTimeCollectives) != 0;
  }

  Rig rig{2};
  Ask x{.job = "x", .name = "x", .swappable = "yes"};
  Joined first = rig.runs(x), second = rig.runs(x);
};

TEST_F(CommunicationListing, SharesAreThoseOfTheTimings) {
  train(first, 41);
  pass(milliseconds(200));
  const json said = process();
  EXPECT_EQ(said["communication_state"], "timed");
  EXPECT_NEAR(said["communication_ratio"].get<double>(), 0.2, 1e-6);
  EXPECT_NEAR(said["communication_hidden_ratio"].get<double>(), 0.5, 0.01);
  EXPECT_TRUE(said["communication_peers_ratio"].is_null()) << "the other rank is not timed";
}

TEST_F(CommunicationListing, WaitsForPeersAreWhatALateRankCosts) {
  for (std::uint32_t i = 0; i <= 10; ++i) {
    collective(first, i, 1000 * i, 400);
    collective(second, i, 77'000 + 1000 * i, 100);
  }
  pass(milliseconds(200));
  EXPECT_NEAR(process(0)["communication_peers_ratio"].get<double>(), 0.3, 1e-6);
  EXPECT_EQ(process(1)["communication_peers_ratio"], 0.0);
}

TEST_F(CommunicationListing, SendsHaveNoNumberThatOthersHave) {
  for (std::uint32_t i = 0; i <= 10; ++i) {
    collective(first, i, 1000 * i, 400, kSends);
    collective(second, i, 1000 * i, 100, kSends);
  }
  pass(milliseconds(200));
  EXPECT_EQ(process(0)["communication_state"], "timed");
  EXPECT_TRUE(process(0)["communication_peers_ratio"].is_null());
}

TEST_F(CommunicationListing, TheClockOfTheGpuGoesRound) {
  train(first, 41, ~0u - 20'000);
  pass(milliseconds(200));
  EXPECT_NEAR(process()["communication_ratio"].get<double>(), 0.2, 1e-6);
}

TEST_F(CommunicationListing, BetweenLooksNothingIsLost) {
  for (std::uint32_t i = 0; i < 5; ++i) {
    for (std::uint32_t n = 0; n < 100; ++n) collective(first, n, 1000 * (100 * i + n), 250);
    pass(milliseconds(200));
  }
  EXPECT_NEAR(process()["communication_ratio"].get<double>(), 0.25, 1e-6);
}

TEST_F(CommunicationListing, WhatTheRingHasLostEndsAStretch) {
  collective(first, 1, 0, 1);
  pass(milliseconds(200));
  for (std::uint32_t n = 0; n < abi::kTimings + 50; ++n) {
    collective(first, n, 50'000'000 + 1000 * n, 500);
  }
  pass(milliseconds(200));
  EXPECT_NEAR(process()["communication_ratio"].get<double>(), 0.5, 1e-6);
  // A single one is enough.
  for (std::uint32_t n = 0; n < abi::kTimings + 2; ++n) {
    collective(second, n, (n == 0 ? 0 : 50'000'000) + 1000 * n, 500);
    if (n == 0) pass(milliseconds(200));
  }
  pass(milliseconds(200));
  EXPECT_NEAR(process(1)["communication_ratio"].get<double>(), 0.5, 1e-6);
}

TEST_F(CommunicationListing, WhatIsOldIsForgotten) {
  train(first, 41);
  pass(seconds(9));
  EXPECT_EQ(process()["communication_state"], "timed");
  pass(seconds(2));
  EXPECT_EQ(process()["communication_state"], "measuring");
  EXPECT_TRUE(process()["communication_ratio"].is_null());
}

TEST_F(CommunicationListing, GraphsAndRefusalsAreToldInsteadOfShares) {
  train(first, 41);
  mark(first, TimingMark::kGraph);
  train(second, 41);
  mark(second, TimingMark::kRefused);
  pass(milliseconds(200));
  EXPECT_EQ(process(0)["communication_state"], "in_graphs");
  EXPECT_TRUE(process(0)["communication_ratio"].is_null());
  EXPECT_EQ(process(1)["communication_state"], "refused");
}

TEST_F(CommunicationListing, TimingsAreAllowedForAsLongAsSomebodyAsks) {
  EXPECT_TRUE(asked(first));
  EXPECT_NE(first.shim.page().process.timing_until, 0u);
  pass(Communication::kTimesFor - seconds(1) - milliseconds(400));
  EXPECT_TRUE(asked(first));
  pass(milliseconds(600));
  EXPECT_FALSE(asked(first));
  EXPECT_EQ(first.shim.page().process.timing_until, first.shim.page().process.timed);
  EXPECT_TRUE(process()["communication_state"].is_null());
}

TEST_F(CommunicationListing, AProcessWithoutPeersIsNotTimed) {
  place(first, 0, 1);
  pass(milliseconds(200));
  EXPECT_FALSE(asked(first));
  EXPECT_TRUE(process()["communication_state"].is_null());
}

TEST_F(CommunicationListing, AHostilePageHarmsNobody) {
  abi::Page& page = first.shim.page();
  for (std::uint32_t i = 0; i < abi::kTimings; ++i) {
    page.timings[i].number = ~i;
    page.timings[i].what = i % 2 == 0 ? ~0u : abi::collective_record(i % 32, 1, i);
    page.timings[i].time_us = i * 0x01010101u;
    page.timings[i].bytes = ~0u;
  }
  page.communicators[3].use = 200;
  for (const std::uint32_t timed : {~0u, 0u, 5u, 0x80000000u, 1u}) {
    page.process.timed = timed;
    rig.pass(milliseconds(200));
    const json said = process();
    if (said["communication_ratio"].is_number()) {
      EXPECT_LE(said["communication_ratio"], 1.0);
    }
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
