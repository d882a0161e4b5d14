// The loop for one GPU: what the policy is told, and when it wants to be asked again.
#include "monitor/scheduling/scheduler.h"

#include <gtest/gtest.h>

#include "tests/monitor/plants.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

struct Scheduling : testing::Test {
  Rig rig;
};

TEST_F(Scheduling, NobodyThereNeedsNoLook) {
  EXPECT_EQ(rig.monitor.look(rig.now), Time{0});
  EXPECT_EQ(rig.monitor.look_at_due(rig.now + seconds(9)), Time{0});
}

TEST_F(Scheduling, WhoHasNotConfirmedIsLookedAtSoonButNotForEver) {
  // No window in which all are watched (policy/sampling.cpp).
  const Joined a = rig.runs({.priority = "high"});
  const Joined b = rig.runs({.priority = "high"});
  const Time next = rig.monitor.look(rig.now);
  EXPECT_GT(next, rig.now);
  EXPECT_LE(next, rig.now + milliseconds(5));
  // A stopped client: what is left is what the policy wants.
  const Time later = rig.now + seconds(1);
  EXPECT_GT(rig.monitor.look(later), later + milliseconds(5));
}

TEST_F(Scheduling, ALookAtWhatIsDueLeavesTheOtherGpusAlone) {
  Rig two(2);
  const Joined a = two.join({}, 1000, 2);
  const Joined b = two.join({}, 1000, 2);
  for (const Joined* each : {&a, &b}) {
    each->shim.open_context(0);
    each->shim.launch(0);
  }
  const Time due = two.monitor.look(two.now);
  for (const Joined* each : {&a, &b}) {
    each->shim.open_context(1);
    each->shim.launch(1);
  }
  two.monitor.look_at_due(due);
  EXPECT_EQ(a.lane(1).slice_seq, 0u) << "nobody was due there";
  two.monitor.look_at_those_of(a.id, due);
  EXPECT_EQ(a.lane(1).slice_seq, 1u);
}

TEST_F(Scheduling, WhoRingsIsLookedAtWhereSomethingChanged) {
  Rig two(2);
  const Joined a = two.runs({}, 2);
  const Joined b = two.join({}, 1000, 2);
  two.monitor.look(two.now);
  // The other one's work on GPU 0 is not what rang.
  b.shim.open_context(0);
  b.shim.launch(0);
  a.shim.open_context(1);
  a.shim.launch(1);
  two.monitor.look_at_those_of(a.id, two.now);
  EXPECT_FALSE(b.client->lanes.at(0).active);
  EXPECT_TRUE(a.client->lanes.at(1).active);
  // A gate that becomes ready is a change, too.
  a.shim.ready_gate(0);
  two.monitor.look_at_those_of(a.id, two.now);
  EXPECT_TRUE(b.client->lanes.at(0).active);
}

TEST_F(Scheduling, KnobsReachThePolicyAndTheListing) {
  const Joined a = rig.runs({.name = "x", .limit = "30%", .deadline = "10m"});
  json job = rig.job();
  EXPECT_EQ(job["limit_ratio"], 0.3);
  EXPECT_EQ(job["deadline_seconds"], 600);
  rig.pass(seconds(700));
  EXPECT_EQ(rig.job()["deadline_seconds"], -100) << "late";
  job = rig.ask({{"op", "set"}, {"target", "x"}, {"limit", "100%"}, {"deadline", "0"}});
  EXPECT_EQ(job["ok"], true) << job;
  EXPECT_EQ(job["limit_ratio"], nullptr);
  EXPECT_EQ(job["deadline_seconds"], nullptr);
  EXPECT_STREQ(a.shim.card().limit, "100%");
}

TEST_F(Scheduling, ACeilingArmsAJobThatIsAlone) {
  const Joined a = rig.runs({.limit = "30%"});
  a.shim.ready_gate();
  bool closed = false;
  for (int i = 0; i < 2000 && !closed; ++i) {
    a.shim.launch();
    a.shim.submit();
    rig.now += milliseconds(1);
    rig.monitor.look(rig.now);
    EXPECT_TRUE(a.shim.armed()) << "it is held back by nothing else";
    closed = (a.shim.gate().closed & abi::kClosedByLimit) != 0;
  }
  EXPECT_TRUE(closed);
  const json job = rig.job();
  EXPECT_EQ(job["gpus"][0]["gate"], "limit");
  EXPECT_EQ(job["state"], "held");
  EXPECT_EQ(job["state_reason"], "limit");
}

TEST_F(Scheduling, AGuardsCeilingLoosensNoLimit) {
  const Joined a = rig.runs({.limit = "10%"});
  a.shim.ready_gate();
  Plants::in(rig.monitor.registry().find(a.client->job)->restraint).ceiling = 0.5;
  int open = 0;
  for (int i = 0; i < 2000; ++i) {
    if (a.shim.gate().closed == 0) {
      ++open;
      a.shim.launch();
      a.shim.submit();
    } else {
      a.shim.complete();
    }
    rig.now += milliseconds(1);
    rig.monitor.look(rig.now);
  }
  EXPECT_GT(open, 100);
  EXPECT_LT(open, 400);
}

TEST(Knobs, LimitsAndDeadlines) {
  for (const auto& [text, ratio] : {std::pair{"1%", 0.01},
                                    {"30%", 0.3},
                                    {"0.3", 0.3},
                                    {"99.5%", 0.995},
                                    {"100%", 0.0},
                                    {"1", 0.0},
                                    {"none", 0.0},
                                    {"NONE", 0.0}}) {
    ASSERT_TRUE(parse_limit(text)) << text;
    EXPECT_DOUBLE_EQ(*parse_limit(text), ratio) << text;
  }
  for (const char* text : {"", "0", "0%", "0.9%", "101%", "30", "2", "-5%", "30 %", "%", "3O%",
                           "nan", "0x1", "1e-1"}) {
    EXPECT_FALSE(parse_limit(text)) << text;
  }
  std::string why;
  EXPECT_EQ(parse_card(card_of({.limit = "100%"}), why)->limit, 0) << "all of it is no limit";
  EXPECT_FALSE(parse_card(card_of({.limit = "150%"}), why));
  EXPECT_NE(why.find("'150%'"), std::string::npos);
  EXPECT_NE(why.find(kLimitForms), std::string::npos);
  EXPECT_EQ(parse_card(card_of({.deadline = "1.5h"}), why)->deadline, seconds(5400));
  EXPECT_EQ(parse_card(card_of({.deadline = "0"}), why)->deadline, Time{0});
  EXPECT_EQ(parse_card(card_of({.deadline = "1h30m"}), why)->deadline, seconds(5400));
  EXPECT_FALSE(parse_card(card_of({.deadline = "soon"}), why));
  EXPECT_NE(why.find(kDeadlineForms), std::string::npos);
}

}  // namespace
}  // namespace switchyard::monitor::test
