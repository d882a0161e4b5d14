// Guards, from the words of pages to what others get.
#include "monitor/adaptation/guards.h"

#include <gtest/gtest.h>

#include "tests/monitor/adaptation/played_work.h"

namespace switchyard::monitor::test {
namespace {

class Guarded : public PlayedWork {
 protected:
  using PlayedWork::PlayedWork;

  json set(const char* name, const char* field, const char* value) {
    return rig.ask({{"op", "set"}, {"target", name}, {field, value}});
  }
  void begin(const char* priority = "normal") {
    ASSERT_TRUE(set("train", "guard", "5%")["ok"]);
    ASSERT_TRUE(set("train", "priority", priority)["ok"]);
    hog.shim.ready_gate();
    present = {&train, &hog};
    pass(seconds(10));
    ASSERT_EQ(named("train")["guard"]["state"], "quiet");
    // From now on it takes the half of what it may have.
    others = [this] { work(hog, copies); };
    period = [this] { return disturbs() ? milliseconds(200) : milliseconds(100); };
  }
  // As long as nothing is done that helps.
  virtual bool disturbs() {
    if (hog.shim.gate().closed != 0) return false;
    const std::uint32_t mine = train.lane().compute_slice_us;
    return copies ? hog.lane().copy_slice_us > 50 : hog.lane().compute_slice_us > mine / 20;
  }
  bool answered() {
    return until([&] { return named("train")["guard"]["state"] == "answering"; });
  }
  json measures() {
    const json answers = named("train")["guard"]["answers"];
    return answers.empty() ? json() : answers[0]["measures"];
  }
  std::uint32_t closed() const { return hog.shim.gate().closed; }
  // At each tick: more than a hundred listings would take longer than all else here.
  void stays_free(const std::string& name) {
    for (int ticks = 0; ticks < 100; ++ticks) {
      pass(20 * kStep);
      EXPECT_EQ(named(name)["held_back_for"], json::array());
    }
  }

  Joined hog = rig.runs({.job = "hog", .name = "hog"});
  bool copies = false;
};

TEST_F(Guarded, AnInterfererGetsShorterSlicesWithinFourIterations) {
  begin();
  const LogLines log;
  const std::uint64_t before = iterations;
  ASSERT_TRUE(until([&] { return !named("hog")["held_back_for"].empty(); }));
  EXPECT_LE(iterations - before, 4u);
  EXPECT_EQ(named("hog")["held_back_for"], json::array({"train"}));
  EXPECT_EQ(log.count("job 'train' guards itself: "), 1u);
  EXPECT_EQ(log.count("'hog' gets shorter slices"), 1u);
  ASSERT_TRUE(answered());
  EXPECT_EQ(measures(), json::array({"slices"}));
  EXPECT_LE(hog.lane().compute_slice_us, train.lane().compute_slice_us / 50);
  EXPECT_LT(hog.lane().compute_slice_us, abi::kShortBelowUs) << "it fills gaps for as long";
  EXPECT_GE(train.lane().compute_slice_us, abi::kShortBelowUs) << "two would stop everybody";
  EXPECT_NEAR(named("train")["guard"]["iteration_seconds"].get<double>(), 0.1, 0.001);
}

TEST_F(Guarded, OfTwoGuardsTheTighterBoundsAnInterferer) {
  const Joined tune = rig.runs({.job = "tune", .name = "tune"});
  ASSERT_TRUE(set("tune", "guard", "20%")["ok"]);
  Time tune_began = rig.now;
  const auto tunes = [&] {
    while (tune_began + period() <= rig.now) tune.shim.iterate(tune_began += period());
    tune.shim.launch();
  };
  others = tunes;
  begin();
  present.push_back(&tune);
  others = [&] {
    tunes();
    work(hog);
  };
  ASSERT_TRUE(until([&] { return named("hog")["held_back_for"].size() == 2; }));
  ASSERT_TRUE(answered());
  EXPECT_LE(hog.lane().compute_slice_us, train.lane().compute_slice_us / 20);
}

TEST_F(Guarded, OneThatCopiesGetsShortSlicesForThat) {
  copies = true;
  begin();
  ASSERT_TRUE(answered());
  EXPECT_EQ(measures(), json::array({"copies"}));
  EXPECT_EQ(hog.lane().copy_slice_us, 50u);
}

// A script that runs one program after the other: the next one idles first, as it loads.
TEST_F(Guarded, AJobsNextProcessIsFoundAsItsFirstWouldBe) {
  begin();
  period = [] { return milliseconds(100); };
  pass(seconds(30));
  const Joined script = rig.join({.job = "hog", .name = "hog"});
  rig.dies(hog);
  present = {&train};
  others = [] {};
  pass(seconds(1));
  const Joined next = rig.join({.job = "hog", .name = "hog"});
  next.shim.ready_gate();
  next.shim.open_context();
  present.push_back(&next);
  pass(seconds(1));
  others = [&] { work(next); };
  period = [&] {
    const std::uint32_t mine = train.lane().compute_slice_us;
    return milliseconds(next.lane().compute_slice_us > mine / 20 ? 200 : 100);
  };
  EXPECT_TRUE(until([&] { return !named("hog")["held_back_for"].empty(); }));
}

// A gigabyte ten times a second.
void copy_large(const Joined& who, std::uint64_t step) {
  if (step % 10 != 0) return;
  who.shim.lane().copies += 1;
  who.shim.lane().link_bytes += 1'000'000'000;
}

TEST_F(Guarded, AHogOfFewLargeCopiesIsFoundBesideAnInnocentOfManyTinyOnes) {
  const Joined tiny = rig.runs({.job = "tiny", .name = "tiny"});
  tiny.shim.ready_gate();
  copies = true;
  begin();
  present.push_back(&tiny);
  std::uint64_t step = 0;
  others = [&] {
    copy_large(hog, ++step);
    work(tiny, true);
    tiny.shim.lane().link_bytes += 10 * 4096;
    if (step % 10 == 0) tiny.shim.launch();
  };
  const LogLines log;
  ASSERT_TRUE(until([&] {
    EXPECT_TRUE(named("tiny")["held_back_for"].empty());
    return named("train")["guard"]["state"] == "answering";
  }));
  EXPECT_EQ(named("train")["guard"]["answers"][0]["name"], "hog");
  EXPECT_EQ(measures(), json::array({"copies"}));
  EXPECT_EQ(hog.lane().copy_slice_us, 50u);
  EXPECT_EQ(log.count("GB/s (0.00) over links and 0.00 GB/s (0.00) inside the GPU"), 1u);
  EXPECT_EQ(log.count("'tiny' gets"), 0u);
}

// It always has work, and as many kernels and copies as ever: only bytes tell.
class GuardedByBytes : public Guarded {
 protected:
  void trains_on(std::uint64_t link, std::uint64_t device, Time span) {
    others = [=, this] {
      work(hog);
      hog.shim.lane().copies += 1;
      hog.shim.lane().link_bytes += link;
      hog.shim.lane().device_bytes += device;
    };
    pass(span);
  }
  void begins_to_copy(std::uint64_t link, std::uint64_t device) {
    period = [this] { return disturbs() ? milliseconds(200) : milliseconds(100); };
    trains_on(link, device, Time{0});
    EXPECT_TRUE(answered());
    EXPECT_EQ(measures(), json::array({"copies"}));
  }
  void SetUp() override {
    copies = true;
    begin();
    period = [] { return milliseconds(100); };
    trains_on(0, 0, seconds(40));
    ASSERT_TRUE(named("hog")["held_back_for"].empty());
  }
};

TEST_F(GuardedByBytes, OneThatBeginsToCopyOverALinkIsFound) { begins_to_copy(300'000'000, 0); }

TEST_F(GuardedByBytes, OneThatBeginsToCopyInsideTheGpuIsFound) { begins_to_copy(0, 5'000'000'000); }

// The bytes that it claims to have moved are bounded by time, so they are not usual for long.
TEST_F(GuardedByBytes, ALieHidesNobody) {
  hog.shim.lane().link_bytes = UINT64_MAX;
  trains_on(0, 0, seconds(90));
  hog.shim.lane().link_bytes = 0;
  trains_on(0, 0, seconds(1));
  begins_to_copy(300'000'000, 0);
}

// A count that falls is no copy.
TEST_F(GuardedByBytes, AFallingCountIsNoGrowth) {
  hog.shim.lane().link_bytes = 1'000'000'000'000;
  trains_on(0, 0, seconds(90));
  period = [] { return milliseconds(200); };
  hog.shim.lane().link_bytes = 0;
  stays_free("hog");
}

TEST_F(Guarded, WhatAClientCopiedBeforeItCameIsNoGrowth) {
  begin();
  others = {};
  period = [] { return milliseconds(100); };
  const Joined late = rig.runs({.job = "late", .name = "late"});
  late.shim.ready_gate();
  late.shim.lane().link_bytes = 1'000'000'000'000;
  present.push_back(&late);
  pass(milliseconds(100));
  period = [] { return milliseconds(200); };
  stays_free("late");
}

TEST_F(Guarded, NobodyIsAnsweredForAJobOfALowerClass) {
  begin("low");
  pass(seconds(20));
  EXPECT_TRUE(named("hog")["held_back_for"].empty());
}

TEST_F(Guarded, NorForOneOfAnotherUserInTheSameClass) {
  rig.monitor.registry().find_target("hog")->uid = 1001;
  begin();
  pass(seconds(20));
  EXPECT_TRUE(named("hog")["held_back_for"].empty());
  ASSERT_TRUE(set("hog", "priority", "low")["ok"]);
  others = {};
  period = [] { return milliseconds(100); };
  pass(seconds(40));
  others = [this] { work(hog); };
  period = [this] { return disturbs() ? milliseconds(200) : milliseconds(100); };
  EXPECT_TRUE(until([&] { return !named("hog")["held_back_for"].empty(); }));
}

TEST_F(Guarded, NorAnEqualThatGuardsItself) {
  ASSERT_TRUE(set("hog", "guard", "5%")["ok"]);
  begin();
  pass(seconds(20));
  EXPECT_TRUE(named("hog")["held_back_for"].empty());
}

TEST_F(Guarded, AllIsUndoneWhenTheGuardIsTakenAway) {
  begin();
  ASSERT_TRUE(answered());
  ASSERT_TRUE(set("train", "guard", "none")["ok"]);
  pass(milliseconds(400));
  EXPECT_TRUE(named("hog")["held_back_for"].empty());
  EXPECT_TRUE(named("train")["guard"].is_null());
  EXPECT_TRUE(named("train")["guard_ratio"].is_null());
  EXPECT_EQ(hog.lane().compute_slice_us, train.lane().compute_slice_us);
}

TEST_F(Guarded, AllIsUndoneWhenTheGuardedJobDies) {
  begin();
  ASSERT_TRUE(answered());
  trains = false;
  rig.dies(train);
  present = {&hog};
  pass(milliseconds(400));
  EXPECT_TRUE(named("hog")["held_back_for"].empty());
}

TEST_F(Guarded, ItsOwnPauseIsNoInterference) {
  begin();
  others = {};
  rig.tell("pause", "train");
  trains = false;
  others = [this] { work(hog); };
  pass(seconds(5));
  rig.tell("resume", "train");
  trains = true;
  period = [] { return milliseconds(100); };
  pass(seconds(5));
  EXPECT_TRUE(named("hog")["held_back_for"].empty());
}

TEST_F(Guarded, ATrainingThatIsAloneIsRecordedForItsGuard) {
  EXPECT_EQ(train.lane().attention & abi::kRecordLaunches, 0u);
  ASSERT_TRUE(set("train", "guard", "5%")["ok"]);
  pass(milliseconds(400));
  EXPECT_NE(train.lane().attention & abi::kRecordLaunches, 0u);
  EXPECT_EQ(hog.lane().attention & abi::kRecordLaunches, 0u);
}

Settings by_gates() {
  Settings out;
  out.means = Means::kGate;
  return out;
}

// Slices are not in use, so what is left are ceilings and holds.
class GuardedByGates : public Guarded {
 protected:
  GuardedByGates() : Guarded(by_gates()) {}
  bool disturbs() override { return hog.shim.gate().closed == 0; }
};

TEST_F(GuardedByGates, AHoldIsUndoneAndToldOf) {
  begin();
  // Whatever gets through disturbs: only a hold helps.
  // It is asked at each step, and looks at every tenth: listings would take longer than all else.
  period = [this, asked = 0u, held = false]() mutable {
    if (asked++ % 10 == 0) held = measures() == json::array({"hold"});
    return held ? milliseconds(100) : milliseconds(200);
  };
  ASSERT_TRUE(answered());
  EXPECT_EQ(measures(), json::array({"hold"}));
  EXPECT_EQ(closed(), abi::kClosedByGuard);
  const json held = named("hog");
  EXPECT_EQ(held["state"], "held");
  EXPECT_EQ(held["state_reason"], "guard");
  EXPECT_EQ(held["gpus"][0]["gate"], "guard");
  pass(seconds(2));
  EXPECT_GT(named("hog")["waits_seconds"]["guard"].get<double>(), 1.0);
  EXPECT_TRUE(until([&] { return closed() == 0; }, guard::kLongestStay)) << "it is eased";
}

TEST_F(GuardedByGates, AHoldIsTheGuardsAlsoBesideALowerLimitOfItsOwn) {
  begin();
  ASSERT_TRUE(set("train", "guard", "50%")["ok"]);  // its ceiling is 5 %
  ASSERT_TRUE(set("hog", "limit", "1%")["ok"]);
  period = [this] {
    const json on = measures();
    const bool held = on.is_array() && std::find(on.begin(), on.end(), "hold") != on.end();
    return held ? milliseconds(100) : milliseconds(400);
  };
  ASSERT_TRUE(until([&] {
    const json on = measures();
    return on.is_array() && std::find(on.begin(), on.end(), "hold") != on.end();
  }));
  pass(milliseconds(100));
  EXPECT_EQ(closed() & abi::kClosedByGuard, abi::kClosedByGuard);
  EXPECT_EQ(named("hog")["state_reason"], "guard");
}

TEST_F(GuardedByGates, ACeilingIsKeptByTheGate) {
  begin();
  ASSERT_TRUE(answered());
  EXPECT_EQ(measures(), json::array({"ceiling"}));
  EXPECT_TRUE(until([&] { return closed() == abi::kClosedByGuard; }));
  EXPECT_TRUE(until([&] { return closed() == 0; }, seconds(10)));
}

}  // namespace
}  // namespace switchyard::monitor::test
