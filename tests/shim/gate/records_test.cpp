// The records of launches and collectives, and the cases without one.
#include "shim/client/records.h"

#include "tests/shim/gate/gate_world.h"

namespace switchyard::shim::testing {
namespace {

class Records : public GateTest {
 protected:
  Records() { page().process.recorded.store(0); }
  ~Records() override {
    for (auto& word : page().process.recorded_classes) word.store(0);
  }

  static void want_all() {
    for (auto& word : page().process.recorded_classes) word.store(~std::uint64_t{0});
  }
  void ask() { lane().attention.fetch_or(abi::kRecordLaunches); }
  // A kernel with such a grid.
  CUresult kernel(std::uintptr_t function, unsigned x, unsigned y = 1, unsigned z = 1) {
    return rules::launch([](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            unsigned, CUstream) { return CUDA_SUCCESS; },
                         reinterpret_cast<CUfunction>(function), x, y, z, 1u, 1u, 1u, 0u, first_);
  }
  CUresult graph(std::uintptr_t executable) {
    return rules::graph_launch([](CUgraphExec, CUstream) { return CUDA_SUCCESS; },
                               reinterpret_cast<CUgraphExec>(executable), first_);
  }
  static std::uint32_t count() { return page().process.recorded.load(); }
  static abi::Record& last() { return page().records[(count() - 1) % abi::kRecords]; }
};

TEST_F(Records, NothingIsRecordedUnasked) {
  want_all();
  kernel(0x1000, 1);
  graph(0x2000);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Records, AKernelIsToldByItsFunctionAndGrid) {
  want_all();
  ask();
  kernel(0x1000, 1);
  EXPECT_EQ(count(), 1u);
  EXPECT_EQ(last().number.load(), 1u);
  const std::uint32_t what = last().what.load();
  EXPECT_NE(what & abi::kLaunchRecord, 0u);
  kernel(0x1000, 1);
  EXPECT_EQ(last().what.load(), what);
  kernel(0x1000, 2);
  EXPECT_NE(last().what.load(), what);
  kernel(0x1040, 1);
  EXPECT_NE(last().what.load(), what);
  kernel(0x1000, 1, 2);
  EXPECT_NE(last().what.load(), what);
  kernel(0x1000, 1, 1, 2);
  EXPECT_NE(last().what.load(), what);
  graph(0x1000);
  EXPECT_EQ(count(), 7u);
}

TEST_F(Records, OnlyWantedClassesAreRecorded) {
  want_all();
  ask();
  kernel(0x1000, 1);
  const std::uint32_t kind = last().what.load() % abi::kLaunchClasses;
  page().process.recorded_classes[kind / 64].store(~(std::uint64_t{1} << kind % 64));
  kernel(0x1000, 1);
  EXPECT_EQ(count(), 1u);
}

TEST_F(Records, CopiesAreNotRecorded) {
  want_all();
  ask();
  rules::copy([](int, CUstream) { return CUDA_SUCCESS; }, 1, first_);
  EXPECT_EQ(count(), 0u);
}

TEST_F(Records, WhatIsAskedForAloneNeedsNoGate) {
  want_all();
  ask();
  EXPECT_EQ(gate::attentive_lane(), nullptr);
  kernel(0x1000, 1);
  EXPECT_EQ(gate().submitted[0].load(), 0u);
}

TEST_F(Records, TheRingHoldsTheLastOnes) {
  for (std::uint32_t i = 1; i <= abi::kRecords + 3; ++i) records::note(i, 0);
  EXPECT_EQ(page().records[0].number.load(), abi::kRecords + 1);
  EXPECT_EQ(page().records[2].what.load(), abi::kRecords + 3);
  EXPECT_EQ(page().records[3].what.load(), 4u);
}

TEST_F(Records, ARecordHasTheMicrosecondOfItsLaunch) {
  const auto before = static_cast<std::uint32_t>(monotonic_ns() / 1000);
  records::note(1, 0);
  const auto behind = static_cast<std::uint32_t>(monotonic_ns() / 1000);
  EXPECT_LE(last().time_us.load() - before, behind - before);
}

TEST_F(Records, NoRecordHasTheNumberOfOneThatIsWritten) {
  records::note(1, 0);
  page().process.recorded.store(~0u);
  const std::uint32_t what = page().records[abi::kRecords - 1].what.load();
  records::note(what + 1, 0);
  EXPECT_EQ(page().records[abi::kRecords - 1].what.load(), what);
}

TEST_F(Records, BytesBeyondTheWordAreTheMost) {
  records::note(1, std::uint64_t{1} << 40);
  EXPECT_EQ(last().bytes.load(), abi::kMostRecordedBytes);
}

}  // namespace
}  // namespace switchyard::shim::testing
