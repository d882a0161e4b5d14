// Many threads make memory and end it, also while it is moved under them.
#include <atomic>
#include <thread>
#include <vector>

#include "shim/swap/memory/range_table.h"
#include "shim/work_guard.h"
#include "tests/shim/swap/calls/handles_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

class HandlesOfThreads : public HandlesTest {};

// Creates, maps, and ends what it made, in either order, while `more` of its rounds.
template <typename More>
void work(int thread, More more) {
  t_lane = 0;
  for (int i = 0; more(i); ++i) {
    const std::uint64_t bytes = static_cast<std::uint64_t>((i * 37 + thread) % 40 + 1) * 2 * kMiB;
    Handle number = 0;
    if (HandlesTest::try_create(number, bytes) != CUDA_SUCCESS) continue;
    CUdeviceptr at = 0;
    EXPECT_EQ(g_driver.cuMemAddressReserve(&at, bytes, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(HandlesTest::map(at, bytes, number), CUDA_SUCCESS);
    EXPECT_EQ(HandlesTest::access(at, bytes), CUDA_SUCCESS);
    const bool first = i % 2 == 0;
    const auto unmap = [&] { return HandlesTest::unmap(at, bytes); };
    const auto release = [&] { return HandlesTest::release(number); };
    EXPECT_EQ(first ? release() : unmap(), CUDA_SUCCESS);
    EXPECT_EQ(first ? unmap() : release(), CUDA_SUCCESS);
    EXPECT_EQ(g_driver.cuMemAddressFree(at, bytes), CUDA_SUCCESS);
  }
}

TEST_F(HandlesOfThreads, ManyThreadsEndAtNothing) {
  set_quota(400 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] { work(t, [](int round) { return round < 100; }); });
  }
  for (std::thread& thread : threads) thread.join();
  expect_nothing_left();
  expect_balanced();
}

// Out in one step and in in another, as the mover does: in between others come and go. How many
// chunks were moved.
int move_all(bool out, std::uint64_t& resident) {
  int moved = 0;
  const swap::RangesLock held;
  for (std::size_t i = 0; i < swap::count(); ++i) {
    const swap::Range& range = swap::at(i);
    CUdeviceptr address = range.address;
    for (unsigned c = 0; c < range.count; ++c) {
      swap::Chunk& chunk = range.chunks[c];
      if (out != (chunk.handle == 0)) {
        EXPECT_EQ(
            out ? swap::send_away(chunk, address) : swap::bring(chunk, address, range.properties),
            CUDA_SUCCESS);
        resident += out ? -chunk.bytes : chunk.bytes;
        ++moved;
      }
      address += chunk.bytes;
    }
  }
  return moved;
}

TEST_F(HandlesOfThreads, MemoryMovesWhileManyThreadsComeAndGo) {
  constexpr int kMoves = 200;  // each way
  std::atomic<bool> working{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&working, t] { work(t, [&](int) { return working.load(); }); });
  }
  int out = 0;
  int in = 0;
  while (out < kMoves || in < kMoves) {
    ASSERT_TRUE(swap::admission::shut(0));
    while (!swap::admission::empty()) std::this_thread::yield();
    out += move_all(true, swap_.resident);
    std::this_thread::yield();
    in += move_all(false, swap_.resident);
    swap::admission::open(0);
    std::this_thread::yield();
  }
  working = false;
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(out, in) << "some ended while it was away";
  expect_nothing_left();
  expect_balanced();
}

}  // namespace
}  // namespace switchyard::shim
