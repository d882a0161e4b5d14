// The mover takes memory over from a client that hands it over. The test is that client.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "switchyard/handover.h"
#include "tests/shim/swap/residency/mover_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

constexpr unsigned kChunks = 3;

class MoverTakes : public MoverTest {
 protected:
  MoverTakes() {
    g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void*,
                                                 CUmemAllocationHandleType) {
      const CUmemAllocationProp properties{};
      return driver().cuMemCreate(out, kMiB2, &properties, 0);
    };
    const int board = ::memfd_create("board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(board, handover::kBoardBytes), 0);
    EXPECT_EQ(::fcntl(board, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    void* const mapped =
        ::mmap(nullptr, handover::kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, board, 0);
    board_ = static_cast<handover::Board*>(mapped);
    mover_.shared = {board};
    for (unsigned i = 0; i < kChunks; ++i) {
      board_->chunks[i].bytes.store(kMiB2);
      board_->chunks[i].kind.store(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR << 24);
      mover_.shared.push_back(::memfd_create("chunk", MFD_CLOEXEC));
    }
    board_->count.store(kChunks);
  }
  ~MoverTakes() override {
    mover_.during_sleep = nullptr;
    words().takes.store(0);
    limit(0);
    EXPECT_TRUE(run_until([&] { return is_away(); })) << "with its descriptors";
    ::munmap(board_, handover::kBoardBytes);
    for (const int fd : mover_.shared) ::close(fd);
  }

  // A chunk of the other client's has left, and the monitor raises the limit by it.
  void leaves(unsigned chunk) {
    board_->chunks[chunk].left.store(1);
    limit((chunk + 1) * kMiB2);
  }

  handover::Board* board_ = nullptr;
};

TEST_F(MoverTakes, EachChunkThatComesRenewsThePatienceForTheNext) {
  limit(0);
  ASSERT_TRUE(run_until([&] { return is_away(); }));
  words().takes.store(77);
  run_for(20 * kMs);
  EXPECT_EQ(resident(), 0u) << "the other client still works";
  board_->phase.store(handover::kBegun);
  const std::uint64_t begun = now();
  unsigned left = 0;
  mover_.during_sleep = [&] {
    mover_.now_ns.fetch_add(10 * kMs);  // the mover naps for less, and each nap costs real time
    if (left < kChunks && now() - begun >= (left + 1) * 600 * kMs) leaves(left++);
  };
  run_for(3 * kSecond);
  EXPECT_EQ(left, kChunks);
  EXPECT_EQ(words().taken_bytes.load(), kChunks * kMiB2);
  EXPECT_EQ(resident(), kChunks * kMiB2);
  lift();
  ASSERT_TRUE(run_until([&] { return is_back(); }));
  expect_told_right();
}

}  // namespace
}  // namespace switchyard::shim
