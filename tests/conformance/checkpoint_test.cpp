// The driver's checkpoint of a process, made by itself. Each in a process of its own: one whose
// checkpoint fails may stay locked.
#include "driver.h"

namespace conformance {
namespace {

using Checkpoint = Gpu;

TEST_F(Checkpoint, TakesAllOfAProcessOffTheGpuAndBack) { EXPECT_EQ(0, run_child("checkpoint")); }

TEST_F(Checkpoint, HoldsTheCallsOfOtherThreads) { EXPECT_EQ(0, run_child("checkpoint-holds")); }

TEST_F(Checkpoint, WaitsForWorkUntilItsTimeOut) { EXPECT_EQ(0, run_child("checkpoint-late")); }

TEST_F(Checkpoint, NeedsTheStateBefore) { EXPECT_EQ(0, run_child("checkpoint-states")); }

TEST_F(Checkpoint, ComesBackWhereItWasWhenThePairsAreRefused) {
  EXPECT_EQ(0, run_child("checkpoint-pairs"));
}

TEST_F(Checkpoint, MovesToAnotherGpu) {
  int gpus = 0;
  ASSERT_CU(CU(cuDeviceGetCount)(&gpus));
  if (gpus < 2) GTEST_SKIP() << "one GPU only";
  EXPECT_EQ(0, run_child("checkpoint-moves"));
}

}  // namespace
}  // namespace conformance
