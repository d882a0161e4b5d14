// The gradient noise scale, from the words of pages to the listing.
#include "monitor/statistics/gradient_noise.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

constexpr std::uint64_t kGroup = 77, kOther = 78;

class GradientNoiseListing : public ::testing::Test {
 protected:
  static void place(const Joined& who, std::uint32_t rank, std::uint32_t ranks = 2,
                    unsigned slot = 0, std::uint64_t id = kGroup) {
    who.shim.joins_communicator(id, rank, ranks, slot);
  }
  static void tell(const Joined& who, std::uint64_t launched, std::uint64_t elements, double before,
                   double after, std::uint32_t what = abi::kNormSummed) {
    who.shim.tell_norms(what, launched, elements, before, after);
  }
  // So many steps of two buckets: |g_i|² is 3 and |g|² is 2 in each.
  void train(int steps, unsigned slot = 0) {
    for (int i = 0; i < steps; ++i) {
      for (const std::uint64_t elements : {9000u, 10000u}) {
        ++launched_[slot];
        for (const Joined* who : {&first, &second}) {
          tell(*who, launched_[slot], elements, 3, 8, abi::kNormSummed | slot);
        }
      }
      if (i % 20 == 19) rig.pass(milliseconds(200));
    }
    rig.pass(milliseconds(200));
  }
  json noise() { return rig.job()["gradient_noise"]; }
  std::string state() { return noise()["state"]; }

  Rig rig{2};
  Ask x{.job = "x", .name = "x", .gradient_noise = "yes"};
  Joined first = rig.runs(x), second = rig.runs(x);
  std::uint64_t launched_[2] = {};
};

// Layers of one size are told apart by their order.
TEST_F(GradientNoiseListing, WhatAPageHadNoRoomForCountsInNoRound) {
  place(first, 0);
  place(second, 1);
  const auto step = [&](unsigned from = 0, unsigned to = 10) {
    for (unsigned layer = from; layer < to; ++layer) {
      ++launched_[0];
      for (const Joined* who : {&first, &second}) {
        tell(*who, launched_[0], layer == 0 ? 9000 : 10000, 1 + layer, 4 * (1 + layer));
      }
    }
  };
  for (int i = 0; i < 40; ++i) {
    step();
    rig.pass(milliseconds(200));
  }
  step(0, 3);
  rig.pass(milliseconds(200));
  step(3);
  for (int i = 0; i < 26; ++i) step();
  rig.pass(milliseconds(200));
  EXPECT_DOUBLE_EQ(noise()["gradient_square"].get<double>(), 55);
}

TEST_F(GradientNoiseListing, IsThatOfTheRanksTogether) {
  place(first, 0);
  place(second, 1);
  train(60);
  const json said = noise();
  EXPECT_EQ(said["state"], "measured");
  EXPECT_EQ(said["communicator"], "000000000000004d");
  // G = 2 (2 * 2 - 3), S = 2 (3 - 2) / (1/2).
  EXPECT_DOUBLE_EQ(said["gradient_square"], 2);
  EXPECT_DOUBLE_EQ(said["gradient_variance"], 4);
  EXPECT_DOUBLE_EQ(said["critical_batch_ratio"], 1);
  EXPECT_NEAR(said["critical_batch_spread"].get<double>(), 0, 1e-9);
  EXPECT_GE(said["steps"], 40);
}

TEST_F(GradientNoiseListing, TheLibraryIsToldTheCadence) {
  place(first, 0);
  place(second, 1);
  train(30);
  const abi::NormOrder& order = first.shim.page().norm_orders[0];
  EXPECT_EQ(order.stride, 2u);
  EXPECT_TRUE(order.elements == 9000 || order.elements == 10000);
  EXPECT_EQ(second.shim.page().norm_orders[0].elements, order.elements);
}

TEST_F(GradientNoiseListing, WithoutRanksOrGradientsThatIsSaid) {
  rig.pass(milliseconds(200));
  EXPECT_EQ(state(), "one_rank");
  place(first, 0);
  place(second, 1);
  rig.pass(milliseconds(200));
  EXPECT_EQ(state(), "no_gradient");
  first.shim.page().process.unmeasured = bit_of(Unmeasured::kGraph) | 1u << 31;
  rig.pass(milliseconds(200));
  EXPECT_EQ(state(), "not_measured");
  EXPECT_EQ(noise()["unmeasured"], json::array({"graph"}));
  train(2);
  EXPECT_EQ(state(), "measuring");
}

TEST_F(GradientNoiseListing, ARankThatTellsNothingIsSaid) {
  place(first, 0);
  place(second, 1);
  for (std::uint64_t i = 1; i < 100; ++i) tell(first, i, 9000, 3, 8);
  rig.pass(milliseconds(200));
  EXPECT_EQ(state(), "ranks_missing");
  EXPECT_EQ(noise()["telling_ranks"], 1);
  EXPECT_EQ(noise()["ranks"], 2);
}

TEST_F(GradientNoiseListing, OfSeveralCommunicatorsNoneIsChosen) {
  place(first, 0);
  place(second, 1);
  place(first, 0, 2, 1, kOther);
  place(second, 1, 2, 1, kOther);
  train(60);
  EXPECT_EQ(state(), "measured");
  train(60, 1);
  EXPECT_EQ(state(), "several_communicators");
  EXPECT_TRUE(noise()["critical_batch_ratio"].is_null());
}

TEST_F(GradientNoiseListing, WhoDoesNotAskHasNone) {
  Ask y{.job = "y", .name = "y"};
  const Joined other = rig.runs(y);
  rig.pass(milliseconds(200));
  EXPECT_TRUE(rig.ask({{"op", "ps"}})["jobs"][1]["gradient_noise"].is_null());
}

// Of a user of many processes only the last of each page are read.
TEST_F(GradientNoiseListing, OfMoreThanItsPartTheLatestCount) {
  place(first, 0);
  place(second, 1);
  train(60);
  std::vector<Joined> many;
  for (int i = 0; i < 126; ++i) many.push_back(rig.join({.job = "y", .name = "y"}));
  const double before = noise()["gradient_square"];
  for (const Joined* who : {&first, &second}) {
    for (std::uint64_t i = 1; i <= 100; ++i) tell(*who, launched_[0] + i, 9000 + i % 2, 3e6, 8e6);
  }
  launched_[0] += 100;
  for (int i = 0; i < 128; ++i) {
    ++launched_[0];
    for (const Joined* who : {&first, &second}) tell(*who, launched_[0], 9000 + i % 2 * 1000, 3, 8);
  }
  rig.pass(milliseconds(200));
  EXPECT_DOUBLE_EQ(noise()["gradient_square"], before);
}

TEST_F(GradientNoiseListing, ACommunicatorThatEndsIsForgotten) {
  place(first, 0);
  place(second, 1);
  train(60);
  for (const Joined* who : {&first, &second}) who->shim.page().communicators[0].use = 0;
  rig.pass(milliseconds(200));
  EXPECT_EQ(state(), "one_rank");
}

TEST_F(GradientNoiseListing, AHostilePageHarmsNobody) {
  place(first, 0, ~0u);  // ranks beyond all measure
  place(second, 1);
  abi::Page& page = first.shim.page();
  const double words[] = {std::numeric_limits<double>::quiet_NaN(), -1e300, 1e300, 0};
  for (std::uint32_t i = 0; i < abi::kNorms; ++i) {
    page.norms[i].number = i + 1;
    page.norms[i].what = ~i;
    page.norms[i].launched = i % 3 == 0 ? ~std::uint64_t{0} : i;
    page.norms[i].elements = i * 0x0101010101010101u;
    page.norms[i].before = page.norms[i].after = std::bit_cast<std::uint64_t>(words[i % 4]);
  }
  for (const std::uint32_t normed : {~0u, 0u, 200u, 0x80000000u, 1u}) {
    page.process.normed = normed;
    rig.pass(milliseconds(200));
    place(first, normed % 2);
  }
  EXPECT_NE(state(), "measured");
}

}  // namespace
}  // namespace switchyard::monitor::test
