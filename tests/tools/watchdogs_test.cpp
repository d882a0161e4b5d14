// How long a pause is safe.
#include "tools/pause/watchdogs.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace switchyard::tools {
namespace {

using nlohmann::json;

using Variables = std::vector<std::string>;

Watched rank(Variables environment = {}) {
  return {.ranks = true, .name = "python3", .environment = std::move(environment)};
}

double seconds(const Watched& process) {
  const auto first = first_watchdog({process});
  return first ? first->seconds : 0;
}

TEST(Watchdogs, RanksHavePyTorchsByDefault) {
  const auto first = first_watchdog({{.ranks = true, .name = "python3"}});
  ASSERT_TRUE(first);
  EXPECT_EQ(safe_text(*first),
            "safe for 8 min 00 s, then PyTorch's NCCL heartbeat may end it "
            "(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)");
}

TEST(Watchdogs, AProcessAloneHasNone) {
  EXPECT_FALSE(first_watchdog({{.name = "python3"}}));
  EXPECT_FALSE(first_watchdog({}));
}

TEST(Watchdogs, TheEnvironmentChangesThem) {
  EXPECT_EQ(seconds(rank({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=60"})), 60);
  EXPECT_EQ(seconds(rank({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=3600"})), 600);
  EXPECT_EQ(seconds(rank({"TORCH_NCCL_ENABLE_MONITORING=0"})), 600);
  EXPECT_EQ(seconds(rank({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=soon"})), 480);
  EXPECT_EQ(seconds(rank({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SECS=1"})), 480);
}

TEST(Watchdogs, VllmWaitsForItsWorkersAsLongAsItSays) {
  EXPECT_EQ(seconds({.name = "VLLM::EngineCor"}), 300);
  EXPECT_EQ(seconds(rank({"VLLM_USE_V1=1"})), 300);
  EXPECT_EQ(seconds({.environment = Variables{"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=90"}}), 90);
}

TEST(Watchdogs, TheFirstOfAllProcessesCounts) {
  const auto first = first_watchdog({rank(), rank({"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=120"})});
  EXPECT_EQ(first->seconds, 120);
}

TEST(Watchdogs, WhereAnEnvironmentCannotBeReadItSaysSo) {
  const auto first = first_watchdog({rank(), {.ranks = true, .environment = std::nullopt}});
  ASSERT_TRUE(first);
  EXPECT_EQ(safe_text(*first),
            "safe for 8 min 00 s by what is known (not every environment can be read), then "
            "PyTorch's NCCL heartbeat may end it (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC)");
  EXPECT_EQ(as_json(first)["environment_read"], false);
  EXPECT_TRUE(first_watchdog({rank(), {.environment = std::nullopt}})->known) << "no rank of it";
  EXPECT_FALSE(first_watchdog({{.name = "vllm", .environment = std::nullopt}})->known);
}

TEST(Watchdogs, JsonHasWhatTheTextSays) {
  const json said = as_json(first_watchdog({rank()}));
  EXPECT_EQ(said["name"], "PyTorch's NCCL heartbeat");
  EXPECT_EQ(said["changed_by"], "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC");
  EXPECT_EQ(said["safe_seconds"], 480);
  EXPECT_EQ(said["environment_read"], true);
  EXPECT_TRUE(as_json(first_watchdog({})).is_null());
}

TEST(Watchdogs, AJobsProcessesAreThoseOfItsListing) {
  const json rank = {{"rank", 0}, {"pid", ::getpid()}};
  const json me = {{"pid", ::getpid()}, {"name", "me"}};
  const json other = {{"pid", 1}, {"name", "init"}};
  json job = {{"processes", json::array({me, other})}};
  job["communicators"] = json::array({{{"size", 2}, {"ranks", json::array({rank})}}});
  auto all = watched(job);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE(all[0].ranks);
  ASSERT_TRUE(all[0].environment);
  EXPECT_FALSE(all[0].environment->empty());
  EXPECT_FALSE(all[1].ranks);
  job["communicators"][0]["size"] = 1;
  EXPECT_FALSE(watched(job)[0].ranks) << "it waits for nobody";
}

}  // namespace
}  // namespace switchyard::tools
