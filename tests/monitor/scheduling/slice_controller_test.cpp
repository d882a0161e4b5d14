// Slices from the counters in the pages to what is written back, over the whole monitor.
#include "monitor/scheduling/slice_controller.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/monitor/rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

struct SlicingTest : testing::Test {
  Rig rig;

  // NVML lists these processes, and both clients follow what the monitor makes of it.
  void list(const std::map<pid_t, std::uint64_t>& uses, const Joined& high, const Joined& low) {
    rig.gpus.uses[0] = uses;
    rig.pass(seconds(1));
    rig.settle({&high, &low});
  }
};

TEST_F(SlicingTest, HighBesideLow) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.runs({.priority = "low"});
  rig.settle({&high, &low});
  EXPECT_EQ(high.lane().compute_slice_us, 10'000u);
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
  EXPECT_EQ(low.lane().copy_slice_us, 50u);
}

TEST_F(SlicingTest, ASetPriorityIsInForceAtOnce) {
  const Joined a = rig.runs({.name = "a"});
  const Joined b = rig.runs({.name = "b"});
  rig.settle({&a, &b});
  EXPECT_EQ(a.lane().compute_slice_us, 25'000u);
  rig.ask({{"op", "set"}, {"target", "a"}, {"priority", "high"}});
  EXPECT_EQ(a.lane().compute_slice_us, 10'000u);
  EXPECT_EQ(b.lane().compute_slice_us, 20u);
  EXPECT_STREQ(a.shim.card().priority, "high");
}

TEST_F(SlicingTest, ASetShareIsInForceAtOnce) {
  const Joined a = rig.runs({.name = "a"});
  const Joined b = rig.runs({.name = "b"});
  rig.settle({&a, &b});
  rig.ask({{"op", "set"}, {"target", "a"}, {"share", 4}});
  EXPECT_EQ(a.lane().compute_slice_us, 40'000u);
  EXPECT_EQ(b.lane().compute_slice_us, 10'000u);
}

TEST_F(SlicingTest, AClientAloneIsNeverAskedForAnything) {
  const Joined a = rig.runs({.priority = "high"});
  rig.settle({&a});
  rig.pass(seconds(10));
  EXPECT_EQ(a.lane().slice_seq, 0u);
  EXPECT_EQ(a.lane().attention, 0u) << "and never makes a system call";
}

TEST_F(SlicingTest, WhoIsLeftAloneGetsTheDefaultBack) {
  const Joined a = rig.runs({});
  const Joined b = rig.runs({});
  rig.settle({&a, &b});
  rig.monitor.died(b.id);
  rig.pass(milliseconds(5));
  EXPECT_EQ(a.lane().compute_slice_us, 0u);
  EXPECT_EQ(a.lane().copy_slice_us, 0u);
}

TEST_F(SlicingTest, AnIdleClientIsAskedToRing) {
  const Joined a = rig.runs({});
  const Joined b = rig.runs({});
  rig.settle({&a, &b});
  EXPECT_EQ(a.lane().attention & abi::kWakeMonitor, 0u);
  for (int i = 0; i < 12; ++i) {
    b.shim.launch();
    rig.pass(milliseconds(200));
  }
  EXPECT_EQ(a.lane().attention, abi::kWakeMonitor);
  EXPECT_EQ(b.lane().attention, 0u);
}

// NVML names it, and nothing shows that it has no slices from somebody else.
TEST_F(SlicingTest, BesideAProcessThatMayBeAnotherMonitorsNobodyIsShort) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.runs({.priority = "low"});
  const std::map<pid_t, std::uint64_t> ours = {{high.client->peer.pid, kMiB},
                                               {low.client->peer.pid, kMiB}};
  list(ours, high, low);
  ASSERT_EQ(low.lane().compute_slice_us, 20u);
  std::map<pid_t, std::uint64_t> theirs_too = ours;
  theirs_too[4'190'000] = kGiB;
  list(theirs_too, high, low);
  EXPECT_GE(low.lane().compute_slice_us, abi::kShortBelowUs);
  EXPECT_NE(rig.ask({{"op", "status"}})["gpus"][0]["means_reason"].get<std::string>().find(
                "another monitor"),
            std::string::npos);
  list(ours, high, low);
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
}

TEST_F(SlicingTest, BesideAProcessWithoutTheLibraryTheYielderIsShort) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.runs({.priority = "low"});
  list({{::getpid(), kGiB}}, high, low);
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
}

// Of two monitors that ask NVML only then, one sees the other's contexts.
TEST_F(SlicingTest, NobodyIsShortBeforeNvmlWasAskedWithItsContextThere) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.join({.priority = "low"});
  rig.settle({&high});
  low.shim.open_context();
  rig.gpus.uses[0] = {{high.client->peer.pid, kMiB}, {low.client->peer.pid, kMiB}};
  rig.gpus.uses[0][4'190'000] = kGiB;  // the other monitor's, since the last answer
  for (int i = 0; i < 5; ++i) {
    high.shim.launch();
    low.shim.launch();
    rig.now += milliseconds(5);
    rig.monitor.look(rig.now);
    high.shim.apply_slices();
    low.shim.apply_slices();
    ASSERT_TRUE(low.lane().slice_seq == 0 || low.lane().compute_slice_us >= abi::kShortBelowUs);
  }
  rig.settle({&high, &low});
  EXPECT_GE(low.lane().compute_slice_us, abi::kShortBelowUs);
}

TEST_F(SlicingTest, WhereNvmlNamesNobodyMemoryThatWasThereBeforeIsAnotherMonitors) {
  rig.gpus.lists_processes = false;
  rig.gpus.unlisted = kGiB;
  for (int i = 0; i < 3; ++i) {
    rig.now += seconds(1);
    rig.monitor.sampler().measure_all(rig.now);
  }
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.runs({.priority = "low"});
  rig.settle({&high, &low});
  EXPECT_GE(low.lane().compute_slice_us, abi::kShortBelowUs);
}

TEST_F(SlicingTest, AStoppedYielderKeepsTheOnlyShortSliceUntilItIsDead) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.runs({.priority = "low"});
  rig.settle({&high, &low});
  ASSERT_EQ(low.lane().compute_slice_us, 20u);
  const Joined next = rig.runs({.priority = "low"});
  rig.pass(seconds(3));
  for (int i = 0; i < 10; ++i) {  // low is stopped: it launches nothing and answers nothing
    high.shim.launch();
    next.shim.launch();
    rig.pass(milliseconds(100));
    high.shim.apply_slices();
    next.shim.apply_slices();
    ASSERT_GE(next.lane().compute_slice_us, abi::kShortBelowUs);
  }
  rig.monitor.left(low.id);  // also not when its socket closes
  rig.pass(milliseconds(5));
  ASSERT_GE(next.lane().compute_slice_us, abi::kShortBelowUs);
  rig.monitor.died(low.id);
  next.shim.launch();
  rig.pass(milliseconds(5));
  EXPECT_EQ(next.lane().compute_slice_us, 20u);
}

TEST_F(SlicingTest, AProcessThatCanNotBeWatchedCountsAsDeadSomeTimeAfterItLeft) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined unseen = rig.join_as({0, 1000}, hello_of({.priority = "low"}));
  unseen.shim.open_context();
  rig.settle({&high, &unseen});
  ASSERT_EQ(unseen.lane().compute_slice_us, 20u);
  rig.monitor.left(unseen.id);
  const Joined low = rig.runs({.priority = "low"});
  high.shim.launch();
  low.shim.launch();
  rig.pass(seconds(1));
  low.shim.apply_slices();
  ASSERT_GE(low.lane().compute_slice_us, abi::kShortBelowUs);
  rig.pass(seconds(2));
  high.shim.launch();
  low.shim.launch();
  rig.pass(milliseconds(5));
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
}

TEST_F(SlicingTest, AClientThatRejoinsConfirmsSomethingBeforeAnybodyElseIsShort) {
  const Joined back = rig.join({.priority = "high"}, 1000, 1, wire::kRejoin);
  back.shim.open_context();
  const Joined low = rig.runs({.priority = "low"});
  back.shim.launch();
  low.shim.launch();
  rig.pass(milliseconds(5));
  EXPECT_EQ(back.lane().slice_seq, 1u);
  EXPECT_GE(low.lane().compute_slice_us, abi::kShortBelowUs);
  rig.settle({&back, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
}

TEST_F(SlicingTest, ARejoinedClientAloneConfirmsTheDefault) {
  const Joined back = rig.join({}, 1000, 1, wire::kRejoin);
  back.shim.open_context();
  rig.settle({&back});
  EXPECT_EQ(back.lane().slice_applied_seq, 1u);
  EXPECT_EQ(back.lane().compute_slice_us, 0u);
}

TEST_F(SlicingTest, ADriverThatRefusesIsAskedAFewTimesAndLeftAlone) {
  const Joined a = rig.runs({});
  const Joined b = rig.runs({});
  for (int i = 0; i < 20; ++i) {
    a.shim.launch();
    b.shim.launch();
    rig.pass(milliseconds(5));
    a.shim.apply_slices(0, abi::kSliceRefused);
    b.shim.apply_slices(0, abi::kSliceRefused);
  }
  EXPECT_LE(a.lane().slice_seq, 4u);
  EXPECT_EQ(rig.ask({{"op", "status"}})["gpus"][0]["means"], "gate");
  EXPECT_EQ(rig.job()["gpus"][0]["slice_status"], "refused");
}

TEST_F(SlicingTest, MeansNoneTakesAllSlicesBackAndAutoGivesThemAgain) {
  const Joined high = rig.runs({.priority = "high"});
  const Joined low = rig.runs({.priority = "low"});
  rig.settle({&high, &low});
  EXPECT_TRUE(rig.ask({{"op", "means"}, {"means", "none"}})["ok"]);
  EXPECT_EQ(low.lane().compute_slice_us, 0u);
  EXPECT_EQ(high.lane().compute_slice_us, 0u);
  EXPECT_EQ(rig.ask({{"op", "status"}})["gpus"][0]["means"], "none");
  rig.settle({&high, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 0u);
  rig.ask({{"op", "means"}, {"means", "auto"}});
  rig.settle({&high, &low});
  EXPECT_EQ(low.lane().compute_slice_us, 20u);
}

TEST_F(SlicingTest, EveryGpuIsDecidedByItself) {
  Rig two(2);
  const Joined high = two.join({.priority = "high"}, 1000, 2);
  const Joined low = two.join({.priority = "low"}, 1000, 2);
  high.shim.open_context(0);
  low.shim.open_context(0);
  low.shim.open_context(1);
  for (int i = 0; i < 3; ++i) {
    high.shim.launch(0);
    low.shim.launch(0);
    low.shim.launch(1);
    two.pass(milliseconds(5));
  }
  EXPECT_EQ(low.lane(0).compute_slice_us, 20u);
  EXPECT_EQ(low.lane(1).compute_slice_us, 0u) << "alone there";
}

TEST_F(SlicingTest, AFreshMonitorBesideStrangersWaitsBeforeItMakesAnybodyShort) {
  FakeGpus gpus;
  gpus.uses[0][::getpid()] = kMiB;  // which has no library, so it has no slices from anybody
  Monitor monitor(gpus, {}, seconds(100), [] { return 1ull << 40; });
  std::string why;
  Client* high =
      monitor.join({4001, 1}, hello_of({.job = "h", .priority = "high"}), seconds(100), why);
  Client* low =
      monitor.join({4002, 1}, hello_of({.job = "l", .priority = "low"}), seconds(100), why);
  ASSERT_TRUE(high != nullptr && low != nullptr) << why;
  const FakeShim a(high->page->memfd());
  const FakeShim b(low->page->memfd());
  for (const FakeShim* each : {&a, &b}) {
    each->open_context();
    each->launch();
  }
  for (Time now = seconds(101); now < seconds(103); now += milliseconds(200)) {
    monitor.tick(now);
    monitor.look(now);
    EXPECT_EQ(b.lane().compute_slice_us, 2048u);
  }
  a.launch();
  b.launch();
  monitor.look(seconds(103));
  EXPECT_EQ(b.lane().compute_slice_us, 20u);
}

class SlicingLaw : public testing::TestWithParam<std::uint64_t> {};

// Random joins, leaves, kills, stops and sets over the whole monitor: never two short slices in
// force, whatever the clients do and answer.
TEST_P(SlicingLaw, NeverTwoShortInForce) {
  std::mt19937_64 random(GetParam());
  Rig rig;
  struct Process {
    Joined joined;
    bool stopped = false;
    bool attached = true;
  };
  std::map<ClientId, Process> processes;
  const char* priorities[] = {"high", "normal", "low"};
  unsigned shorts_seen = 0;
  for (int step = 0; step < 1000; ++step) {
    const auto chance = [&random](unsigned of) { return random() % of == 0; };
    if (processes.size() < 6 && chance(5)) {
      Joined fresh = rig.join({.priority = priorities[random() % 3]});
      fresh.shim.open_context();
      const ClientId id = fresh.id;
      processes.emplace(id, Process{std::move(fresh)});
    }
    if (!processes.empty() && chance(20)) {
      auto it = std::next(processes.begin(), static_cast<long>(random() % processes.size()));
      if (it->second.attached && chance(2)) {
        rig.monitor.left(it->first);
        it->second.attached = false;
      } else {
        rig.monitor.died(it->first);
        processes.erase(it);
      }
    }
    for (auto& [id, process] : processes) {
      if (chance(30)) process.stopped ^= true;
      if (process.stopped) continue;
      if (chance(3)) process.joined.shim.launch();
      if (chance(2)) process.joined.shim.apply_slices();
      if (process.attached && chance(15)) {
        const Job* job = rig.monitor.registry().find(process.joined.client->job);
        rig.ask({{"op", "set"}, {"target", job->id}, {"priority", priorities[random() % 3]}});
      }
    }
    rig.pass(milliseconds(random() % 700));
    unsigned in_force = 0;
    for (const auto& [id, process] : processes) {
      const abi::Lane& lane = process.joined.lane();
      in_force += is_short({lane.compute_slice_applied_us, lane.copy_slice_applied_us});
    }
    shorts_seen += in_force;
    ASSERT_LE(in_force, 1u) << "seed " << GetParam() << " step " << step;
  }
  EXPECT_GT(shorts_seen, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SlicingLaw,
                         testing::Range<std::uint64_t>(1, 1 + test_support::seeds(20)));

}  // namespace
}  // namespace switchyard::monitor::test
