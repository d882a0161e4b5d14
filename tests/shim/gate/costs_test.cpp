// A launch's worth, and the moment when a batch is full.
#include "shim/gate/costs.h"

#include <gtest/gtest.h>

#include <memory>

namespace switchyard::shim::costs {
namespace {

constexpr std::uint64_t kSpacing = 400'000;

std::uint64_t key(unsigned n) {
  return key_of(hash_of({reinterpret_cast<void*>(0x1000), n, 1, 1}), 0);
}

struct Costs : ::testing::Test {
  std::unique_ptr<Table> table = std::make_unique<Table>();

  void learn(std::uint64_t key, std::uint32_t ns) {
    table->expect(key);
    table->learn(key, ns);
  }
};

TEST_F(Costs, AKernelsFirstLaunchIsToBeTimed) {
  EXPECT_TRUE(table->look(key(1)).wanted);
  EXPECT_EQ(table->look(key(1)).ns, 0u);
  EXPECT_EQ(table->look(key(1)).key, key(1));
}

TEST_F(Costs, WhatIsBeingTimedIsNotTimedTwice) {
  table->expect(key(1));
  table->look(key(1));
  EXPECT_FALSE(table->look(key(1)).wanted);
}

TEST_F(Costs, ATimedKernelIsKnown) {
  learn(key(1), 5000);
  EXPECT_EQ(table->look(key(1)).ns, 5000u);
}

TEST_F(Costs, AKernelIsTimedAgainMoreAndMoreRarely) {
  learn(key(1), 5000);
  unsigned early = 0, later = 0;
  for (unsigned use = 2; use < kTimedEvery; ++use) early += table->look(key(1)).wanted ? 1 : 0;
  for (unsigned use = 0; use < 4 * kTimedEvery; ++use) later += table->look(key(1)).wanted ? 1 : 0;
  EXPECT_EQ(early, 7u);  // at 2, 4, ..., 128
  EXPECT_EQ(later, 4u);
}

TEST_F(Costs, LessIsBelievedSoonerThanMore) {
  learn(key(1), 5000);
  learn(key(1), 9000);
  EXPECT_EQ(table->look(key(1)).ns, 6000u);
  learn(key(1), 4000);
  EXPECT_EQ(table->look(key(1)).ns, 5000u);
}

TEST_F(Costs, OneLaunchThatWasInterruptedSaysLittle) {
  learn(key(1), 10'000);
  learn(key(1), 40'000'000);
  EXPECT_EQ(table->look(key(1)).ns, 17'500u);
}

TEST_F(Costs, WhatIsNotExpectedIsNotLearnt) {
  table->learn(key(1), 5000);
  EXPECT_EQ(table->look(key(1)).ns, 0u);
}

TEST_F(Costs, TheGridAndTheKernelBeforeTellLaunchesApart) {
  int a = 0, b = 0;
  EXPECT_NE(hash_of({&a, 1, 2, 1}), hash_of({&a, 2, 1, 1}));
  EXPECT_NE(hash_of({&a, 1, 2, 1}), hash_of({&b, 1, 2, 1}));
  EXPECT_NE(hash_of({reinterpret_cast<void*>(0x1010), 0x31, 1, 1}),
            hash_of({reinterpret_cast<void*>(0x1020), 1, 1, 1}));
  EXPECT_NE(key_of(5, 7), key_of(5, 9));
  EXPECT_NE(key_of(5, 7), key_of(7, 5));
  EXPECT_EQ(hash_of({&a, 1, 2, 1}), hash_of({&a, 1, 2, 1}));
  EXPECT_EQ(hash_of({}), 0u);
}

TEST_F(Costs, ProgramsWithEverNewShapesMakeRoom) {
  unsigned known = 0;
  for (unsigned n = 0; n < 8 * kEntries; ++n) {
    EXPECT_TRUE(table->look(key(n)).wanted);
    known += table->expect(key(n)) ? 1 : 0;
  }
  EXPECT_GT(known, 3 * kEntries);
  EXPECT_LT(known, 8 * kEntries);
}

Cost known(std::uint32_t ns) { return {ns, 1, false}; }

TEST(BatchSum, UnknownLaunchesGoByTheAverage) {
  Sum sum;
  for (int i = 0; i < 7; ++i) sum.add({});
  EXPECT_FALSE(sum.fills(kSpacing, 8));
  sum.add({});
  EXPECT_TRUE(sum.fills(kSpacing, 8));
}

TEST(BatchSum, KnownLaunchesGoByWhatTheyCost) {
  Sum sum;
  for (int i = 0; i < 39; ++i) sum.add(known(10'000));
  EXPECT_FALSE(sum.fills(kSpacing, 8));
  sum.add(known(10'000));
  EXPECT_TRUE(sum.fills(kSpacing, 8));
}

TEST(BatchSum, AHeavyLaunchDoesNotFitBehindOthers) {
  Sum sum;
  sum.add({});
  EXPECT_FALSE(sum.overflows(known(400'000), kSpacing, 8));
  EXPECT_TRUE(sum.overflows(known(500'000), kSpacing, 8));
  EXPECT_FALSE(sum.overflows({}, kSpacing, 8));  // nobody knows
  EXPECT_FALSE(Sum{}.overflows(known(400'000), kSpacing, 8));
}

}  // namespace
}  // namespace switchyard::shim::costs
