// Quotas as promises: what is promised fits, and where it is given back others are told.
#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

TEST(MemoryPromises, OneThatHasGrownIsMadeOnlyWhereItFits) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB"});
  const Joined b = rig.join({.memory = "2GiB"});
  Job& job = *rig.monitor.registry().find(a.client->job);
  const auto reserves = [&](std::uint64_t bytes) {
    job.knobs.memory->bytes = bytes;
    std::string why;
    const bool promised = rig.monitor.memory().reserve(job, rig.now, why) == 1;
    EXPECT_EQ(rig.account().quota(job.key)->reserved, promised);
    EXPECT_EQ(why.empty(), promised);
    return promised;
  };
  EXPECT_FALSE(reserves(3 * kGiB));
  EXPECT_TRUE(reserves(2 * kGiB));
  rig.account().set_outside(2 * kGiB);  // what is promised already stays so
  EXPECT_TRUE(reserves(2 * kGiB));
  EXPECT_TRUE(reserves(kGiB));
  EXPECT_FALSE(reserves(kGiB + 1));
}

// A process that has no memory yet has a context, and its end would give that.
TEST(MemoryPromises, WhoHasNoMoreThanAContextMayStillFree) {
  Rig rig;
  const Joined a = rig.join({.on_oom = "wait"});
  const Joined b = rig.join({});
  rig.listed(b) = kGiB;
  for (int i = 0; i < 3; ++i) rig.pass(seconds(1));
  ASSERT_TRUE(rig.allocate(a, 5 * kGiB / 2));
  EXPECT_EQ(rig.charge(a, kGiB).verdict, wire::kWait);
  rig.dies(b);
  rig.pass(seconds(1));
  EXPECT_EQ(rig.charge(a, kGiB).verdict, wire::kGranted);
}

// Of several jobs any that settles gives back what it does not use.
TEST(MemoryPromises, AnyJobThatSettlesMakesRoom) {
  Rig rig(2);
  const Joined a = rig.runs({.memory = "1GiB"}, 2);
  rig.pass(milliseconds(10));
  rig.now += seconds(30);
  const Joined b = rig.runs({.memory = "1GiB"}, 2);
  rig.pass(milliseconds(10));
  MemoryBroker& memory = rig.monitor.memory();
  EXPECT_FALSE(memory.follow_use(rig.now));
  EXPECT_TRUE(memory.follow_use(rig.now + seconds(30)));
  EXPECT_EQ(rig.account(1).reserved(), kGiB) << "the other may use it yet";
  EXPECT_FALSE(memory.follow_use(rig.now + seconds(40))) << "once";
  EXPECT_TRUE(memory.follow_use(rig.now + seconds(60)));
  EXPECT_EQ(rig.account(1).reserved(), 0u);
}

}  // namespace
}  // namespace switchyard::monitor::test
