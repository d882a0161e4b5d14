// A brief listing is what the table of `ps` asks for: a part of the whole one, and much shorter.
#include "monitor/control/listing.h"

#include <gtest/gtest.h>

#include "monitor/control/guard_listing.h"
#include "monitor/control/job_on_gpu.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

// Keys may be left out; all that is said is the same.
void expect_part(const json& part, const json& whole, const std::string& where) {
  if (part.is_object()) {
    for (const auto& [key, value] : part.items()) {
      ASSERT_TRUE(whole.contains(key)) << where << key;
      expect_part(value, whole[key], where + key + ".");
    }
  } else if (part.is_array()) {
    ASSERT_EQ(part.size(), whole.size()) << where;
    for (std::size_t i = 0; i < part.size(); ++i) expect_part(part[i], whole[i], where);
  } else {
    EXPECT_EQ(part, whole) << where;
  }
}

TEST(Listing, ABriefOneIsAPartOfTheWholeAndLessThanHalfOfIt) {
  Rig rig(2);
  const Joined works = rig.runs({.name = "works", .memory = "1GiB"}, 2);
  const Joined paused = rig.runs({.name = "paused"});
  ASSERT_TRUE(rig.allocate(works, 100 * kMiB));
  rig.settle({&works, &paused});
  rig.tell("pause", "paused");
  rig.pass(milliseconds(100));
  const json whole = rig.ask({{"op", "ps"}});
  const json brief = rig.ask({{"op", "ps"}, {"brief", true}});
  ASSERT_EQ(brief["jobs"].size(), 2u);
  expect_part(brief, whole, "");
  EXPECT_LT(2 * brief["jobs"].dump().size(), whole["jobs"].dump().size());
}

TEST(Listing, ABriefOneComesInPartsLikeAWholeOne) {
  Rig rig;
  // Of root, whose jobs are not bounded.
  for (int i = 0; i < 300; ++i) rig.join({.name = "job-" + std::to_string(i)}, 0);
  std::size_t jobs = 0, parts = 0;
  for (json after = 0; !after.is_null(); ++parts) {
    const json part = rig.ask({{"op", "ps"}, {"brief", true}, {"after", after}});
    EXPECT_LT(part.dump().size(), 256u * 1024);
    jobs += part["jobs"].size();
    after = part.value("more_after", json());
  }
  EXPECT_EQ(jobs, 300u);
  EXPECT_GT(parts, 1u);
}

// Two processes of one job on one GPU, which have contexts.
struct TwoProcesses : ::testing::Test {
  TwoProcesses() {
    for (const Joined* each : {&first, &second}) each->shim.open_context();
  }
  json on_gpu() { return rig.job()["gpus"][0]; }

  Rig rig;
  Joined first = rig.join({.job = "j", .name = "x", .swappable = "yes"});
  Joined second = rig.join({.job = "j", .swappable = "yes"});
};

TEST_F(TwoProcesses, TheirLoadsAreAddedUp) {
  rig.gpus.load = {{{first.client->peer.pid, 0.25}, {second.client->peer.pid, 0.5}}};
  rig.pass(seconds(1));
  EXPECT_EQ(on_gpu()["share_got_ratio"], 0.75);
}

// NVML counts the time in which a kernel waited for its slice, too.
TEST_F(TwoProcesses, AShareThatThePolicyKnowsIsShownAndNoLoad) {
  const Job& job = *rig.monitor.registry().find(first.client->job);
  OnGpu sums;
  sums.load = 0.75;
  const auto share = [&] {
    return list_on_gpu_briefly(rig.monitor, job, 0, sums)["share_got_ratio"];
  };
  EXPECT_EQ(share(), 0.75);
  sums.got = 0.25;
  EXPECT_EQ(share(), 0.25);
  sums.got = 1.5;
  EXPECT_EQ(share(), 1.0) << "the whole GPU at most";
}

TEST_F(TwoProcesses, ACommunicatorIsAsLargeAsAnyOfItsRanksSays) {
  first.shim.joins_communicator(77, 0, 4);
  second.shim.joins_communicator(77, 1, 2);
  EXPECT_EQ(rig.job()["communicators"][0]["size"], 4);
  first.shim.joins_communicator(77, 1, 2);
  second.shim.joins_communicator(77, 0, 4);
  EXPECT_EQ(rig.job()["communicators"][0]["size"], 4);
}

TEST(Listing, ADeadlineIsTheTimeThatIsLeft) {
  Rig rig;
  const Joined a = rig.join({.name = "x", .deadline = "60s"});
  rig.pass(seconds(10));
  EXPECT_EQ(rig.job()["deadline_seconds"], 50);
}

TEST(Listing, AGuardIsWhatItDoesNow) {
  using guard::Phase;
  guard::State state;
  EXPECT_STREQ(state_of(state), "learning");
  state.answers[7];
  EXPECT_STREQ(state_of(state), "answering");
  state.phase = Phase::kTrying;
  EXPECT_STREQ(state_of(state), "trying");
  state.phase = Phase::kEasing;
  EXPECT_STREQ(state_of(state), "easing");
}

TEST_F(TwoProcesses, TheActiveOnesSlicesAreShown) {
  rig.settle({&second});
  first.lane().compute_slice_applied_us = 11;
  second.lane().compute_slice_applied_us = 22;
  EXPECT_EQ(on_gpu()["slice_in_force_us"], 22);
}

TEST_F(TwoProcesses, AnErrorOfMemoryThatIsBackIsNotShown) {
  second.shim.swappable(kGiB);
  second.shim.be_resident(abi::kSwapFailed);
  rig.pass(milliseconds(50));
  EXPECT_EQ(on_gpu()["swap_error"], nullptr);
}

}  // namespace
}  // namespace switchyard::monitor::test
