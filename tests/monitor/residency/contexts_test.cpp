// Why a process's contexts stay: each reason alone.
#include "monitor/residency/contexts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

class ContextsOf : public ::testing::Test {
 protected:
  ContextsOf() {
    first.shim.open_context();
    for (const unsigned lane : {0u, 1u}) {
      first.shim.memory(lane).contexts = abi::kContextsMayLeave;
    }
  }
  std::string why() {
    const Job& job = *rig.monitor.registry().find(first.client->job);
    return why_contexts_stay(rig.monitor.registry(), job);
  }
  bool says(const char* what) { return why().find(what) != std::string::npos; }

  Rig rig{2};
  const Joined first = rig.join({.job = "j", .name = "x", .swappable = "yes"}, 1000, 2);
};

TEST_F(ContextsOf, OneThatSharesNothingMayLeave) { EXPECT_EQ(why(), ""); }

TEST_F(ContextsOf, OneThatUsesTwoGpusStays) {
  first.shim.open_context(1);
  EXPECT_TRUE(says("several GPUs")) << why();
}

TEST_F(ContextsOf, WithoutCallsOfTheDriverTheyStay) {
  first.shim.memory().contexts = abi::kContextsNoCalls;
  EXPECT_TRUE(says("570")) << why();
  first.shim.memory().contexts = abi::kContextsUnknown;
  EXPECT_TRUE(says("is not swappable")) << why();
}

TEST_F(ContextsOf, OnlyMemoryThatIsManagedOrSharedKeepsThem) {
  for (unsigned each = 0; each < kStays; ++each) {
    first.shim.memory().stays_bytes[each] = 1;
    const bool keeps = std::find(std::begin(kKeepsContexts), std::end(kKeepsContexts),
                                 static_cast<Stays>(each)) != std::end(kKeepsContexts);
    EXPECT_EQ(says("managed memory"), keeps) << each << why();
    first.shim.memory().stays_bytes[each] = 0;
  }
}

// Whichever process it is, and whatever the next one has.
TEST_F(ContextsOf, AnyProcessThatStaysKeepsItsJob) {
  const Joined second = rig.join({.job = "j"}, 1000, 2);
  second.shim.open_context();
  second.shim.memory().contexts = abi::kContextsMayLeave;
  EXPECT_EQ(why(), "");
  for (const Joined* each : {&first, &second}) {
    each->shim.memory().contexts = abi::kContextsNoCalls;
    EXPECT_TRUE(says("570")) << why();
    each->shim.memory().contexts = abi::kContextsMayLeave;
  }
}

TEST_F(ContextsOf, RanksStay) {
  first.shim.joins_communicator(77, 0, 2);
  EXPECT_TRUE(says("NCCL")) << why();
  first.shim.joins_communicator(77, 0, 1);
  EXPECT_EQ(why(), "") << "it is alone in it";
}

TEST(ContextsOut, AJobWithoutMemoryThatLeavesIsSwappedOnceTheyHaveLeft) {
  Rig rig;
  const Joined a = rig.runs({.name = "x", .swappable = "yes"});
  a.shim.memory().contexts = abi::kContextsMayLeave;
  ASSERT_TRUE(rig.allocate(a, 64 * kMiB));
  a.lane().used_bytes = 64 * kMiB;
  const json asked = {{"op", "pause"}, {"target", "x"}, {"release", "true"}, {"contexts", "true"}};
  ASSERT_TRUE(rig.ask(asked)["ok"]);
  for (int i = 0; i < 3; ++i) rig.pass(milliseconds(200));
  EXPECT_EQ(rig.job()["residency"], "moving");
  a.shim.be_detached();
  rig.pass(milliseconds(200));
  EXPECT_EQ(rig.job()["residency"], "swapped");
}

}  // namespace
}  // namespace switchyard::monitor::test
