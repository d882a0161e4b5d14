#include "shim/swap/host/pinned_pool.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "shim/swap/host/host_memory_limits.h"
#include "shim/swap/memory/range_table.h"
#include "tests/shim/swap/swap_world.h"

namespace {

int g_refused_advice = -1;

}  // namespace

// The kernel's, except for the advice that a test names.
extern "C" int madvise(void* at, size_t bytes, int advice) noexcept {
  if (advice == g_refused_advice) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_madvise, at, bytes, advice));
}

namespace switchyard::shim {
namespace {

namespace pinned_pool = swap::pinned_pool;
namespace host_memory_limits = swap::host_memory_limits;
using namespace testing;

constexpr std::uint64_t kGiB = 1024 * kMiB;
constexpr std::uint64_t kSlab = 256 * kMiB;

// A machine of files.
class HostRoom : public SwapTest {
 protected:
  HostRoom() {
    char pattern[] = "/tmp/host_room.XXXXXX";
    root_ = ::mkdtemp(pattern);
    before_ = host_memory_limits::root();
    host_memory_limits::root() = root_.c_str();
  }
  ~HostRoom() override {
    host_memory_limits::root() = before_;
    std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void set_machine(std::uint64_t total, std::uint64_t available) const {
    write("/proc/meminfo", "MemTotal:       " + std::to_string(total / 1024) +
                               " kB\nMemFree:              1 kB\nMemAvailable:   " +
                               std::to_string(available / 1024) + " kB\nBuffers:    9 kB\n");
  }

  std::string root_;
  const char* before_ = nullptr;
};

TEST(HostRoomTexts, NumbersStandBehindTheirKey) {
  std::uint64_t number = 0;
  const char text[] = "MemTotal:   12 kB\nMemAvailable:  34 kB\ninactive_file 56\n";
  ASSERT_TRUE(host_memory_limits::number_of(text, "MemAvailable:", number));
  EXPECT_EQ(number, 34u);
  ASSERT_TRUE(host_memory_limits::number_of(text, "inactive_file", number));
  EXPECT_EQ(number, 56u);
  EXPECT_FALSE(host_memory_limits::number_of(text, "active_file", number));
  EXPECT_FALSE(host_memory_limits::number_of(text, "Mem", number));
  EXPECT_FALSE(host_memory_limits::number_of("", "MemTotal:", number));
}

TEST(HostRoomTexts, NoLimitIsMax) {
  EXPECT_EQ(host_memory_limits::limit_of("max\n"), UINT64_MAX);
  EXPECT_EQ(host_memory_limits::limit_of("4294967296\n"), 4294967296u);
  EXPECT_EQ(host_memory_limits::limit_of(""), UINT64_MAX);
}

TEST(HostRoomTexts, TheGroupOfEitherVersion) {
  const char text[] = "12:cpu,memory:/a/b\n3:memories:/no\n0::/user.slice/one:two\n";
  char path[32];
  ASSERT_TRUE(host_memory_limits::cgroup_path(text, "memory", path, sizeof(path)));
  EXPECT_STREQ(path, "/a/b");
  ASSERT_TRUE(host_memory_limits::cgroup_path(text, "", path, sizeof(path)));
  EXPECT_STREQ(path, "/user.slice/one:two");
  ASSERT_TRUE(host_memory_limits::cgroup_path("0::/\n", "", path, sizeof(path)));
  EXPECT_STREQ(path, "");
  EXPECT_FALSE(host_memory_limits::cgroup_path("0::/\n", "memory", path, sizeof(path)));
  EXPECT_FALSE(host_memory_limits::cgroup_path(text, "", path, 8))
      << "longer than there is room for";
  EXPECT_FALSE(host_memory_limits::cgroup_path("rubbish\n", "", path, sizeof(path)));
}

TEST(HostRoomTexts, GroupsAreWalkedUpToTheRoot) {
  char path[] = "/a/b";
  ASSERT_TRUE(host_memory_limits::to_parent(path));
  EXPECT_STREQ(path, "/a");
  ASSERT_TRUE(host_memory_limits::to_parent(path));
  EXPECT_STREQ(path, "");
  EXPECT_FALSE(host_memory_limits::to_parent(path));
}

TEST(HostRoomTexts, APartStaysFree) {
  EXPECT_EQ(host_memory_limits::spare(16 * kGiB, 10 * kGiB), 8 * kGiB);
  EXPECT_EQ(host_memory_limits::spare(100 * kGiB, 10 * kGiB), 5 * kGiB);
  EXPECT_EQ(host_memory_limits::spare(16 * kGiB, kGiB), 0u);
}

TEST(HostRoomTexts, InactivePagesOfFilesAreFree) {
  EXPECT_EQ(host_memory_limits::available(10, 8, 3), 5u);
  EXPECT_EQ(host_memory_limits::available(10, 12, 1), 0u);
  EXPECT_EQ(host_memory_limits::available(10, 2, 3), 10u);
}

TEST_F(HostRoom, IsWhatTheMachineHasToSpare) {
  set_machine(200 * kGiB, 50 * kGiB);
  EXPECT_EQ(pinned_pool::room_bytes(), 40 * kGiB);
}

TEST_F(HostRoom, IsNoneWhereNothingCanBeRead) { EXPECT_EQ(pinned_pool::room_bytes(), 0u); }

TEST_F(HostRoom, IsWhatTheTightestGroupAbovePermits) {
  set_machine(200 * kGiB, 150 * kGiB);
  write("/proc/self/cgroup", "0::/jobs/mine\n");
  write("/sys/fs/cgroup/jobs/mine/memory.max", "max\n");
  write("/sys/fs/cgroup/jobs/mine/memory.current", "1\n");
  write("/sys/fs/cgroup/jobs/memory.max", std::to_string(40 * kGiB) + "\n");
  write("/sys/fs/cgroup/jobs/memory.current", std::to_string(20 * kGiB) + "\n");
  write("/sys/fs/cgroup/jobs/memory.stat",
        "anon 1\ninactive_file " + std::to_string(5 * kGiB) + "\n");
  EXPECT_EQ(pinned_pool::room_bytes(), 23 * kGiB);
}

TEST_F(HostRoom, OfAContainerWhosePathIsNotThereIsItsRoots) {
  set_machine(200 * kGiB, 150 * kGiB);
  write("/proc/self/cgroup", "4:memory:/docker/0123\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(20 * kGiB) + "\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(8 * kGiB) + "\n");
  EXPECT_EQ(pinned_pool::room_bytes(), 10 * kGiB);
}

// A limit that is not seen may be the one by which the kernel kills the process.
TEST_F(HostRoom, IsNoneWhileALimitCannotBeRead) {
  set_machine(200 * kGiB, 150 * kGiB);
  write("/proc/self/cgroup", "0::/mine\n");
  EXPECT_GT(pinned_pool::room_bytes(), 0u) << "a file that is missing sets no limit";
  const std::string limit = root_ + "/sys/fs/cgroup/mine/memory.max";
  write("/sys/fs/cgroup/mine/memory.current", "1\n");
  ASSERT_EQ(::symlink(limit.c_str(), limit.c_str()), 0);
  EXPECT_EQ(pinned_pool::room_bytes(), 0u);
  ASSERT_EQ(::unlink(limit.c_str()), 0);
  EXPECT_GT(pinned_pool::room_bytes(), 0u);
}

class HostPool : public HostRoom {
 protected:
  struct Registered {
    unsigned char* at = nullptr;
    unsigned flags = 0;
    CUresult result = CUDA_SUCCESS;
    int calls = 0;
    std::vector<void*> unregistered;
    CUresult unregister_result = CUDA_SUCCESS;
  };
  static Registered* registered_;

  HostPool() {
    registered_ = &own_;
    pinned_pool::clear();
    set_machine(100 * kGiB, 50 * kGiB);
    g_driver.cuMemHostRegister_v2 = [](void* at, size_t bytes, unsigned flags) {
      EXPECT_EQ(bytes, kSlab);
      registered_->at = static_cast<unsigned char*>(at);
      registered_->flags = flags;
      ++registered_->calls;
      return registered_->result;
    };
    g_driver.cuMemHostUnregister = [](void* at) {
      registered_->unregistered.push_back(at);
      return registered_->unregister_result;
    };
  }
  ~HostPool() override {
    g_refused_advice = -1;
    own_.unregister_result = CUDA_SUCCESS;
    while (pinned_pool::slabs(0) != 0 && pinned_pool::drop(0, 0)) {
    }
    if (pinned_pool::pinned_bytes(0) != 0) ::munmap(own_.at, kSlab);
    pinned_pool::clear();
  }
  static bool is_mapped(const void* at) {
    unsigned char resident = 0;
    return ::mincore(const_cast<void*>(at), 1, &resident) == 0;
  }

  Registered own_;
};
HostPool::Registered* HostPool::registered_ = nullptr;

TEST_F(HostPool, WithoutASlabThereIsNothingToTake) {
  EXPECT_FALSE(pinned_pool::take(0, 2 * kMiB));
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
  EXPECT_EQ(own_.calls, 0);
}

TEST_F(HostPool, ASlabIsPinnedForAllContextsOutsideOfCaptures) {
  ASSERT_TRUE(pinned_pool::grow(0, kSlab));
  EXPECT_EQ(own_.flags, static_cast<unsigned>(CU_MEMHOSTREGISTER_PORTABLE));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own_.at) % (2 * kMiB), 0u);
  EXPECT_EQ(swap_.relaxed, 2);  // and back
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab);
}

TEST_F(HostPool, NothingIsPinnedBeyondWhatIsAllowed) {
  EXPECT_FALSE(pinned_pool::grow(0, kSlab - 1));
  set_machine(100 * kGiB, 5 * kGiB + kSlab - 1024);
  EXPECT_FALSE(pinned_pool::grow(0, UINT64_MAX));
  EXPECT_EQ(own_.calls, 0);
  set_machine(100 * kGiB, 5 * kGiB + kSlab);
  EXPECT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  EXPECT_FALSE(pinned_pool::grow(0, kSlab)) << "that much there is already";
}

TEST_F(HostPool, WhatTheDriverRefusesToPinIsGivenBack) {
  own_.result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_FALSE(pinned_pool::grow(0, UINT64_MAX));
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
  EXPECT_FALSE(pinned_pool::take(0, 2 * kMiB));
}

// A forked child that has the memory, too, would leave the parent with other pages than the GPU's.
TEST_F(HostPool, WhatCannotBeKeptFromForkedChildrenIsNotPinned) {
  g_refused_advice = MADV_DONTFORK;
  EXPECT_FALSE(pinned_pool::grow(0, UINT64_MAX));
  EXPECT_EQ(own_.calls, 0);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
}

TEST_F(HostPool, WithoutHugePagesItIsOnlySlower) {
  for (const int advice : {MADV_HUGEPAGE, MADV_DONTDUMP}) {
    g_refused_advice = advice;
    EXPECT_TRUE(pinned_pool::grow(0, UINT64_MAX)) << advice;
  }
}

TEST_F(HostPool, PiecesAreTheFirstRunsThatFit) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  pinned_pool::HostPiece a = pinned_pool::take(0, 3 * kMiB);
  pinned_pool::HostPiece b = pinned_pool::take(0, 32 * kMiB);
  pinned_pool::HostPiece c = pinned_pool::take(0, 2 * kMiB);
  EXPECT_EQ(a.at, own_.at);
  EXPECT_EQ(a.bytes, 4 * kMiB);
  EXPECT_EQ(b.at, own_.at + 4 * kMiB);
  EXPECT_EQ(c.at, own_.at + 36 * kMiB);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab - 38 * kMiB);
  std::memset(b.at, 0x5A, b.bytes);
  pinned_pool::give_back(b);
  EXPECT_FALSE(b);
  EXPECT_EQ(pinned_pool::take(0, 32 * kMiB).at, own_.at + 4 * kMiB);
  EXPECT_EQ(pinned_pool::take(0, 32 * kMiB).at, own_.at + 38 * kMiB);
}

TEST_F(HostPool, EachGpuHasAPoolOfItsOwn) {
  ASSERT_TRUE(pinned_pool::grow(1, UINT64_MAX));
  EXPECT_FALSE(pinned_pool::take(0, 2 * kMiB));
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
  EXPECT_EQ(pinned_pool::pinned_bytes(1), kSlab);
  pinned_pool::HostPiece piece = pinned_pool::take(1, 2 * kMiB);
  ASSERT_EQ(piece.at, own_.at);
  EXPECT_EQ(pinned_pool::free_bytes(1), kSlab - 2 * kMiB);
  EXPECT_FALSE(pinned_pool::drop(1, pinned_pool::slab_of(piece)));
  pinned_pool::give_back(piece);
  EXPECT_EQ(pinned_pool::free_bytes_of(1, 0), kSlab);
  EXPECT_TRUE(pinned_pool::drop(1, 0));
}

TEST_F(HostPool, ARunThatIsNotInOnePieceIsNone) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  std::vector<pinned_pool::HostPiece> pieces;
  while (pinned_pool::HostPiece piece = pinned_pool::take(0, 2 * kMiB)) pieces.push_back(piece);
  ASSERT_EQ(pieces.size(), kSlab / (2 * kMiB));
  for (std::size_t i = 0; i < pieces.size(); i += 2) pinned_pool::give_back(pieces[i]);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab / 2);
  EXPECT_FALSE(pinned_pool::take(0, 4 * kMiB));
  EXPECT_TRUE(pinned_pool::take(0, 2 * kMiB));
  pinned_pool::give_back(pieces[63]);
  EXPECT_EQ(pinned_pool::take(0, 6 * kMiB).at, own_.at + 62 * 2 * kMiB);
}

TEST_F(HostPool, AFreedAllocationThatIsAwayGivesItsPiecesBack) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  const CUdeviceptr at = allocate(40 * kMiB);
  take_away(at);
  {
    const swap::RangesLock held;
    const swap::Range& range = *swap::find(at);
    for (unsigned i = 0; i < range.count; ++i) {
      range.chunks[i].host = pinned_pool::take(0, range.chunks[i].bytes);
    }
  }
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab - 40 * kMiB);
  EXPECT_EQ(free(at), CUDA_SUCCESS);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab);
  expect_nothing_left();
}

TEST_F(HostPool, AWholeSlabIsOnePiece) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  pinned_pool::HostPiece all = pinned_pool::take(0, kSlab);
  EXPECT_EQ(all.bytes, kSlab);
  EXPECT_EQ(pinned_pool::free_bytes(0), 0u);
  EXPECT_FALSE(pinned_pool::take(0, 1));
  pinned_pool::give_back(all);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab);
  pinned_pool::give_back(all);  // none
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab);
}

TEST_F(HostPool, ASlabThatNothingIsInIsGivenBack) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  unsigned char* first = own_.at;
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  unsigned char* second = own_.at;
  swap_.relaxed = 0;
  EXPECT_TRUE(pinned_pool::drop(0, 0));
  EXPECT_EQ(own_.unregistered, std::vector<void*>{first});
  EXPECT_EQ(swap_.relaxed, 2) << "outside of captures, and back";
  EXPECT_FALSE(is_mapped(first));
  EXPECT_TRUE(is_mapped(second));
  EXPECT_EQ(pinned_pool::slabs(0), 1u);
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab);
  pinned_pool::HostPiece piece = pinned_pool::take(0, kSlab);
  EXPECT_EQ(piece.at, second);
  EXPECT_FALSE(pinned_pool::take(0, 1));
  pinned_pool::give_back(piece);
}

TEST_F(HostPool, ASlabWithAPieceInUseStays) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  pinned_pool::HostPiece piece = pinned_pool::take(0, 2 * kMiB);
  EXPECT_EQ(pinned_pool::slab_of(piece), 0u);
  EXPECT_EQ(pinned_pool::free_bytes_of(0, 0), kSlab - 2 * kMiB);
  EXPECT_FALSE(pinned_pool::drop(0, 0));
  EXPECT_TRUE(own_.unregistered.empty());
  pinned_pool::give_back(piece);
  EXPECT_EQ(pinned_pool::free_bytes_of(0, 0), kSlab);
  EXPECT_TRUE(pinned_pool::drop(0, 0));
  EXPECT_EQ(pinned_pool::pinned_bytes(0), 0u);
  EXPECT_EQ(pinned_pool::free_bytes(0), 0u);
}

TEST_F(HostPool, ASlabThatTheDriverDoesNotLetGoOfStaysInUse) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  own_.unregister_result = CUDA_ERROR_UNKNOWN;
  EXPECT_FALSE(pinned_pool::drop(0, 0));
  EXPECT_EQ(own_.unregistered.size(), 1u);
  g_driver.cuMemHostUnregister = nullptr;
  EXPECT_FALSE(pinned_pool::drop(0, 0));
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab);
  EXPECT_EQ(pinned_pool::free_bytes(0), kSlab);
  EXPECT_TRUE(is_mapped(own_.at));
  pinned_pool::HostPiece piece = pinned_pool::take(0, kSlab);
  EXPECT_EQ(piece.at, own_.at);
  pinned_pool::give_back(piece);
}

TEST_F(HostPool, AnUnpinnedSlabKeepsWhatIsInItAndIsPinnedForACopy) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  pinned_pool::HostPiece piece = pinned_pool::take(0, 2 * kMiB);
  std::memset(piece.at, 7, 2 * kMiB);
  pinned_pool::pin_for_copy(piece);
  EXPECT_EQ(own_.calls, 1) << "it is";
  pinned_pool::unpin_all(0);
  pinned_pool::unpin_all(0);
  EXPECT_EQ(own_.unregistered.size(), 1u);
  EXPECT_TRUE(pinned_pool::any_unpinned(0));
  EXPECT_EQ(pinned_pool::pinned_bytes(0), kSlab) << "it is the pool's";
  EXPECT_EQ(static_cast<unsigned char*>(piece.at)[0], 7);
  pinned_pool::pin_for_copy(piece);
  pinned_pool::pin_for_copy(piece);
  EXPECT_EQ(own_.calls, 2);
  EXPECT_FALSE(pinned_pool::any_unpinned(0));
  EXPECT_FALSE(pinned_pool::pin_next(0));
  pinned_pool::give_back(piece);
}

TEST_F(HostPool, WhatTheDriverDoesNotPinAgainIsTriedAgain) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  pinned_pool::unpin_all(0);
  own_.result = CUDA_ERROR_OUT_OF_MEMORY;
  EXPECT_FALSE(pinned_pool::pin_next(0));
  EXPECT_TRUE(pinned_pool::any_unpinned(0));
  own_.result = CUDA_SUCCESS;
  EXPECT_TRUE(pinned_pool::pin_next(0));
  EXPECT_FALSE(pinned_pool::any_unpinned(0));
}

TEST_F(HostPool, AnUnpinnedSlabIsGivenBackWithoutTheDriver) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  pinned_pool::unpin_all(0);
  EXPECT_TRUE(pinned_pool::drop(0, 0));
  EXPECT_EQ(own_.unregistered.size(), 1u);
  EXPECT_FALSE(is_mapped(own_.at));
}

TEST_F(HostPool, ASlabThatTheDriverDoesNotUnpinIsPinnedStill) {
  ASSERT_TRUE(pinned_pool::grow(0, UINT64_MAX));
  own_.unregister_result = CUDA_ERROR_UNKNOWN;
  pinned_pool::unpin_all(0);
  EXPECT_FALSE(pinned_pool::any_unpinned(0));
}

}  // namespace
}  // namespace switchyard::shim
