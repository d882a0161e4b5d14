// The driver's checkpoint of a process, made by itself. Each in a process of its own: one whose
// checkpoint fails may stay locked.
#include "checkpointed.h"
#include "children.h"
#include "driver.h"
#include "spawned.h"

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

// A step that the driver does not do is skipped: it prints which one was refused.
void expect_moves(const std::string& child, int gpus, const std::string& input = {}) {
  int count = 0;
  ASSERT_CU(CU(cuDeviceGetCount)(&count));
  if (count < gpus) GTEST_SKIP() << "one GPU only";
  const int status = run_child(child, input);
  if (status == kRefused) GTEST_SKIP() << "the driver refuses it";
  EXPECT_EQ(0, status);
}

TEST_F(Checkpoint, KeepsMemoryThatAnotherProcessHolds) { expect_moves("checkpoint-kept-here", 1); }

TEST_F(Checkpoint, KeepsMemoryOfAnotherGpuThatAnotherProcessHolds) {
  expect_moves("checkpoint-kept-there", 2);
}

TEST_F(Checkpoint, KeepsMemoryOfAGpuThatItDoesNotSee) {
  const std::vector<CUcheckpointGpuPair> pairs = exchanged_gpus();
  const char* bytes = reinterpret_cast<const char*>(pairs.data());
  expect_moves("checkpoint-kept-unseen", 2,
               std::string(bytes, pairs.size() * sizeof(CUcheckpointGpuPair)));
}

TEST_F(Checkpoint, KeepsMemoryThatItsOwnDescriptorHolds) {
  expect_moves("checkpoint-kept-here-by-itself", 1);
}

TEST_F(Checkpoint, KeepsMemoryOfAnotherGpuThatItsOwnDescriptorHolds) {
  expect_moves("checkpoint-kept-there-by-itself", 2);
}

TEST_F(Checkpoint, MovesAContext) { expect_moves("checkpoint-plain", 1); }

TEST_F(Checkpoint, MovesMemory) { expect_moves("checkpoint-memory", 1); }

TEST_F(Checkpoint, MovesContextsOfTwoGpus) { expect_moves("checkpoint-both", 2); }

TEST_F(Checkpoint, MovesPinnedHostMemory) { expect_moves("checkpoint-pinned", 1); }

TEST_F(Checkpoint, MovesPinnedHostMemoryOfTwoGpus) { expect_moves("checkpoint-pinned-both", 2); }

TEST_F(Checkpoint, MovesHostMemoryThatIsPinnedAgain) { expect_moves("checkpoint-unpinned", 1); }

}  // namespace
}  // namespace conformance
