// A thread at a cut: who stops, who goes on, and what lets it go.
#include "shim/nccl/cut.h"

#include "shim/gate/hold.h"
#include "tests/shim/nccl/nccl_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class CutStop : public NcclTest {
 protected:
  CutStop() { make(first_); }
  ~CutStop() override { release(); }

  // As the monitor does it: targets, then the word.
  void ask(std::uint64_t target) {
    shown(first_).target.store(static_cast<std::uint32_t>(target));
    page().process.cut.store(++number_);
    wake_held(page().process.cut);
  }
  void release() {
    page().process.cut.store(0);
    wake_held(page().process.cut);
  }
  static bool is_inside() { return page().process.entered.load() != page().process.left.load(); }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 6000; ++i) {
      if (condition()) return true;
      page().head.heartbeat.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  bool stops() {
    return eventually([] { return page().process.stopped.load() == 1; });
  }

 private:
  std::uint32_t number_ = 0;
};

TEST_F(CutStop, NothingIsAskedForAndALaunchIsEnteredAndLeft) {
  NcclCall call;
  call.call = [] {
    EXPECT_TRUE(is_inside());
    return kNcclSuccess;
  };
  reduce(first_, call);
  EXPECT_EQ(page().process.entered.load(), 1u);
  EXPECT_FALSE(is_inside());
}

TEST_F(CutStop, AtItsTargetAThreadStopsOutsideAndUncounted) {
  reduce(first_);
  ask(1);
  std::atomic<bool> launched_it{false};
  std::thread thread([&] {
    reduce(first_);
    launched_it = true;
  });
  EXPECT_TRUE(stops());
  EXPECT_FALSE(is_inside());
  EXPECT_EQ(launched(first_), 1u);
  EXPECT_FALSE(launched_it);
  release();
  thread.join();
  EXPECT_EQ(launched(first_), 2u);
  EXPECT_EQ(page().process.stopped.load(), 0u);
}

TEST_F(CutStop, BelowItsTargetItGoesOn) {
  ask(2);
  reduce(first_);
  reduce(first_);
  EXPECT_EQ(launched(first_), 2u);
}

TEST_F(CutStop, ATargetThatIsRaisedLetsItGoOn) {
  ask(0);
  std::thread thread([this] { reduce(first_); });
  EXPECT_TRUE(stops());
  ask(1);
  thread.join();
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(CutStop, BelowTheTargetOfAnotherCommunicatorItPasses) {
  make(second_);
  shown(second_).target.store(1);
  ask(0);
  reduce(first_);
  EXPECT_EQ(launched(first_), 1u);
  shown(second_).target.store(0);
}

TEST_F(CutStop, TheCountersMayWrap) {
  ask(0xfffffff0u);
  // 16 launches later they are where the target is, as far as half of the counter tells.
  EXPECT_TRUE(nccl::communicators::at_targets());
  shown(first_).target.store(0x10);
  EXPECT_FALSE(nccl::communicators::at_targets());
}

TEST_F(CutStop, AGroupStopsWhereItEnds) {
  ask(0);
  std::thread thread([this] {
    start();
    reduce(first_);
    finish();
  });
  EXPECT_TRUE(stops());
  EXPECT_EQ(launched(first_), 0u);
  release();
  thread.join();
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(CutStop, SendsAmongMorePass) {
  ask(0);
  send(first_, 1);
  EXPECT_EQ(shown(first_).sent.load(), 1u);
}

TEST_F(CutStop, WithoutAMonitorItGoesOn) {
  ask(0);
  std::thread thread([this] { reduce(first_); });
  EXPECT_TRUE(stops());
  process().joined.store(0);
  thread.join();
  EXPECT_EQ(page().process.cut.load(), 0u);
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(CutStop, AMonitorThatFallsSilentIsNotWaitedFor) {
  ask(0);
  std::thread thread([this] { reduce(first_); });
  thread.join();  // nobody lets the heart beat
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(CutStop, AtAClosedGateAThreadIsHeldBeforeItEnters) {
  lane().attention.fetch_or(abi::kGateArmed);
  page().gates[0].closed.store(abi::kClosedByPause);
  std::thread thread([this] { reduce(first_); });
  EXPECT_TRUE(eventually([] { return page().gates[0].held_threads.load() == 1; }));
  EXPECT_FALSE(is_inside());
  EXPECT_EQ(launched(first_), 0u);
  // A cut that is asked for meanwhile holds it when the gate opens.
  ask(0);
  page().gates[0].closed.store(0);
  wake_held(page().gates[0].closed);
  EXPECT_TRUE(stops());
  lane().attention.fetch_and(~abi::kGateArmed);
  release();
  thread.join();
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(CutStop, InsideNobodyHoldsIt) {
  NcclCall call;
  call.call = [this] {
    page().gates[0].closed.store(abi::kClosedByTurn);
    hold(0);  // as a launch of NCCL's own would
    page().gates[0].closed.store(0);
    return kNcclSuccess;
  };
  reduce(first_, call);
  EXPECT_EQ(launched(first_), 1u);
}

TEST_F(CutStop, AFreshPageKnowsWhatHasEntered) {
  NcclCall call;
  call.call = [] {
    static abi::Page fresh;
    nccl::communicators::carry_over(fresh);
    EXPECT_EQ(fresh.process.entered.load(), fresh.process.left.load() + 1);
    page().process.entered.store(0);
    page().process.left.store(0);
    nccl::communicators::tell();
    EXPECT_TRUE(is_inside());
    return kNcclSuccess;
  };
  reduce(first_);
  reduce(first_, call);
  EXPECT_FALSE(is_inside());
}

}  // namespace
}  // namespace switchyard::shim
