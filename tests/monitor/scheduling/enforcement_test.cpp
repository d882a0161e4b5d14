// The means of sharing: what is in force out of choice and facts, and how it shows.
#include "monitor/scheduling/enforcement.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

std::string in_force(Means chosen, const MeansFacts& facts) {
  return means_in_force(chosen, facts).name();
}

std::string reason(const MeansFacts& facts) { return means_in_force(Means::kAuto, facts).reason; }

TEST(Means, WhatWorksIsInForce) {
  const MeansFacts fine;
  EXPECT_EQ(in_force(Means::kAuto, fine), "slice+gate");
  EXPECT_EQ(in_force(Means::kSlice, fine), "slice");
  EXPECT_EQ(in_force(Means::kGate, fine), "gate");
  EXPECT_EQ(in_force(Means::kNone, fine), "none");
}

TEST(Means, UnderMpsThereAreGatesAlone) {
  const MeansFacts mps{.mps = true, .slices = {.taken = true}};
  EXPECT_EQ(in_force(Means::kAuto, mps), "gate");
  EXPECT_EQ(in_force(Means::kSlice, mps), "none");
  EXPECT_NE(std::string(means_in_force(Means::kAuto, mps).reason).find("MPS"), std::string::npos);
}

TEST(Means, ADriverOlderThan535GetsGates) {
  for (const char* old : {"515.43.04", "525.147.05", "530.30.02"}) {
    EXPECT_TRUE(too_old_for_slices(old)) << old;
    FakeGpus gpus;
    gpus.driver = old;
    Monitor monitor(gpus, {}, Time{1}, [] { return 1ull; });
    for (int look = 0; look < 2; ++look) {
      EXPECT_STREQ(monitor.scheduler().in_force(0).name(), "gate") << old;
      EXPECT_STREQ(monitor.scheduler().in_force(0).reason,
                   "the driver is older than 535: its channel groups are not seen");
      monitor.look(Time{2});
    }
  }
  for (const char* fine : {"535.54.03", "580.159.04-simulated", "", "simulated", "5"}) {
    EXPECT_FALSE(too_old_for_slices(fine)) << fine;
  }
}

TEST(Means, WhatTheDriverRefusesToEverybodyIsLeftOut) {
  const MeansAnswers no{.refused = true};
  EXPECT_EQ(in_force(Means::kAuto, {.slices = no}), "gate");
  EXPECT_EQ(in_force(Means::kAuto, {.gates = no}), "slice");
  EXPECT_EQ(in_force(Means::kAuto, {.slices = no, .gates = no}), "none");
  EXPECT_EQ(in_force(Means::kGate, {.gates = no}), "none");
  EXPECT_EQ(in_force(Means::kSlice, {.slices = no}), "none");
}

TEST(Means, WhatIsRefusedToOneClientIsKeptForTheOthers) {
  for (const MeansAnswers mixed :
       {MeansAnswers{.taken = true, .refused = true}, {.refused = true, .unasked = true}}) {
    EXPECT_EQ(in_force(Means::kAuto, {.slices = mixed}), "slice+gate");
    EXPECT_EQ(in_force(Means::kAuto, {.gates = mixed}), "slice+gate");
    EXPECT_EQ(reason({.slices = mixed}).rfind("the driver or a sandbox refuses slices to some", 0),
              0u);
    EXPECT_EQ(reason({.gates = mixed}).rfind("the driver refuses gates to some clients", 0), 0u);
  }
}

TEST(Means, TheReasonSaysWhatIsKnown) {
  EXPECT_EQ(reason({}), "slices will be used as soon as a job needs one");
  EXPECT_EQ(reason({.slices = {.unasked = true}}),
            "slices will be used as soon as a job needs one");
  EXPECT_EQ(reason({.slices = {.taken = true, .unasked = true}}),
            "slices are accepted by the driver");
  EXPECT_EQ(reason({.slices = {.refused = true}}),
            "the driver or a sandbox refuses slices to every client here");
}

struct MeansChosen : testing::Test {
  Rig rig;
  json choose(const std::string& means, uid_t uid = 0) {
    return rig.ask({{"op", "means"}, {"means", means}}, uid);
  }
  json gpu() { return rig.ask({{"op", "status"}})["gpus"][0]; }
  Joined runs(const Ask& ask) {
    Joined joined = rig.runs(ask);
    joined.shim.ready_gate();
    return joined;
  }
};

TEST_F(MeansChosen, EachIsInForceAtOnceAndShown) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  rig.settle({&high, &low});
  EXPECT_EQ(gpu()["means"], "slice+gate");
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
  ASSERT_TRUE(choose("gate")["ok"]);
  EXPECT_EQ(low.lane().compute_slice_us, 0u);
  rig.settle({&high, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 0u);
  EXPECT_EQ(gpu()["means"], "gate");
  EXPECT_TRUE(low.shim.armed()) << "the gate does what the slice did";
  ASSERT_TRUE(choose("slice")["ok"]);
  rig.settle({&high, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
  EXPECT_FALSE(low.shim.armed());
  EXPECT_EQ(low.shim.gate().closed, 0u);
  EXPECT_EQ(gpu()["means"], "slice");
  EXPECT_EQ(rig.ask({{"op", "status"}})["monitor"]["means"], "slice");
}

TEST_F(MeansChosen, UnderMpsNobodyIsAskedForSlices) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  // A process of MPS, as its name says.
  char name[16] = "";
  ::prctl(PR_GET_NAME, name);
  ::prctl(PR_SET_NAME, "nvidia-cuda-mps");
  rig.gpus.uses[0][::getpid()] = kMiB;
  rig.pass(std::chrono::seconds(1));
  rig.settle({&high, &low});
  ::prctl(PR_SET_NAME, name);
  EXPECT_EQ(low.lane().slice_seq, 0u);
  EXPECT_TRUE(low.shim.armed());
}

// In some sandboxes: the driver refuses its slices, or its groups are never seen.
struct MeansOfOneInASandbox : MeansChosen, testing::WithParamInterface<std::uint32_t> {
  // Four looks; everybody works and does what its page says, `boxed` in its own way.
  void settle_beside(const Joined& boxed, std::initializer_list<const Joined*> others) {
    for (int i = 0; i < 4; ++i) {
      boxed.shim.launch();
      for (const Joined* each : others) each->shim.launch();
      rig.pass(milliseconds(5));
      boxed.shim.apply_slices(0, GetParam());
      for (const Joined* each : others) each->shim.apply_slices();
    }
  }
  Joined runs_boxed(const Ask& ask) {
    const bool unseen = GetParam() == abi::kSliceNoGroup;
    Joined joined = runs(ask);
    if (unseen) joined.lane().compute_groups = 0;
    return joined;
  }
};

TEST_P(MeansOfOneInASandbox, TheOthersGetTheirSlices) {
  const Joined boxed = runs_boxed({});
  const Joined first = runs({});
  settle_beside(boxed, {&first});
  // It refused already, and these two were never asked before.
  rig.monitor.died(first.id);
  const Joined high = runs({.priority = "high"});
  const Joined other = runs({.priority = "high"});
  settle_beside(boxed, {&high, &other});
  EXPECT_EQ(gpu()["means"], "slice+gate");
  EXPECT_EQ(gpu()["means_reason"], "the driver or a sandbox refuses slices to some clients");
  EXPECT_EQ(high.lane().compute_slice_us, other.lane().compute_slice_us);
  EXPECT_GE(high.lane().compute_slice_us, 10'000u);
  EXPECT_EQ(boxed.lane().compute_slice_us, 0u) << "the driver's own";
}

TEST_P(MeansOfOneInASandbox, OnceNobodyElseIsThereItIsGates) {
  const Joined boxed = runs_boxed({});
  const Joined other = runs({});
  settle_beside(boxed, {&other});
  EXPECT_EQ(gpu()["means"], "slice+gate");
  rig.monitor.died(other.id);
  rig.pass(milliseconds(5));
  EXPECT_EQ(gpu()["means"], "gate");
  boxed.lane().contexts = 0;
  boxed.lane().compute_groups = 0;
  EXPECT_EQ(gpu()["means"], "slice+gate") << "who has no context there has no say";
}

INSTANTIATE_TEST_SUITE_P(Answers, MeansOfOneInASandbox,
                         testing::Values(abi::kSliceRefused, abi::kSliceNoGroup),
                         [](const auto& answer) {
                           return answer.param == abi::kSliceNoGroup ? "NoGroup" : "Refused";
                         });

TEST_F(MeansChosen, AGateThatIsRefusedToOneIsArmedForTheOthers) {
  const Joined refused = runs({});
  refused.shim.gate().state = abi::kGateRefused;
  const Joined limited = runs({.limit = "30%"});
  rig.settle({&refused, &limited});
  EXPECT_EQ(gpu()["means"], "slice+gate");
  EXPECT_EQ(gpu()["means_reason"], "the driver refuses gates to some clients: these take no turns");
  EXPECT_TRUE(limited.shim.armed()) << "its ceiling is its own";
}

TEST_F(MeansChosen, ClientsThatAllSayTheyAreUnderMpsAreBelieved) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  rig.settle({&high, &low});
  ASSERT_EQ(low.lane().compute_slice_us, 20u);
  EXPECT_EQ(gpu()["mps"], false);
  high.lane().under_mps = 1;
  low.lane().under_mps = 1;
  rig.settle({&high, &low});
  EXPECT_EQ(gpu()["means"], "gate");
  EXPECT_EQ(gpu()["mps"], true);
  EXPECT_NE(gpu()["means_reason"].get<std::string>().find("MPS"), std::string::npos);
  EXPECT_EQ(low.lane().compute_slice_us, 0u) << "what was given is taken back";
}

TEST_F(MeansChosen, OneClientThatSaysItIsUnderMpsGetsNoSlicesItself) {
  const Joined high = runs({.priority = "high"});
  const Joined low = runs({.priority = "low"});
  const Joined odd = runs({.priority = "low"});
  odd.lane().under_mps = 1;
  rig.settle({&high, &low, &odd});
  EXPECT_EQ(gpu()["mps"], false);
  EXPECT_EQ(odd.lane().compute_slice_us, 0u);
  EXPECT_GE(high.lane().compute_slice_us, policy::kHighSliceUs) << "it is as well off as before";
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
  EXPECT_EQ(told["slice_us"], 25'000);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"slice", "4ms"}})["slice_us"], 4'000);
  EXPECT_EQ(rig.monitor.scheduler().rules().slice_us, 4'000u);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"slice", "5ms"}}, stranger)["code"], kNoPermission);
  EXPECT_EQ(told["waits"], "slices");
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"waits", "foreseen"}})["waits"], "foreseen");
  EXPECT_TRUE(rig.monitor.scheduler().rules().foresee);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"waits", "slices"}}, stranger)["code"], kNoPermission);
  EXPECT_EQ(rig.monitor.scheduler().rules().kind, policy::Kind::kDeadline);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"minimum", 0}})["policy"], "deadline");
  EXPECT_EQ(rig.monitor.scheduler().rules().minimum, 0);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"policy", "fair"}}, stranger)["code"], kNoPermission);
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"minimum", "1%"}}, stranger)["code"], kNoPermission);
  for (const json& bad :
       {json{{"waits", "auto"}}, json{{"policy", "chance"}}, json{{"policy", 7}},
        json{{"minimum", "51%"}}, json{{"slice", "1ms"}}, json{{"slice", "101ms"}},
        json{{"slice", 4}}, json{{"minimum", "-1%"}}, json{{"minimum", json::array()}}}) {
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
}  // namespace switchyard::monitor::test
