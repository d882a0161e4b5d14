// The means of sharing: what is in force out of choice and facts, and how it shows.
#include "monitor/means.h"

#include <gtest/gtest.h>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor {
namespace {

using namespace test;
using nlohmann::json;
using std::chrono::milliseconds;

std::string in_force(Means chosen, const MeansFacts& facts) {
  return means_in_force(chosen, facts).name();
}

TEST(Means, WhatWorksIsInForce) {
  const MeansFacts fine;
  EXPECT_EQ(in_force(Means::kAuto, fine), "slice+gate");
  EXPECT_EQ(in_force(Means::kSlice, fine), "slice");
  EXPECT_EQ(in_force(Means::kGate, fine), "gate");
  EXPECT_EQ(in_force(Means::kNone, fine), "none");
}

TEST(Means, UnderMpsThereAreGatesAlone) {
  const MeansFacts mps{.mps = true, .slices_accepted = true};
  EXPECT_EQ(in_force(Means::kAuto, mps), "gate");
  EXPECT_EQ(in_force(Means::kSlice, mps), "none");
  EXPECT_NE(std::string(means_in_force(Means::kAuto, mps).reason).find("MPS"), std::string::npos);
}

TEST(Means, WhatTheDriverRefusesIsLeftOut) {
  EXPECT_EQ(in_force(Means::kAuto, {.slices_refused = true}), "gate");
  EXPECT_EQ(in_force(Means::kAuto, {.slices_accepted = true, .slices_refused = true}), "slice+gate")
      << "one client's refusal is its own";
  EXPECT_EQ(in_force(Means::kAuto, {.gates_refused = true}), "slice");
  EXPECT_EQ(in_force(Means::kAuto, {.gates_ready = true, .gates_refused = true}), "slice+gate");
  EXPECT_EQ(in_force(Means::kAuto, {.slices_refused = true, .gates_refused = true}), "none");
  EXPECT_EQ(in_force(Means::kGate, {.gates_refused = true}), "none");
}

struct MeansChosen : testing::Test {
  Rig rig;
  json choose(const std::string& means, uid_t uid = 0) {
    return rig.ask({{"op", "means"}, {"means", means}}, uid);
  }
  json gpu() { return rig.ask({{"op", "status"}})["gpus"][0]; }
  Joined runs(const Ask& ask) {
    Joined joined = rig.join(ask);
    joined.shim.open_context();
    joined.shim.ready_gate();
    return joined;
  }
  void settle(std::initializer_list<const Joined*> all) {
    for (int i = 0; i < 4; ++i) {
      for (const Joined* each : all) each->shim.launch();
      rig.pass(milliseconds(5));
      for (const Joined* each : all) each->shim.apply_slices();
    }
  }
};

TEST_F(MeansChosen, EachIsInForceAtOnceAndShown) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  settle({&high, &low});
  EXPECT_EQ(gpu()["means"], "slice+gate");
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
  ASSERT_TRUE(choose("gate")["ok"]);
  EXPECT_EQ(low.lane().compute_slice_us, 0u);
  settle({&high, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 0u);
  EXPECT_EQ(gpu()["means"], "gate");
  EXPECT_TRUE(low.shim.armed()) << "the gate does what the slice did";
  ASSERT_TRUE(choose("slice")["ok"]);
  settle({&high, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
  EXPECT_FALSE(low.shim.armed());
  EXPECT_EQ(low.shim.gate().closed, 0u);
  EXPECT_EQ(gpu()["means"], "slice");
  EXPECT_EQ(rig.ask({{"op", "status"}})["monitor"]["means"], "slice");
}

TEST_F(MeansChosen, UnderMpsNobodyIsAskedForSlices) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  rig.monitor.gpus()[0].mps_listed = true;
  settle({&high, &low});
  EXPECT_EQ(low.lane().slice_seq, 0u);
  EXPECT_TRUE(low.shim.armed());
}

TEST_F(MeansChosen, AClientThatSaysItIsUnderMpsIsBelieved) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  settle({&high, &low});
  ASSERT_EQ(low.lane().compute_slice_us, 20u);
  EXPECT_EQ(gpu()["mps"], false);
  high.lane().under_mps = 1;
  settle({&high, &low});
  EXPECT_EQ(gpu()["means"], "gate");
  EXPECT_EQ(gpu()["mps"], true);
  EXPECT_NE(gpu()["means_reason"].get<std::string>().find("MPS"), std::string::npos);
  EXPECT_EQ(low.lane().compute_slice_us, 0u) << "what was given is taken back";
  rig.monitor.died(high.id);
  EXPECT_EQ(gpu()["mps"], false) << "nobody says so any more";
}

TEST_F(MeansChosen, MpsOnOneGpuIsNoneOfTheOthers) {
  Rig two(2);
  const Joined a = two.join({}, 1000, 2);
  a.lane(1).under_mps = 1;
  const Joined nvml = two.join({}, 1000, 2, wire::kObserver);
  nvml.lane(0).under_mps = 1;
  const json gpus = two.ask({{"op", "status"}})["gpus"];
  EXPECT_EQ(gpus[0]["means"], "slice+gate") << "an observer has no work there";
  EXPECT_EQ(gpus[1]["means"], "gate");
}

TEST_F(MeansChosen, ForeignersAndNonsenseChangeNothing) {
  EXPECT_EQ(choose("magic")["code"], kUsage);
  EXPECT_NE(choose("magic")["error"].get<std::string>().find(kMeansForms), std::string::npos);
  EXPECT_EQ(choose("gate", ::geteuid() + 1)["code"], kNoPermission);
  EXPECT_EQ(rig.monitor.scheduler().chosen(), Means::kAuto);
}

TEST(PolicyChosen, IsToldToEverybodyAndChangedByTheOwner) {
  Rig rig;
  const uid_t stranger = ::geteuid() + 1;
  json told = rig.ask({{"op", "policy"}}, stranger);
  EXPECT_EQ(told["policy"], "priority");
  EXPECT_EQ(told["minimum_ratio"], 0.02);
  told = rig.ask({{"op", "policy"}, {"policy", "deadline"}, {"minimum", "5%"}});
  EXPECT_EQ(told["policy"], "deadline");
  EXPECT_EQ(told["minimum_ratio"], 0.05);
  EXPECT_EQ(rig.monitor.scheduler().rules().kind, policy::Kind::kDeadline);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"minimum", 0}})["policy"], "deadline");
  EXPECT_EQ(rig.monitor.scheduler().rules().minimum, 0);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"policy", "fair"}}, stranger)["code"], kNoPermission);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"minimum", "1%"}}, stranger)["code"], kNoPermission);
  for (const json& bad : {json{{"policy", "chance"}}, json{{"policy", 7}}, json{{"minimum", "51%"}},
                          json{{"minimum", "-1%"}}, json{{"minimum", json::array()}}}) {
    json request = {{"op", "policy"}};
    request.update(bad);
    EXPECT_EQ(rig.ask(request)["code"], kUsage) << bad;
  }
  EXPECT_EQ(rig.monitor.scheduler().rules().kind, policy::Kind::kDeadline);
}

TEST(PolicyChosen, ASettingsRulesAreInForceFromTheStart) {
  Settings settings;
  settings.rules.kind = policy::Kind::kExclusive;
  settings.means = Means::kGate;
  Rig rig(1, 4 * kGiB, settings);
  const json about = rig.ask({{"op", "status"}})["monitor"];
  EXPECT_EQ(about["policy"], "exclusive");
  EXPECT_EQ(about["means"], "gate");
}

}  // namespace
}  // namespace switchyard::monitor
