// A brief listing is what the table of `ps` asks for: a part of the whole one, and much shorter.
#include "monitor/control/listing.h"

#include <gtest/gtest.h>

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
