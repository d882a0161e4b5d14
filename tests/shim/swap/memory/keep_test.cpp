// Chunks that stay on the GPU which the contexts leave, and follow them or move on to the host.
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/memory/parking.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;
using swap::Stop;
namespace parking = swap::parking;
namespace memory_fd = swap::memory_fd;

int open_files() {
  int count = 0;
  DIR* files = ::opendir("/proc/self/fd");
  while (::readdir(files) != nullptr) ++count;
  ::closedir(files);
  return count;
}

class LeftBehind : public PipelineTest {
 protected:
  LeftBehind() {
    parking::clear();
    use_descriptors();
    files_ = open_files();
  }
  void add_more(unsigned ranges) {
    for (unsigned i = 0; i < ranges; ++i) {
      add({kMiB2, kMiB2, kMiB2});
      g_resident += static_cast<std::int64_t>(3 * kMiB2);
    }
  }
  // The contexts come on another GPU: this one has another lane.
  swap::Moved out_keeping(std::uint64_t most) {
    const swap::Moved left = PipelineTest::out_keeping(most);
    parking::is_on(0, 1);
    return left;
  }
  static std::uint64_t kept() { return parking::parked(0).kept ? parking::parked(0).bytes : 0; }

  int files_ = 0;
};

TEST_F(LeftBehind, NothingIsCopiedOnTheWayOutAndEveryByteFollows) {
  const std::uint64_t room = swap::pinned_pool::free_bytes(0);
  const swap::Moved left = out_keeping(UINT64_MAX);
  EXPECT_EQ(left.stop, Stop::kNothing);
  EXPECT_EQ(left.copied, 0u);
  EXPECT_EQ(left.kept, 5 * kMiB2);
  EXPECT_EQ(swap::pinned_pool::free_bytes(0), room);
  EXPECT_EQ(driven_.live_handles, 0) << "descriptors alone hold it";
  EXPECT_EQ(g_resident, 0);
  EXPECT_EQ(kept(), 5 * kMiB2);
  EXPECT_EQ(open_files(), files_ + 5);
  expect_nothing_lost();
  const swap::Moved back = in();
  EXPECT_EQ(back.parked, 5 * kMiB2);
  EXPECT_EQ(driven_.copies_in, 0) << "from the host";
  EXPECT_EQ(driven_.mapped_from_files, 0);
  EXPECT_EQ(open_files(), files_);
  EXPECT_EQ(parking::parked(0).bytes, 0u);
  expect_nothing_lost();
}

TEST_F(LeftBehind, AccessToManyChunksIsGivenInOneGo) {
  add_more(10);
  out_keeping(UINT64_MAX);
  static int calls;
  calls = 0;
  static decltype(g_driver.cuMemSetAccess) real;
  real = g_driver.cuMemSetAccess;
  g_driver.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* who, size_t n) {
    if (swap::find(at) == nullptr) ++calls;
    return real(at, bytes, who, n);
  };
  EXPECT_EQ(in().parked, 35 * kMiB2);
  EXPECT_EQ(calls, 2) << "of 32 and 3 chunks";
  expect_nothing_lost();
}

TEST_F(LeftBehind, WhatMayNotStayIsOnTheDeviceStill) {
  EXPECT_EQ(out_keeping(2 * kMiB2).kept, 2 * kMiB2);
  EXPECT_EQ(g_resident, static_cast<std::int64_t>(3 * kMiB2));
  expect_nothing_lost();
  EXPECT_EQ(out().copied, 3 * kMiB2);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(LeftBehind, WhatTheDriverDoesNotExportIsOnTheDeviceStill) {
  static int calls;
  calls = 0;
  static decltype(g_driver.cuMemExportToShareableHandle) real;
  real = g_driver.cuMemExportToShareableHandle;
  g_driver.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags) {
    return ++calls == 2 ? CUDA_ERROR_NOT_SUPPORTED : real(out, handle, type, flags);
  };
  const swap::Moved left = out_keeping(UINT64_MAX);
  EXPECT_EQ(left.unparked, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(left.kept, 4 * kMiB2);
  EXPECT_EQ(parking::parked(0).bytes, 4 * kMiB2) << "what is not there does not count";
  EXPECT_EQ(g_resident, static_cast<std::int64_t>(kMiB2));
  expect_nothing_lost();
}

TEST_F(LeftBehind, OlderCopiesAreGivenBack) {
  out();
  in();
  change(0, 0);
  ASSERT_NE(PipelineTest::kept(), 0u);
  const std::uint64_t room = swap::pinned_pool::free_bytes(0);
  out_keeping(UINT64_MAX);
  EXPECT_GT(swap::pinned_pool::free_bytes(0), room);
  in();
  expect_nothing_lost();
}

// Its copy in the host is a later one. The contents become again what they were before that.
TEST_F(LeftBehind, WhatMovedOnIsNotToldByAnOlderDigest) {
  out();
  in();
  change(0, 0);
  out_keeping(UINT64_MAX);
  move_on();
  in();
  expect_nothing_lost();
  change(0, 0);
  out();
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(LeftBehind, WhatCannotBeReachedStaysKeptAndUnmapped) {
  out_keeping(UINT64_MAX);
  static int calls;
  calls = 0;
  static decltype(g_driver.cuMemImportFromShareableHandle) real;
  real = g_driver.cuMemImportFromShareableHandle;
  g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void* file,
                                               CUmemAllocationHandleType type) {
    return ++calls == 3 ? CUDA_ERROR_INVALID_DEVICE : real(out, file, type);
  };
  const swap::Moved back = in();
  EXPECT_EQ(back.stop, Stop::kDriver);
  EXPECT_EQ(back.result, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(kept(), 5 * kMiB2);
  EXPECT_EQ(driven_.mapped_from_files, 0) << "a checkpoint may come next";
  EXPECT_EQ(g_resident, 0);
  expect_nothing_lost();
  EXPECT_EQ(in().parked, 5 * kMiB2);
  expect_nothing_lost();
}

TEST_F(LeftBehind, WhatFollowsInPartLeavesNothingMapped) {
  out_keeping(UINT64_MAX);
  in(2 * kMiB2);
  EXPECT_EQ(driven_.mapped_from_files, 0);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

TEST_F(LeftBehind, MovingOnToTheHostKeepsEveryByte) {
  out_keeping(UINT64_MAX);
  EXPECT_EQ(move_on().copied, 5 * kMiB2);
  EXPECT_EQ(parking::parked(0).bytes, 0u);
  EXPECT_EQ(driven_.mapped_from_files, 0);
  EXPECT_EQ(open_files(), files_);
  expect_nothing_lost();
  in();
  expect_nothing_lost();
}

// The program has opened all that it may.
TEST_F(LeftBehind, ItFollowsWhereTheProgramHasNoNumberLeft) {
  out_keeping(UINT64_MAX);
  static rlimit many, none;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &many), 0);
  none = {0, many.rlim_max};
  static decltype(g_driver.cuMemImportFromShareableHandle) real;
  real = g_driver.cuMemImportFromShareableHandle;
  g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void* file,
                                               CUmemAllocationHandleType type) {
    ::setrlimit(RLIMIT_NOFILE, &many);  // the simulated driver needs a number itself
    const CUresult result = real(out, file, type);
    ::setrlimit(RLIMIT_NOFILE, &none);
    return result;
  };
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const swap::Moved back = in();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &many), 0);
  EXPECT_EQ(back.stop, Stop::kNothing);
  EXPECT_EQ(back.parked, 5 * kMiB2);
  expect_nothing_lost();
}

// A child's copy would keep the memory for as long as the child lives.
TEST_F(LeftBehind, AChildThatIsForkedWhileItFollowsHasNoneOfIt) {
  out_keeping(UINT64_MAX);
  static int before, answer;
  before = files_;
  answer = -1;
  static decltype(g_driver.cuMemImportFromShareableHandle) real;
  real = g_driver.cuMemImportFromShareableHandle;
  g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void* file,
                                               CUmemAllocationHandleType type) {
    // The first time: later the simulated driver has descriptors of its own.
    if (answer != -1) return real(out, file, type);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(open_files() - before);
    int status = 0;
    ::waitpid(child, &status, 0);
    answer = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    return real(out, file, type);
  };
  EXPECT_EQ(in().parked, 5 * kMiB2);
  EXPECT_EQ(answer, 0) << "descriptors in the child";
  expect_nothing_lost();
}

TEST_F(LeftBehind, AFileOfTheProgramThatCameMeanwhileIsNotTakenForMemory) {
  const int file = ::memfd_create("memory", MFD_CLOEXEC);
  static int others, kept_as;
  others = ::memfd_create("others", MFD_CLOEXEC);
  kept_as = memory_fd::keep(file);
  ::close(file);
  static decltype(g_driver.cuMemImportFromShareableHandle) real;
  real = g_driver.cuMemImportFromShareableHandle;
  g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void* file,
                                               CUmemAllocationHandleType type) {
    EXPECT_EQ(::dup2(others, kept_as), kept_as);
    return real(out, file, type);
  };
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(memory_fd::import_kept(kept_as, memory), CUDA_ERROR_OPERATING_SYSTEM);
  EXPECT_EQ(memory, 0u);
  EXPECT_EQ(driven_.mapped_from_files, 0) << "it is given back";
  memory_fd::close(kept_as);
  for (const int fd : {others, kept_as}) ::close(fd);
}

parking::ParkedPiece keep_one() {
  parking::ParkedPiece piece{.bytes = kMiB2};
  parking::Slab* slab = nullptr;
  parking::count(0, 1, piece.bytes);
  EXPECT_TRUE(parking::keep(0, slab, 0, piece));
  return piece;
}

// The answers, while these are given back, that not all is kept.
unsigned give_back_while_asked(std::vector<parking::ParkedPiece>& pieces) {
  std::atomic<bool> asked{false}, done{false};
  unsigned apart = 0;
  std::thread asks([&] {
    for (; !done; asked = true) apart += parking::parked(0).kept ? 0 : 1;
  });
  while (!asked) std::this_thread::yield();
  for (auto& piece : pieces) parking::give_back(piece);
  done = true;
  asks.join();
  return apart;
}

// The program frees some of it while the mover asks.
TEST_F(LeftBehind, WhatIsKeptIsAllOfItAtEachInstant) {
  parking::ParkedPiece stays = keep_one();
  std::vector<parking::ParkedPiece> pieces(10000);
  for (int round = 0; round < 10; ++round) {
    for (auto& piece : pieces) piece = keep_one();
    EXPECT_EQ(give_back_while_asked(pieces), 0u);
    EXPECT_EQ(kept(), kMiB2);
  }
  parking::give_back(stays);
}

// The contexts are back on the GPU that they left.
class AtHome : public LeftBehind {
 protected:
  AtHome() { out_keeping_at_home(); }
  void out_keeping_at_home() { PipelineTest::out_keeping(UINT64_MAX); }
  static std::int64_t all() { return static_cast<std::int64_t>(5 * kMiB2); }
};

TEST_F(AtHome, ItsOwnMemoryIsMappedAgainAndNoneIsMade) {
  static int made;
  made = 0;
  g_driver.cuMemCreate = [](CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*,
                            unsigned long long) {
    ++made;
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  const swap::Moved back = in();
  EXPECT_EQ(back.stop, Stop::kNothing);
  EXPECT_EQ(back.copied + back.parked, 0u);
  EXPECT_EQ(back.skipped, 5 * kMiB2);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(g_resident, all());
  expect_nothing_lost();
  parking::sweep(0);
  EXPECT_EQ(parking::parked(0).bytes, 0u);
  EXPECT_GE(open_files(), files_ + 5) << "the driver exports no imported handle: these do";
}

TEST_F(AtHome, ItStaysBehindOnceMoreAndLeavesForTheHost) {
  in();
  parking::sweep(0);
  out_keeping_at_home();
  EXPECT_EQ(kept(), 5 * kMiB2);
  in();
  parking::sweep(0);
  expect_nothing_lost();
  EXPECT_EQ(out().copied, 5 * kMiB2);
  EXPECT_EQ(open_files(), files_);
  in();
  expect_nothing_lost();
}

TEST_F(AtHome, WhatTheDriverRefusesIsKept) {
  static decltype(g_driver.cuMemSetAccess) real;
  real = g_driver.cuMemSetAccess;
  g_driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_ERROR_INVALID_DEVICE;
  };
  EXPECT_EQ(in().result, CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(kept(), 5 * kMiB2);
  EXPECT_EQ(g_resident, 0);
  g_driver.cuMemSetAccess = real;
  expect_nothing_lost();
  in();
  EXPECT_EQ(g_resident, all());
  expect_nothing_lost();
}

// Of one slab, a part is mapped in its place, and the other is reached to be copied.
TEST_F(AtHome, WhatHasNoRoomFollowsLater) {
  in(2 * kMiB2);
  EXPECT_EQ(g_resident, static_cast<std::int64_t>(2 * kMiB2));
  expect_nothing_lost();
  parking::is_on(0, 1);
  EXPECT_EQ(in().parked, 3 * kMiB2);
  EXPECT_EQ(g_resident, all());
  expect_nothing_lost();
}

// A chunk that is mapped in its place leaves a hole in the slab. The driver gives no access there.
TEST_F(AtHome, AccessIsGivenToWhatFollowsAlone) {
  in(2 * kMiB2);
  parking::is_on(0, 1);
  static std::uint64_t mapped, permitted;
  mapped = permitted = 0;
  static decltype(g_driver.cuMemMap) map;
  map = g_driver.cuMemMap;
  g_driver.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
    if (swap::find(at) == nullptr) mapped += bytes;
    return map(at, bytes, offset, handle, flags);
  };
  static decltype(g_driver.cuMemSetAccess) permit;
  permit = g_driver.cuMemSetAccess;
  g_driver.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* who, size_t n) {
    if (swap::find(at) == nullptr) permitted += bytes;
    return permit(at, bytes, who, n);
  };
  EXPECT_EQ(in().parked, 3 * kMiB2);
  EXPECT_EQ(mapped, 3 * kMiB2);
  EXPECT_EQ(permitted, mapped);
  expect_nothing_lost();
}

// Runs `act` in a child with these limits: its answer.
template <typename Act>
int with_limits(rlim_t soft, rlim_t hard, Act act) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{soft, hard};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::_exit(act());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(KeptDescriptors, ManyAreBeyondWhatTheProgramMayOpen) {
  EXPECT_EQ(with_limits(600, 4096,
                        [] {
                          const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
                          rlimit after{};
                          if (memory_fd::keep_one_of_many(fd) < 600) return 1;
                          if (memory_fd::keep_one_of_many(fd) < 601) return 2;
                          ::getrlimit(RLIMIT_NOFILE, &after);
                          return after.rlim_cur == 600 ? 0 : 3;
                        }),
            0);
}

TEST(KeptDescriptors, WhereTheyCannotBeAPartOfItsNumbersStaysFree) {
  EXPECT_EQ(with_limits(600, 600,
                        [] {
                          const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
                          int last = 0;
                          while (const int kept = memory_fd::keep_one_of_many(fd)) last = kept;
                          return last == 600 - 256 - 1 ? 0 : 1;
                        }),
            0);
}

}  // namespace
}  // namespace switchyard::shim
