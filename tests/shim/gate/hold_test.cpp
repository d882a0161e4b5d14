// Threads before a closed gate.
#include "shim/gate/hold.h"

#include <thread>

#include "shim/clock.h"
#include "shim/rules/linear.h"
#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class Hold : public GateTest {
 protected:
  ~Hold() override { open(); }

  void close(std::uint32_t why) {
    lane().attention.fetch_or(abi::kGateArmed);
    gate().closed.store(why);
  }
  void open() {
    gate().closed.store(0);
    wake_held(gate().closed);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      beat();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  void beat() { page().head.heartbeat.fetch_add(1); }
};

TEST_F(Hold, AThreadThatLaunchesSleepsBeforeTheDriverAndIsCounted) {
  close(abi::kClosedByTurn);
  std::thread launcher([this] { launch(first_); });
  EXPECT_TRUE(eventually([this] { return gate().held_threads.load() == 1; }));
  EXPECT_TRUE(log(first_).empty());
  open();
  launcher.join();
  EXPECT_EQ(log(first_), (Log{"wait", "launch"}));
  EXPECT_EQ(gate().held_threads.load(), 0u);
}

TEST_F(Hold, WaitsCopiesAndFreesSleepTooAndQuestionsDoNot) {
  close(abi::kClosedByPause);
  std::atomic<int> calls{0};
  const auto original = [&](auto...) {
    ++calls;
    return CUDA_SUCCESS;
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { rules::synchronise<gate::Waiting::kStream>(original); });
  threads.emplace_back([&] { rules::copy(original, 1); });
  threads.emplace_back([&] { rules::copy(original, first_); });
  threads.emplace_back([&] { rules::free_memory(original, CUdeviceptr{4096}); });
  threads.emplace_back([&] { rules::wait(original, 1); });
  threads.emplace_back([&] { rules::call_back(original, first_, 1); });
  EXPECT_TRUE(eventually([this] { return gate().held_threads.load() == 6; }));
  EXPECT_EQ(calls, 0);
  rules::ask(original, first_);
  EXPECT_EQ(calls, 1);
  open();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(calls, 7);
}

TEST_F(Hold, AnOpenBatchGetsItsNumberBeforeItsThreadSleeps) {
  arm();
  launch(first_, 1);
  close(abi::kClosedByTurn);
  std::thread launcher([this] { launch(first_); });
  EXPECT_TRUE(eventually([this] { return gate().held_threads.load() == 1; }));
  EXPECT_EQ(log(first_), (Log{"wait", "launch", "write 1"}));
  open();
  launcher.join();
}

TEST_F(Hold, WithoutAMonitorTurnsAndLimitsOpenByThemselves) {
  close(abi::kClosedByTurn | abi::kClosedByLimit);
  std::thread launcher([this] { launch(first_); });
  EXPECT_TRUE(eventually([this] { return gate().held_threads.load() == 1; }));
  process().joined.store(0);
  launcher.join();
  EXPECT_EQ(gate().closed.load(), 0u);
  EXPECT_EQ(lane().attention.load() & abi::kGateArmed, 0u);
}

TEST_F(Hold, ASilentMonitorIsNoneAlsoWhenNobodyElseNotices) {
  close(abi::kClosedByTurn);
  launch(first_);  // comes back, for the heartbeat stands still
  EXPECT_EQ(gate().closed.load(), 0u);
}

TEST_F(Hold, WithoutAMonitorAPauseStays) {
  close(abi::kClosedByPause | abi::kClosedByTurn);
  const std::uint64_t end = monotonic_ns() + 3'600'000'000'000;
  gate().pause_until_ns.store(end);
  process().joined.store(0);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), abi::kClosedByPause);
  EXPECT_NE(lane().attention.load() & abi::kGateArmed, 0u);
  EXPECT_TRUE(paused().paused);
  EXPECT_EQ(paused().until_ns, end);
}

TEST_F(Hold, WithoutAMonitorAPauseIsInForceOnceItsMemoryHasLeft) {
  gate().paused.store(1);
  page().residencies[1].phase.store(abi::kLeaving);
  process().joined.store(0);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), 0u) << "accepted work has to end";
  EXPECT_TRUE(paused().paused);
  page().residencies[1].phase.store(abi::kAbsent);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), abi::kClosedByPause);
  EXPECT_NE(lane().attention.load() & abi::kGateArmed, 0u);
  page().residencies[1].phase.store(abi::kLeaving);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), 0u) << "it begins only now";
  page().residencies[1].phase.store(abi::kResident);
  gate().pause_until_ns.store(1);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), 0u);
  EXPECT_FALSE(paused().paused) << "it is over";
}

TEST_F(Hold, WithoutAMonitorThoseOfAPausedJobStayAtTheirCut) {
  gate().paused.store(1);
  page().process.cut.store(5);
  process().joined.store(0);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), abi::kClosedByPause);
  EXPECT_EQ(page().process.cut.load(), 5u);
  page().residencies[1].phase.store(abi::kLeaving);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), 0u) << "accepted work has to end";
  EXPECT_EQ(page().process.cut.load(), 5u)
      << "and no collective begins that the others did not launch";
  gate().pause_until_ns.store(1);
  open_without_monitor();
  EXPECT_EQ(gate().closed.load(), 0u);
  EXPECT_EQ(page().process.cut.load(), 0u);
}

TEST_F(Hold, WithoutAMonitorThePauseOfOneGpuKeepsTheCutForAll) {
  gate().paused.store(1);
  page().lanes[1].attention.store(abi::kGateArmed);
  page().process.cut.store(5);
  process().joined.store(0);
  open_without_monitor();
  EXPECT_EQ(page().lanes[1].attention.load(), 0u);
  EXPECT_EQ(page().process.cut.load(), 5u);
}

// One of a later version, whose gates this library does not know.
TEST_F(Hold, AMonitorWithoutGatesPausesAndResumesByTheHead) {
  process().served.store(1);
  page().lanes[0].in_use.store(1);
  page().head.paused.store(1);
  follow_head();
  EXPECT_EQ(gate().closed.load(), abi::kClosedByPause);
  EXPECT_NE(lane().attention.load() & abi::kGateArmed, 0u);
  EXPECT_TRUE(paused().paused) << "the next monitor hears of it";
  EXPECT_EQ(page().gates[1].closed.load(), 0u) << "no GPU";
  std::thread launcher([this] { launch(first_); });
  EXPECT_TRUE(eventually([this] { return gate().held_threads.load() == 1; }));
  page().head.paused.store(0);
  follow_head();
  launcher.join();
  EXPECT_EQ(gate().closed.load(), 0u);
  page().head.paused.store(1);
  page().head.pause_until_ns.store(1);
  follow_head();
  EXPECT_EQ(gate().closed.load(), 0u) << "it is over";
  process().served.store(0);
  page().head.pause_until_ns.store(0);
  follow_head();
  EXPECT_EQ(gate().closed.load(), 0u) << "a monitor with gates says it there";
  page().head.paused.store(0);
  page().lanes[0].in_use.store(0);
}

TEST_F(Hold, WithoutAMonitorAPauseEndsAtItsTimeOut) {
  close(abi::kClosedByPause);
  gate().pause_until_ns.store(monotonic_ns() + 50'000'000);
  process().joined.store(0);
  launch(first_);  // comes back
  EXPECT_EQ(gate().closed.load(), 0u);
}

TEST_F(Hold, WithoutAMonitorNothingIsWatchedAnyMore) {
  arm(abi::kProgress);
  open_without_monitor();
  EXPECT_EQ(lane().attention.load(), 0u);
}

TEST_F(Hold, AChildOfAForkIsNotHeldByItsParentsGate) {
  close(abi::kClosedByPause);
  process().alive.store(0);  // as the kernel wipes it
  EXPECT_EQ(launch(first_), CUDA_SUCCESS);
  EXPECT_EQ(log(first_), (Log{"launch"}));
}

TEST_F(Hold, AChildOfAForkTakesNoLockOfItsParentsThreads) {
  arm();
  std::atomic<bool> inside{false}, go{false};
  gpu_.during_wait = [&] {
    inside = true;
    while (!go) std::this_thread::yield();
  };
  std::thread parents([this] { launch(first_); });
  while (!inside) std::this_thread::yield();
  process().alive.store(0);  // as the kernel wipes it
  gate::forget(first_);      // comes back
  process().alive.store(1);
  go = true;
  parents.join();
}

TEST_F(Hold, WhoSleepsWhenANewMonitorComesObeysItsPage) {
  close(abi::kClosedByPause);
  std::thread launcher([this] { launch(first_); });
  EXPECT_TRUE(eventually([this] { return gate().held_threads.load() == 1; }));
  new_page();  // open
  launcher.join();
  EXPECT_EQ(gate().held_threads.load(), 0u);
}

}  // namespace
}  // namespace switchyard::shim
