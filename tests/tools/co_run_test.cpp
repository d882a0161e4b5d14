// When an island would pay: jobs of one user and class on one GPU that leave room for each other.
#include "tools/base/co_run.h"

#include <gtest/gtest.h>

namespace switchyard::tools {
namespace {

using nlohmann::json;

Tenant tenant(const std::string& name, double busy, double cpu) {
  return {name, name, "alice", "low", "", "GPU 0", busy, cpu};
}

std::vector<std::string> texts(const std::vector<Tenant>& tenants) {
  std::vector<std::string> out;
  for (const Company& each : companies_of(tenants)) out.push_back(company_text(each));
  return out;
}

TEST(CoRun, JobsThatLeaveRoomForEachOtherAreNamed) {
  EXPECT_EQ(texts({tenant("a", 0.3, 0.6), tenant("b", 0.5, 0.4)}),
            std::vector<std::string>{"together a and b keep 0.80 of GPU 0 busy; at the same time, "
                                     "by `run --co-run`, they may do more"});
}

TEST(CoRun, JobsThatFillTheGpuAreNot) {
  EXPECT_TRUE(texts({tenant("a", 0.75, 0.2), tenant("b", 0.6, 0.4)}).empty());
  EXPECT_EQ(texts({tenant("a", 0.69, 0.3), tenant("b", 0.6, 0.4)}).size(), 1u);
}

TEST(CoRun, JobsThatWaitForTheirCpuAreNamedHoweverMany) {
  const auto four = [](double cpu) {
    return std::vector{tenant("a", 0.4, cpu), tenant("b", 0.4, cpu), tenant("c", 0.4, cpu),
                       tenant("d", 0.4, cpu)};
  };
  EXPECT_EQ(texts(four(0.6)).size(), 1u);
  EXPECT_TRUE(texts(four(0.4)).empty());
}

TEST(CoRun, WhatCannotBeTogetherIsNotSuggested) {
  const Tenant a = tenant("a", 0.3, 0.6);
  for (const auto& change : std::vector<void (*)(Tenant&)>{
           [](Tenant& b) { b.user = "bob"; }, [](Tenant& b) { b.priority = "normal"; },
           [](Tenant& b) { b.gpu = "GPU 1"; }, [](Tenant& b) { b.island = "x"; },
           [](Tenant& b) { b.busy = 0.01; }}) {
    Tenant b = tenant("b", 0.3, 0.6);
    change(b);
    EXPECT_TRUE(texts({a, b}).empty());
  }
  Tenant high = a, other = tenant("b", 0.3, 0.6);
  high.priority = other.priority = "high";
  EXPECT_TRUE(texts({high, other}).empty()) << "these stand outside";
}

json job(const std::string& id, const json& gpus) {
  return {{"job", id},
          {"name", id},
          {"user", "alice"},
          {"priority", "low"},
          {"island", nullptr},
          {"island_server", false},
          {"since_seconds", 100.0},
          {"gpu_seconds", 20.0},
          {"gpus", gpus},
          {"waits_seconds", {{"slices", 10.0}, {"turn", 5.0}, {"pause", 25.0}}}};
}
json gpu(unsigned index, bool active) { return {{"index", index}, {"active", active}}; }

TEST(CoRun, WhatAJobWaitedForWouldBeItsOwn) {
  const auto found = tenants_of(json::array({job("a", json::array({gpu(3, true)}))}));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_DOUBLE_EQ(found[0].busy, 0.35);
  EXPECT_DOUBLE_EQ(found[0].cpu, 0.4);
  EXPECT_EQ(found[0].gpu, "GPU 3");
}

TEST(CoRun, JobsOfSeveralGpusAndIdleOnesAreLeftOut) {
  EXPECT_TRUE(tenants_of(json::array({job("a", json::array({gpu(0, true), gpu(1, true)})),
                                      job("b", json::array({gpu(0, false)}))}))
                  .empty());
}

TEST(CoRun, TheLastSecondCountsByItsOwnSums) {
  const json rates = json::array({{{"job", "a"},
                                   {"interval_seconds", 2.0},
                                   {"gpu_seconds", 0.5},
                                   {"waits_ratio", {{"slices", 0.1}, {"memory", 0.2}}}}});
  const auto found = tenants_of(
      json::array({job("a", json::array({gpu(0, true)})), job("b", json::array({gpu(0, true)}))}),
      rates);
  ASSERT_EQ(found.size(), 1u) << "nothing is known of b";
  EXPECT_DOUBLE_EQ(found[0].busy, 0.35);
  EXPECT_DOUBLE_EQ(found[0].cpu, 0.45);
}

}  // namespace
}  // namespace switchyard::tools
