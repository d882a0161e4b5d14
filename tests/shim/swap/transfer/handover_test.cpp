// Handing memory over: donor and recipient in one process, each with a GPU of its own as to its
// lane.
#include "shim/swap/transfer/handover.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/memory/peers.h"
#include "switchyard/handover.h"
#include "tests/shim/ipc/ipc_world.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim {
namespace {

using swap::RangesLock;
using swap::Stop;

// Memory that leaves is offered while this lives.
class Offer {
 public:
  Offer(unsigned lane, std::uint64_t bytes, std::uint64_t number) : lane_(lane) {
    swap::handover::offer(lane, bytes, number);
  }
  ~Offer() { swap::handover::end_offer(lane_); }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  void begin() { swap::handover::begin_offer(lane_); }
  void end() { swap::handover::end_offer(lane_); }

 private:
  unsigned lane_;
};

using namespace testing;

constexpr unsigned kDonor = 0;
constexpr unsigned kRecipient = 1;
constexpr std::uint64_t kNumber = 77;

int g_exports = 0;
bool g_fails_export = false;
std::set<CUmemGenericAllocationHandle> g_imported;

CUresult export_memory(void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType,
                       unsigned long long) {
  if (g_imported.count(handle) != 0) return CUDA_ERROR_INVALID_VALUE;  // as the driver
  if (g_fails_export) return CUDA_ERROR_UNKNOWN;
  ++g_exports;
  const int fd = ::memfd_create("memory", 0);
  *static_cast<int*>(out) = fd;
  return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult import_memory(CUmemGenericAllocationHandle* out, void*, CUmemAllocationHandleType) {
  const CUmemAllocationProp properties{};
  const CUresult result = driver().cuMemCreate(out, kMiB2, &properties, 0);
  *out += 1000;  // none of those that were made
  if (result == CUDA_SUCCESS) g_imported.insert(*out);
  return result;
}

class HandedOver : public PipelineTest {
 protected:
  HandedOver() {
    g_ipc = &world_;
    g_exports = 0;
    g_fails_export = false;
    g_imported.clear();
    g_driver.cuMemExportToShareableHandle = export_memory;
    g_driver.cuMemImportFromShareableHandle = import_memory;
    const RangesLock held;
    // The pipeline's world has three chunks and two.
    for (std::size_t i = 0; i < swap::count(); ++i) {
      swap::Range& range = swap::at(i);
      range.lane = range.count == 3 ? kDonor : kRecipient;
      range.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
      range.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      range.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    }
    fill_pool(kRecipient);
    files_ = open_files();
  }
  ~HandedOver() override {
    for (const unsigned lane : {kDonor, kRecipient}) {
      swap::handover::prepare(lane, 0, 0);
      swap::handover::follow(lane, 0, false);
    }
    swap::handover::clear();
    for (const RangesLock held; swap::Range * each : {&swap::at(0), &swap::at(1)}) {
      for (unsigned c = 0; c < each->count; ++c) {
        if (each->chunks[c].handle != 0) swap::release(each->chunks[c]);
      }
    }
    EXPECT_EQ(open_files(), files_);
    for (auto& [key, kept] : world_.shares) {
      for (const int fd : kept) ::close(fd);
    }
    g_ipc = nullptr;
  }

  static std::size_t open_files() {
    std::size_t count = 0;
    for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  }
  static void note(unsigned, std::int64_t bytes) { g_resident += bytes; }
  static swap::Moved leave(unsigned lane, std::uint64_t bytes = UINT64_MAX) {
    const RangesLock held;
    return swap::move_out(lane, bytes, note);
  }
  static swap::Moved come(unsigned lane) {
    const RangesLock held;
    return swap::move_in(
        lane, [](unsigned, std::uint64_t, bool) { return true; }, note);
  }
  swap::Range& range_of(unsigned lane) {
    return swap::at(0).lane == lane ? swap::at(0) : swap::at(1);
  }
  // All of the donor's leaves, and what the recipient then has of it comes.
  swap::Moved hand_over(unsigned donor, unsigned recipient, std::uint64_t number) {
    Offer offer(donor, 3 * kMiB2, number);
    EXPECT_TRUE(swap::handover::follow(recipient, number, true));
    offer.begin();
    EXPECT_EQ(leave(donor).stop, Stop::kNothing);
    return come(recipient);
  }

  IpcWorld world_;
  std::size_t files_ = 0;
};

TEST_F(HandedOver, WhatHasLeftTheOneIsTheOthersAndFilled) {
  leave(kRecipient);
  const swap::Moved moved = hand_over(kDonor, kRecipient, kNumber);
  EXPECT_EQ(moved.stop, Stop::kNothing);
  EXPECT_EQ(moved.taken, 2 * kMiB2);
  EXPECT_EQ(moved.copied, 2 * kMiB2);
  EXPECT_EQ(driven_.copies_in, 2) << "each once";
  EXPECT_EQ(driven_.live_handles, 2) << "the third, which nobody needed, is given back";
  expect_nothing_lost();
  EXPECT_EQ(open_files(), files_ + 2) << "one for each chunk of another's";
}

TEST_F(HandedOver, GoesOnByItsDescriptorForTheDriverExportsItToNobody) {
  leave(kRecipient);
  hand_over(kDonor, kRecipient, kNumber);
  EXPECT_EQ(g_exports, 3);
  EXPECT_EQ(hand_over(kRecipient, kDonor, kNumber + 1).taken, 2 * kMiB2);
  EXPECT_EQ(g_exports, 3);
  EXPECT_EQ(driven_.live_handles, 3);
  expect_nothing_lost();
  leave(kDonor);
  EXPECT_EQ(open_files(), files_) << "with the memory its descriptor goes";
}

TEST_F(HandedOver, WhatIsParkedLeavesChunkByChunkForTheOther) {
  Offer offer(kDonor, 3 * kMiB2, kNumber);
  offer.begin();
  out_parking(UINT64_MAX);
  EXPECT_EQ(driven_.unmapped, (std::vector<std::uint64_t>{kMiB2, kMiB2, kMiB2}));
  expect_nothing_lost();
}

TEST_F(HandedOver, WhatDoesNotLeaveAfterAllIsMadeAnew) {
  leave(kRecipient);
  {
    Offer offer(kDonor, 3 * kMiB2, kNumber);
    ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
    offer.begin();
  }
  EXPECT_EQ(come(kRecipient).taken, 0u);
  EXPECT_EQ(driven_.live_handles, 5);
  EXPECT_EQ(open_files(), files_);
  expect_nothing_lost();
}

TEST_F(HandedOver, NothingIsTakenBeforeTheGiverHasBegun) {
  leave(kRecipient);
  const Offer offer(kDonor, 3 * kMiB2, kNumber);
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  EXPECT_FALSE(swap::handover::begun(kRecipient));
  EXPECT_EQ(come(kRecipient).taken, 0u);
  expect_nothing_lost();
}

TEST_F(HandedOver, WhatWasPreparedIsOfferedOnce) {
  leave(kRecipient);
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  EXPECT_EQ(g_exports, 3);
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  EXPECT_FALSE(swap::handover::begun(kRecipient)) << "the donor still works";
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, 2 * kMiB2);
  EXPECT_EQ(g_exports, 3);
  expect_nothing_lost();
}

TEST_F(HandedOver, WhatWasFreedSinceItWasPreparedIsNotHandedOver) {
  leave(kRecipient);
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  {
    const RangesLock held;
    swap::release(range_of(kDonor).chunks[2]);
  }
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, kMiB2);
  EXPECT_EQ(driven_.live_handles, 2) << "in place of the freed one another was made";
}

TEST_F(HandedOver, WhatWasMadeAnewSinceItWasPreparedIsNotHandedOver) {
  leave(kRecipient);
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  {
    const RangesLock held;
    const swap::Range& range = range_of(kDonor);
    swap::release(range.chunks[2]);
    ASSERT_EQ(swap::bring(range.chunks[2], range.address + 2 * kMiB2, range.properties),
              CUDA_SUCCESS);
  }
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, kMiB2);
}

TEST_F(HandedOver, AnOfferEndsWithTheFirstThatIsFreedOfIt) {
  leave(kRecipient);
  EXPECT_TRUE(swap::handover::prepare(kDonor, 3 * kMiB2, kNumber));
  {
    const RangesLock held;
    const std::size_t index = swap::at(0).lane == kDonor ? 0 : 1;
    swap::Range range = swap::take(index);
    EXPECT_TRUE(swap::add(range));
  }
  EXPECT_TRUE(swap::handover::prepare(kDonor, 3 * kMiB2, kNumber)) << "it is all there";
  swap::Range range;
  {
    const RangesLock held;
    range = swap::take(swap::at(0).lane == kDonor ? 0 : 1);
  }
  EXPECT_FALSE(swap::handover::prepare(kDonor, 3 * kMiB2, kNumber));
  EXPECT_EQ(open_files(), files_) << "nobody keeps it";
  const RangesLock held;
  EXPECT_TRUE(swap::add(range));
}

TEST_F(HandedOver, WhatCouldNotBePreparedIsOfferedOnceWorkIsHeld) {
  leave(kRecipient);
  g_fails_export = true;
  EXPECT_FALSE(swap::handover::prepare(kDonor, 3 * kMiB2, kNumber));
  EXPECT_FALSE(swap::handover::prepare(kDonor, 3 * kMiB2, kNumber)) << "not while it works";
  g_fails_export = false;
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, 2 * kMiB2);
  expect_nothing_lost();
}

TEST_F(HandedOver, WhatStandsByGoesWithTheRangeThatItStandsByFor) {
  leave(kRecipient);
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  const int before = driven_.live_handles;
  swap::Range freed;
  {
    const RangesLock held;
    while (swap::handover::put_in_place(kRecipient)) continue;
    EXPECT_NE(range_of(kRecipient).chunks[0].preimported, 0u);
    freed = swap::take(swap::at(0).lane == kRecipient ? 0 : 1);
  }
  EXPECT_EQ(freed.chunks[0].preimported, 0u);
  EXPECT_EQ(driven_.live_handles, before - 3) << "with what found no place";
  EXPECT_EQ(swap::handover::expected_bytes(kRecipient), 0u);
  swap::handover::follow(kRecipient, 0, true);
  EXPECT_EQ(driven_.live_handles, before - 3) << "each once";
  const RangesLock held;
  EXPECT_TRUE(swap::add(freed));
}

TEST_F(HandedOver, WhatTheDriverDoesNotUnmapIsNeverTheChunks) {
  leave(kRecipient);
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  const RangesLock held;
  while (swap::handover::put_in_place(kRecipient)) continue;
  SWITCHYARD_WATCH(faults(), cuMemUnmap);
  faults().refuse("cuMemUnmap", CUDA_ERROR_UNKNOWN);
  swap::handover::drop(kRecipient);
  faults().none();
  for (unsigned c = 0; c < range_of(kRecipient).count; ++c) {
    EXPECT_EQ(range_of(kRecipient).chunks[c].handle, 0u);
  }
  for (unsigned c = 0; c < range_of(kRecipient).count; ++c) {
    swap::Chunk& chunk = range_of(kRecipient).chunks[c];
    if (chunk.preimported != 0)
      swap::drop_preimported(chunk, range_of(kRecipient).address + c * kMiB2);
  }
}

TEST_F(HandedOver, WhatWasPreparedForNothingIsWithdrawn) {
  leave(kRecipient);
  swap::handover::prepare(kDonor, 3 * kMiB2, kNumber);
  swap::handover::prepare(kDonor, 0, 0);
  EXPECT_EQ(open_files(), files_);
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber + 1).taken, 2 * kMiB2);
  expect_nothing_lost();
}

TEST_F(HandedOver, OnlyTheSameKindStandsInForAChunk) {
  {
    const RangesLock held;
    range_of(kRecipient).properties.allocFlags.gpuDirectRDMACapable = 1;
  }
  leave(kRecipient);
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, 0u);
  EXPECT_EQ(driven_.live_handles, 2);
  expect_nothing_lost();
}

TEST_F(HandedOver, NeighboursInOneRunHaveTheAccessOfTheirOwnRange) {
  leave(kRecipient);
  {
    const RangesLock held;
    const std::size_t index = swap::at(0).lane == kRecipient ? 0 : 1;
    swap::Range both = swap::take(index);
    for (unsigned i : {0u, 1u}) {
      swap::Range one = both;
      one.address += i * kMiB2;
      one.asked = one.bytes = kMiB2;
      one.count = 1;
      one.use = i == 0 ? swap::Use::kMapped : swap::Use::kLive;
      one.chunks = static_cast<swap::Chunk*>(std::calloc(1, sizeof(swap::Chunk)));
      one.chunks[0] = both.chunks[i];
      ASSERT_TRUE(swap::add(one));
    }
    std::free(both.chunks);
  }
  swap::peers::clear();
  for (const unsigned lane : {kDonor, kRecipient}) swap::peers::context_made(lane);
  static std::map<CUdeviceptr, std::size_t> devices;
  devices.clear();
  g_driver.cuMemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc*, size_t count) {
    for (CUdeviceptr end = at + bytes; at < end; at += kMiB2) devices[at] = count;
    return CUDA_SUCCESS;
  };
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, 2 * kMiB2);
  swap::peers::clear();
  EXPECT_EQ(devices.size(), 2u);
  for (const auto& [at, count] : devices) {
    const RangesLock held;
    const bool mapped = swap::find(at)->use == swap::Use::kMapped;
    EXPECT_EQ(count, mapped ? 1u : 2u);
  }
  const RangesLock held;
  for (std::size_t i = 0; i < swap::count(); ++i) {
    for (unsigned c = 0; c < swap::at(i).count; ++c) {
      if (swap::at(i).chunks[c].handle != 0) swap::release(swap::at(i).chunks[c]);
    }
  }
}

TEST_F(HandedOver, WhatNobodyCanImportIsNotOffered) {
  {
    const RangesLock held;
    range_of(kDonor).properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  }
  leave(kRecipient);
  EXPECT_EQ(hand_over(kDonor, kRecipient, kNumber).taken, 0u);
  EXPECT_EQ(g_exports, 0);
  expect_nothing_lost();
}

TEST_F(HandedOver, WhenItIsWithdrawnAllIsDropped) {
  leave(kRecipient);
  const Offer offer(kDonor, 3 * kMiB2, kNumber);
  const std::size_t offered = open_files();
  ASSERT_TRUE(swap::handover::follow(kRecipient, kNumber, true));
  EXPECT_GT(open_files(), offered);
  EXPECT_FALSE(swap::handover::follow(kRecipient, 0, true));
  EXPECT_EQ(open_files(), offered);
  EXPECT_EQ(driven_.live_handles, 3);
}

TEST_F(HandedOver, AnotherNumbersOfferIsNotFound) {
  leave(kRecipient);
  const Offer offer(kDonor, 3 * kMiB2, kNumber);
  EXPECT_TRUE(swap::handover::follow(kRecipient, kNumber + 1, true)) << "it may still come";
  EXPECT_FALSE(swap::handover::begun(kRecipient));
  EXPECT_EQ(driven_.live_handles, 3) << "nothing was imported";
}

TEST_F(HandedOver, WithoutAMonitorNothingIsOffered) {
  world_.monitor = 0;
  leave(kRecipient);
  Offer offer(kDonor, 3 * kMiB2, kNumber);
  EXPECT_EQ(g_exports, 0);
  offer.begin();
  EXPECT_EQ(leave(kDonor).stop, Stop::kNothing);
  EXPECT_EQ(open_files(), files_);
}

TEST_F(HandedOver, ABoardThatCouldShrinkIsRefused) {
  leave(kRecipient);
  Offer offer(kDonor, 3 * kMiB2, kNumber);
  const wire::Key key = handover::key_of(kNumber);
  int& board = world_.shares[{key.words[0], key.words[1]}].at(0);
  ::close(board);
  board = ::memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(board, handover::kBoardBytes), 0);
  EXPECT_FALSE(swap::handover::follow(kRecipient, kNumber, true));
  offer.begin();
  EXPECT_EQ(come(kRecipient).taken, 0u);
  expect_nothing_lost();
}

TEST_F(HandedOver, ABoardThatSaysOtherThanCameIsRefused) {
  leave(kRecipient);
  const Offer offer(kDonor, 3 * kMiB2, kNumber);
  const wire::Key key = handover::key_of(kNumber);
  auto& share = world_.shares[{key.words[0], key.words[1]}];
  ::close(share.back());
  share.pop_back();
  EXPECT_FALSE(swap::handover::follow(kRecipient, kNumber, true));
  EXPECT_EQ(driven_.live_handles, 3);
}

// Each call of the driver fails once, on either side.
TEST_F(HandedOver, WhicheverCallFailsNothingIsLost) {
  std::uint64_t taken = 0;
  for (int call = 0; call < 60; ++call) {
    SCOPED_TRACE(call);
    leave(kRecipient);
    faults().fail(call);
    {
      const std::uint64_t number = 1 + static_cast<std::uint64_t>(call);
      Offer offer(kDonor, 3 * kMiB2, number);
      swap::handover::follow(kRecipient, number, true);
      offer.begin();
      leave(kDonor);
      taken += come(kRecipient).taken;
    }
    faults().none();
    expect_nothing_lost();
    swap::handover::follow(kRecipient, 0, true);
    come(kRecipient);
    come(kDonor);
    expect_nothing_lost();
    EXPECT_EQ(driven_.live_handles, 5);
  }
  EXPECT_GT(taken, 60 * kMiB2) << "most of them are of no matter to it";
  EXPECT_EQ(leave(kRecipient).stop, Stop::kNothing);
  EXPECT_EQ(leave(kDonor).stop, Stop::kNothing);
  EXPECT_EQ(driven_.live_handles, 0);
  EXPECT_EQ(open_files(), files_);
}

class Descriptors : public ::testing::Test {
 protected:
  Descriptors() { ::getrlimit(RLIMIT_NOFILE, &before_); }
  ~Descriptors() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  static ino_t inode(int fd) {
    struct stat info {};
    EXPECT_EQ(::fstat(fd, &info), 0);
    return info.st_ino;
  }
  rlimit before_{};
};

TEST_F(Descriptors, AreInTheUpperHalfAndNeverMore) {
  rlimit few = before_;
  few.rlim_cur = 64;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::set<int> kept;
  for (int i = 0; i < 100; ++i) {
    const int number = swap::memory_fd::keep(STDERR_FILENO);
    if (number == 0) break;
    EXPECT_GE(number, 32);
    EXPECT_TRUE(kept.insert(number).second);
  }
  EXPECT_FALSE(kept.empty());
  EXPECT_LE(kept.size(), 32u);
  for (const int number : kept) swap::memory_fd::close(number);
  for (const int number : kept) EXPECT_LT(::fcntl(number, F_GETFD), 0);
}

TEST_F(Descriptors, ACopyIsOfTheSameFileAndEndsWithExec) {
  const int file = ::memfd_create("memory", MFD_CLOEXEC);
  const int kept = swap::memory_fd::keep(file);
  ::close(file);
  const int copied = swap::memory_fd::copy(kept);
  EXPECT_EQ(inode(copied), inode(kept));
  EXPECT_EQ(::fcntl(copied, F_GETFD), FD_CLOEXEC);
  ::close(copied);
  swap::memory_fd::close(kept);
}

// What a program does that closes all descriptors, and opens its own.
TEST_F(Descriptors, AFileOfTheProgramUnderAKeptNumberIsLeftAlone) {
  const int file = ::memfd_create("memory", MFD_CLOEXEC);
  const int others = ::memfd_create("others", MFD_CLOEXEC);
  const int kept = swap::memory_fd::keep(file);
  ASSERT_EQ(::dup2(others, kept), kept);
  EXPECT_EQ(swap::memory_fd::copy(kept), -1);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::fcntl(kept, F_GETFD) >= 0 ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "a forked child closes it";
  swap::memory_fd::close(kept);
  EXPECT_EQ(inode(kept), inode(others));
  for (const int fd : {file, others, kept}) ::close(fd);
}

TEST_F(Descriptors, ANumberThatTheProgramHasClosedIsNotGivenToASecondKeeper) {
  const int file = ::memfd_create("memory", MFD_CLOEXEC);
  const int first = swap::memory_fd::keep(file);
  ::close(first);
  const int second = swap::memory_fd::keep(file);
  EXPECT_NE(second, first);
  swap::memory_fd::close(first);
  EXPECT_GE(::fcntl(second, F_GETFD), 0);
  swap::memory_fd::close(second);
  EXPECT_LT(::fcntl(second, F_GETFD), 0);
  ::close(file);
}

TEST_F(Descriptors, AForkedChildHasNoneOfItsParents) {
  const int kept = swap::memory_fd::keep(STDERR_FILENO);
  ASSERT_GT(kept, 0);
  EXPECT_NE(::fcntl(kept, F_GETFD) & FD_CLOEXEC, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool closed = ::fcntl(kept, F_GETFD) < 0;
    const int own = swap::memory_fd::keep(STDERR_FILENO);
    ::_exit(closed && own != 0 ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_GE(::fcntl(kept, F_GETFD), 0);
  swap::memory_fd::close(kept);
}

}  // namespace
}  // namespace switchyard::shim
