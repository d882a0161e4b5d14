// Memory that the job makes so that it can be exported moves in parts like any other, until it is
// exported. Then it is one piece, at the same addresses, that an importer sees, and stays.
#include <string>

#include "tests/system/swap_scene.h"

namespace switchyard::system_tests {
namespace {

// Three chunks, and an allocation that moves beside them.
class SwapOfSharedMemory : public Swap {
 protected:
  static std::string own(const char* kind) {
    return std::to_string(80 * kMiB) + "/" + std::to_string(80 * kMiB) + kind;
  }
  void begin_shared(const Changes& changes = {}) {
    begin_with({own("x"), std::to_string(34 * kMiB)}, 114 * kMiB, changes);
  }
  // Memory that an importer sees moves no more; the rest does.
  void expect_shared() {
    EXPECT_EQ(words().total_bytes.load(), 34 * kMiB);
    EXPECT_EQ(ask("launch 6"), "did launch");
    EXPECT_EQ(ask("check"), "right");
    out_and_in();
  }
};

TEST_F(SwapOfSharedMemory, LeavesAndComesInParts) {
  begin_with({own("x")}, 80 * kMiB);
  ask("begin");
  ASSERT_TRUE(swapped_out(70 * kMiB));
  EXPECT_EQ(words().resident_bytes.load(), 64 * kMiB);
  out();
  EXPECT_TRUE(eventually([&] { return words().resident_bytes.load() == 0; }));
  ASSERT_TRUE(swapped_in());
  expect_right_in_the_end();
}

TEST_F(SwapOfSharedMemory, ExportedItIsOnePieceThatItsImporterSees) {
  begin_shared();
  EXPECT_EQ(ask("launch 5"), "did launch");
  EXPECT_EQ(ask("export 0"), "did export");
  EXPECT_EQ(ask("check"), "right");
  expect_shared();
  EXPECT_EQ(ask("export 0"), "did export") << "again";
  EXPECT_EQ(ask("remap 0"), "did remap");
  EXPECT_EQ(ask("check"), "right");
}

TEST_F(SwapOfSharedMemory, ExportedUnderARunningJobItKeepsEveryWord) {
  begin_shared();
  ask("begin");
  EXPECT_EQ(ask("export 0"), "did export");
  const std::string then = count();
  EXPECT_TRUE(eventually([&] { return count() != then; }));
  expect_right_in_the_end();
  expect_shared();
}

TEST_F(SwapOfSharedMemory, ExportedWhileItIsAwayItComesBackFirst) {
  begin_shared();
  EXPECT_EQ(said_once_it_is_back("export 0"), "did export");
  expect_shared();
}

// Whichever of both comes first.
TEST_F(SwapOfSharedMemory, ExportedWhileItBeginsToLeaveItIsRight) {
  begin_shared();
  ask("begin");
  out();
  ASSERT_TRUE(child_->write_line("export 0"));
  EXPECT_TRUE(eventually([&] { return words().resident_bytes.load() == 0; }));
  in();
  EXPECT_EQ(line(), "did export");
  expect_right_in_the_end();
  expect_shared();
}

TEST_F(SwapOfSharedMemory, ExportedBeforeItIsMappedItHasNothingToMove) {
  begin_with({own("e"), std::to_string(34 * kMiB)}, 34 * kMiB);
  expect_shared();
}

TEST_F(SwapOfSharedMemory, ExportedWhileItIsMappedNowhereItKeepsItsContents) {
  begin_shared();
  EXPECT_EQ(ask("launch 5"), "did launch");
  EXPECT_EQ(ask("unmapped 0"), "did unmapped");
  EXPECT_EQ(ask("check"), "right");
  expect_shared();
}

TEST_F(SwapOfSharedMemory, NoExportEndsACapture) {
  begin_shared();
  EXPECT_EQ(ask("captured 0"), "failed captured 900");
  EXPECT_EQ(words().total_bytes.load(), 114 * kMiB);
  EXPECT_EQ(ask("export 0"), "did export");
  expect_shared();
}

TEST_F(SwapOfSharedMemory, WithoutRoomInTheHostItIsAsItWas) {
  begin_shared({{"FAKECUDA_PINNED", "1MiB"}});
  EXPECT_EQ(ask("launch 5"), "did launch");
  EXPECT_EQ(ask("export 0"), "failed export 2");
  EXPECT_EQ(words().resident_bytes.load(), 114 * kMiB);
  EXPECT_EQ(words().phase.load(), abi::kResident);
  EXPECT_EQ(ask("check"), "right");
}

// Memory that doesn't come back at once comes back later, and the job works again.
TEST_F(SwapOfSharedMemory, WhatComesBackLateIsAsItWas) {
  begin_shared({{"FAKECUDA_FAIL", "cuMemCreate:6=2,cuMemCreate:7=2,cuMemCreate:8=2"},
                {"FAKECUDA_FAILED", in_folder("failed")}});
  EXPECT_EQ(ask("launch 5"), "did launch");
  EXPECT_EQ(ask("export 0"), "failed export 2");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().resident_bytes.load(), 114 * kMiB);
  EXPECT_EQ(ask("export 0"), "did export");
  expect_shared();
}

// The driver refuses a type of handle when memory is made so.
TEST_F(SwapOfSharedMemory, WhatTheDriverRefusesToMakeIsRefused) {
  begin_shared({{"FAKECUDA_FAIL", "cuMemCreate:6=800"}});
  EXPECT_EQ(ask("alloc " + own("x")), "failed alloc 800");
  EXPECT_EQ(ask("alloc " + own("")), "did alloc 2");
  EXPECT_EQ(ask("check"), "right");
}

// Five pieces of memory are made before.
constexpr const char* kExportFailures[] = {
    "cuMemCreate:6=2",        "cuMemCreate:6=800", "cuMemMap:6",
    "cuMemSetAccess:3",       "cuMemUnmap:2",      "cuMemcpyDtoHAsync_v2:2",
    "cuMemcpyHtoDAsync_v2:2", "cuStreamCreate:3",
};

class FailingExport : public SwapOfSharedMemory,
                      public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingExport, LosesNothing) {
  begin_shared({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  EXPECT_EQ(ask("launch 5"), "did launch");
  EXPECT_EQ(ask("export 0").rfind("failed export", 0), 0u);
  EXPECT_TRUE(std::filesystem::exists(in_folder("failed"))) << "the call was never refused";
  EXPECT_EQ(ask("launch 4"), "did launch");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_EQ(words().total_bytes.load(), 114 * kMiB);
  EXPECT_EQ(words().resident_bytes.load(), 114 * kMiB);
  out_and_in();
  EXPECT_EQ(ask("export 0"), "did export");
  expect_shared();
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingExport, ::testing::ValuesIn(kExportFailures), name_of);

}  // namespace
}  // namespace switchyard::system_tests
