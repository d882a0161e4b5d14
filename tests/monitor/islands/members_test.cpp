// Jobs of islands: one key, one class, and a server that is told apart.
#include "monitor/islands/members.h"

#include <gtest/gtest.h>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor {
namespace {

using test::json;
using test::Rig;

json create(Rig& rig, const json& card, uid_t uid = 1000) {
  return rig.ask({{"op", "create"}, {"pid", 0}, {"card", card}}, uid);
}

Job& job_named(Rig& rig, const std::string& name) {
  return *rig.monitor.registry().find_target(name);
}

TEST(Islands, JobsOfOneNameAndUserHaveOneKey) {
  Rig rig;
  ASSERT_TRUE(create(rig, {{"name", "a"}, {"co_run", "x"}})["ok"]);
  ASSERT_TRUE(create(rig, {{"name", "b"}, {"co_run", "x"}})["ok"]);
  ASSERT_TRUE(create(rig, {{"name", "c"}, {"co_run", "yes"}})["ok"]);
  ASSERT_TRUE(create(rig, {{"name", "d"}, {"co_run", "x"}}, 1001)["ok"]);
  ASSERT_TRUE(create(rig, {{"name", "e"}})["ok"]);
  const std::uint64_t key = *job_named(rig, "a").island;
  EXPECT_NE(key, 0u);
  EXPECT_EQ(*job_named(rig, "b").island, key);
  EXPECT_NE(*job_named(rig, "c").island, key) << "another name";
  EXPECT_NE(*job_named(rig, "d").island, key) << "another user";
  EXPECT_EQ(*job_named(rig, "e").island, 0u);
  EXPECT_EQ(job_named(rig, "c").knobs.co_run, "default");
}

TEST(Islands, AMemberOfAnotherClassIsRefused) {
  Rig rig;
  ASSERT_TRUE(create(rig, {{"name", "a"}, {"co_run", "x"}, {"priority", "low"}})["ok"]);
  const json refused = create(rig, {{"name", "b"}, {"co_run", "x"}, {"priority", "high"}});
  EXPECT_EQ(refused["code"], kRefusedByPolicy);
  EXPECT_NE(refused["error"].get<std::string>().find("island 'x' has job 'a' of priority low"),
            std::string::npos);
  // Outside, in another island, and as another user's it may be.
  EXPECT_TRUE(create(rig, {{"name", "b"}, {"priority", "high"}})["ok"]);
  EXPECT_TRUE(create(rig, {{"name", "c"}, {"co_run", "y"}, {"priority", "high"}})["ok"]);
  EXPECT_TRUE(create(rig, {{"name", "d"}, {"co_run", "x"}, {"priority", "high"}}, 1001)["ok"]);
}

TEST(Islands, AClassThatIsSetForOneIsThatOfAll) {
  Rig rig;
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(create(rig, {{"name", name}, {"co_run", "x"}, {"priority", "low"}})["ok"]);
  }
  ASSERT_TRUE(create(rig, {{"name", "c"}, {"co_run", "y"}, {"priority", "low"}})["ok"]);
  ASSERT_TRUE(create(rig, {{"name", "d"}, {"priority", "low"}})["ok"]);
  const json done = rig.ask({{"op", "set"}, {"target", "a"}, {"priority", "high"}, {"share", "2"}});
  ASSERT_TRUE(done["ok"]) << done;
  EXPECT_EQ(job_named(rig, "a").knobs.priority, Priority::kHigh);
  EXPECT_EQ(job_named(rig, "b").knobs.priority, Priority::kHigh);
  EXPECT_EQ(job_named(rig, "b").knobs.share.weight, 1) << "the class alone";
  EXPECT_EQ(job_named(rig, "c").knobs.priority, Priority::kLow) << "another island";
  EXPECT_EQ(job_named(rig, "d").knobs.priority, Priority::kLow) << "no member";
}

TEST(Islands, TheServerIsNoMemberAndHasNoClass) {
  Rig rig;
  ASSERT_TRUE(create(
      rig,
      {{"name", "s"}, {"co_run", "x"}, {"island_gpu", "GPU-0"}, {"priority", "normal"}})["ok"]);
  ASSERT_TRUE(create(rig, {{"name", "a"}, {"co_run", "x"}, {"priority", "low"}})["ok"]);
  EXPECT_TRUE(islands::serves(job_named(rig, "s")));
  EXPECT_FALSE(islands::is_member(job_named(rig, "s")));
  EXPECT_TRUE(islands::is_member(job_named(rig, "a")));
  EXPECT_EQ(*job_named(rig, "a").island, *job_named(rig, "s").island);
}

TEST(Islands, TooManyMembersAndContextsThatLeaveAreRefused) {
  Rig rig;
  EXPECT_EQ(create(rig, {{"co_run", "x"}, {"idle_release", "1m,contexts"}})["code"],
            kRefusedByPolicy);
  for (std::size_t i = 0; i < islands::kMostMembers; ++i) {
    ASSERT_TRUE(create(rig, {{"co_run", "x"}})["ok"]) << i;
  }
  EXPECT_EQ(create(rig, {{"co_run", "x"}})["code"], kRefusedByPolicy);
}

}  // namespace
}  // namespace switchyard::monitor
