// A listing of many jobs, asked for in parts.
#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "tests/monitor/rig.h"
#include "tests/monitor/stopped_process.h"

namespace switchyard::monitor::test {
namespace {

TEST(Commands, AListingComesInParts) {
  Rig rig(8);
  const std::string all = "0,1,2,3,4,5,6,7";
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(rig.ask({{"op", "create"}, {"cuda_visible_devices", all}})["ok"], true);
  }
  json jobs = json::array();
  json part = {{"more_after", 0}};
  int parts = 0;
  for (; part.contains("more_after"); ++parts) {
    EXPECT_FALSE(part.contains("outside"));
    const std::string text =
        answer_command(rig.monitor, {1, 0},
                       json{{"op", "ps"}, {"after", part["more_after"]}}.dump(), rig.now)
            .json;
    EXPECT_LT(text.size(), wire::kMaxFrame / 2);
    part = json::parse(text);
    ASSERT_FALSE(part["jobs"].empty());
    jobs.insert(jobs.end(), part["jobs"].begin(), part["jobs"].end());
  }
  EXPECT_TRUE(part.contains("outside"));
  EXPECT_GT(parts, 1);
  EXPECT_EQ(jobs.size(), 200u);
  EXPECT_EQ(jobs, rig.ask({{"op", "ps"}})["jobs"]) << "older programs ask for all at once";
}

// Jobs of one process each, asked for in parts.
struct ListingInParts : ::testing::Test {
  ListingInParts() {
    for (int i = 0; i < 60; ++i) all.push_back(rig.join({.name = "j" + std::to_string(i)}));
    rig.pass(milliseconds(200));
  }
  Answer ask_after(const json& after) {
    return answer_command(rig.monitor, {1, 0}, json{{"op", "ps"}, {"after", after}}.dump(),
                          rig.now);
  }
  // The answers, with what each of them cost.
  std::vector<std::uint64_t> costs() {
    std::vector<std::uint64_t> out;
    for (json part = {{"more_after", 0}}; part.contains("more_after");) {
      const std::uint64_t before = rig.monitor.work();
      part = json::parse(ask_after(part["more_after"]).json);
      out.push_back(rig.monitor.work() - before);
    }
    return out;
  }

  Rig rig;
  std::vector<Joined> all;
};

TEST_F(ListingInParts, OnlyItsFirstPartLooksAtAllJobs) {
  costs();  // /proc was asked about each of them
  const auto each = costs();
  ASSERT_GT(each.size(), 2u);
  // To list a job is some work, too.
  for (std::size_t i = 1; i < each.size(); ++i) EXPECT_LT(2 * each[i], each.front()) << i;
}

TEST_F(ListingInParts, OnlyItsFirstPartWantsAnotherLook) {
  const Answer first = ask_after(0);
  EXPECT_TRUE(first.looks) << "somebody must come when its next deadline is due";
  EXPECT_FALSE(ask_after(json::parse(first.json)["more_after"]).looks);
  const auto looks = [&](const char* request) {
    return answer_command(rig.monitor, {1, 0}, request, rig.now).looks;
  };
  EXPECT_FALSE(looks(R"({"op":"version"})"));
  EXPECT_TRUE(looks(R"({"op":"resume","target":"j1"})"));
}

TEST_F(ListingInParts, AJobThatComesMeanwhileIsListedAsItIs) {
  json part = json::parse(ask_after(0).json);
  const Joined late = rig.runs({.name = "late"});
  json last;
  while (part.contains("more_after")) {
    part = json::parse(ask_after(part["more_after"]).json);
    last = part["jobs"].back();
  }
  EXPECT_EQ(last["name"], "late");
  EXPECT_EQ(last["gpus"].size(), 1u);
  EXPECT_LT(last["state_since_seconds"], 1.0);
}

TEST_F(ListingInParts, AProcessThatIsStoppedMeanwhileIsListedAsStopped) {
  const json first = json::parse(ask_after(0).json);
  const StoppedProcess process;
  all.back().client->peer.pid = process.pid();
  rig.now += seconds(2);
  json part = first;
  while (part.contains("more_after")) part = json::parse(ask_after(part["more_after"]).json);
  EXPECT_EQ(part["jobs"].back()["state"], "stopped");
}

}  // namespace
}  // namespace switchyard::monitor::test
