// The mover's own thread, and what a fork leaves of it. Each case runs in a child process of its
// own: the thread never ends. The child builds the mover's world itself, because a forked child
// begins with nothing of what its parent kept.
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "shim/swap/memory/range_table.h"
#include "shim/swap/transfer/digest.h"
#include "tests/shim/swap/residency/mover_world.h"

#ifdef __SANITIZE_THREAD__
// A child of a process with threads begins one of its own, which is what is tried here.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace switchyard::shim {
namespace {

using namespace testing;

// So many threads the system still gives.
constexpr int kEnough = 1 << 30;
std::atomic<int> g_threads_left{kEnough};

// Runs `act` in a child and expects that it says true there.
template <typename Act>
void in_a_child(Act act) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(act() && !::testing::Test::HasFailure() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

class InAChild : public MoverTest {
 public:
  virtual bool run() = 0;

 protected:
  static int threads() {
    DIR* folder = ::opendir("/proc/self/task");
    int count = 0;
    while (folder != nullptr && ::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
    return count - 2;  // "." and ".."
  }
  static bool eventually(const std::function<bool()>& done) {
    for (int i = 0; i < 60'000 && !done(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return done();
  }

 private:
  void TestBody() override {}
};

// The world is never taken down: the mover's thread uses it until the child exits.
template <typename Case>
void run_in_a_child() {
  in_a_child([] { return (new Case)->run(); });
}

class ThereIsOneAndItMovesWhatItIsPokedForCase : public InAChild {
 public:
  bool run() override {
    allow_host(0);  // the pool is touched by threads
    const int before = threads();
    swap::mover::start(0);
    swap::mover::start(0);
    EXPECT_EQ(threads(), before + 1);
    allow_host(swap::pinned_pool::kSlab);
    limit(0);
    swap::mover::poke();
    EXPECT_TRUE(eventually([&] { return is_away(); }));
    expect_told_right();
    lift();
    swap::mover::poke();
    EXPECT_TRUE(eventually([&] { return is_back(); }));
    EXPECT_EQ(resident(), kAll);
    return true;
  }
};

TEST(MoverThread, ThereIsOneAndItMovesWhatItIsPokedFor) {
  run_in_a_child<ThereIsOneAndItMovesWhatItIsPokedForCase>();
}

// The system may have had no thread left for a moment.
class OneThatCouldNotBeMadeIsMadeLaterCase : public InAChild {
 public:
  bool run() override {
    const int before = threads();
    g_threads_left = 0;
    swap::mover::start(0);
    swap::mover::start_again();
    EXPECT_EQ(threads(), before);
    g_threads_left = 1;
    swap::mover::start_again();
    EXPECT_EQ(threads(), before + 1);
    swap::mover::start_again();
    EXPECT_EQ(g_threads_left, 0) << "one is enough";
    g_threads_left = kEnough;
    limit(0);
    swap::mover::poke();
    return eventually([&] { return is_away(); });
  }
};

TEST(MoverThread, OneThatCouldNotBeMadeIsMadeLater) {
  run_in_a_child<OneThatCouldNotBeMadeIsMadeLaterCase>();
}

class OneThatCouldNotBeMadeIsMadeWithTheNextAllocationCase : public InAChild {
 public:
  bool run() override {
    const int before = threads();
    g_threads_left = 0;
    swap::mover::start(0);
    g_threads_left = kEnough;
    swap::mover::start(0);
    swap::mover::start_again();
    EXPECT_EQ(threads(), before + 1);
    return true;
  }
};

TEST(MoverThread, OneThatCouldNotBeMadeIsMadeWithTheNextAllocation) {
  run_in_a_child<OneThatCouldNotBeMadeIsMadeWithTheNextAllocationCase>();
}

// The threads of both GPUs and of the application run side by side.
class EachGpuHasItsOwnAndWorkGoesOnOnceBothAreBackCase : public InAChild {
 public:
  bool run() override {
    use_two_gpus();
    keep_contexts_by_thread();
    for (unsigned lane : {0u, 1u}) allow(lane, 0);  // the pools are touched by threads
    const int before = threads();
    for (unsigned lane : {0u, 1u}) swap::mover::start(lane);
    EXPECT_EQ(threads(), before + 2);
    std::atomic<bool> ends{false};
    std::thread application([&] { work_until(ends); });
    for (int round = 0; round < 5; ++round) {
      for (unsigned lane : {0u, 1u}) allow(lane, swap::pinned_pool::kSlab);
      tell_both(1);
      EXPECT_TRUE(
          eventually([] { return phase_of(0) == abi::kAbsent && phase_of(1) == abi::kAbsent; }));
      EXPECT_EQ(resident_on(0) + resident_on(1), 0u);
      tell_both(0);
      EXPECT_TRUE(eventually([] { return admits(); }));
    }
    ends = true;
    application.join();
    EXPECT_TRUE(eventually([] { return resident_on(0) + resident_on(1) == kAll; }));
    g_resident = static_cast<std::int64_t>(kAll);
    expect_nothing_lost();
    return true;
  }

 private:
  // As the driver: two movers use contexts of different GPUs.
  static void keep_contexts_by_thread() {
    static thread_local CUcontext current = nullptr;
    g_driver.cuCtxSetCurrent = [](CUcontext context) {
      current = context;
      return CUDA_SUCCESS;
    };
    g_driver.cuCtxGetDevice = [](CUdevice* device) {
      *device = device_of(current, 0);
      return current != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    };
    g_driver.cuCtxSynchronize = [] { return CUDA_SUCCESS; };
  }
  static abi::Residency& words_of(unsigned lane) { return page().residencies[lane]; }
  static std::uint32_t phase_of(unsigned lane) { return words_of(lane).phase.load(); }
  static std::uint64_t resident_on(unsigned lane) { return words_of(lane).resident_bytes.load(); }
  static void allow(unsigned lane, std::uint64_t bytes) {
    words_of(lane).host_limit_bytes.store(bytes);
  }
  static void tell_both(std::uint32_t limited) {
    for (unsigned lane : {0u, 1u}) words_of(lane).limited.store(limited);
    swap::mover::poke();
  }
  // Memory of both is there while it is inside.
  static void work_until(const std::atomic<bool>& ends) {
    while (!ends) {
      const WorkGuard entry;
      const swap::RangesLock held;
      EXPECT_FALSE(swap::anything_away(0) || swap::anything_away(1));
    }
  }
};

TEST(MoverThread, EachGpuHasItsOwnAndWorkGoesOnOnceBothAreBack) {
  run_in_a_child<EachGpuHasItsOwnAndWorkGoesOnOnceBothAreBackCase>();
}

class NoContextIsUsedDuringAStandstillCase : public InAChild {
 public:
  bool run() override {
    swap::mover::start(0);
    {
      const swap::mover::Standstill standstill;
      const int retained = world_.retained;
      EXPECT_EQ(retained, 0);
      limit(0);
      swap::mover::poke();
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(world_.retained, 0);
      EXPECT_TRUE(world_.waits.empty());
      EXPECT_EQ(resident(), kAll);
    }
    swap::mover::poke();
    return eventually([&] { return is_away(); });
  }
};

TEST(MoverThread, NoContextIsUsedDuringAStandstill) {
  run_in_a_child<NoContextIsUsedDuringAStandstillCase>();
}

// The work that the mover waits for waits for the thread that makes the context.
class AContextIsMadeWhileWorkIsDrainedCase : public InAChild {
 public:
  bool run() override {
    static std::atomic<bool> waits, word;
    waits = word = false;
    g_driver.cuCtxSynchronize = [] {
      waits = true;
      while (!word) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return CUDA_SUCCESS;
    };
    swap::mover::start(0);
    limit(0);
    swap::mover::poke();
    EXPECT_TRUE(eventually([] { return waits.load(); }));
    swap::mover::context_made(0);
    word = true;
    return eventually([&] { return is_away(); });
  }
};

TEST(MoverThread, AContextIsMadeWhileWorkIsDrained) {
  run_in_a_child<AContextIsMadeWhileWorkIsDrainedCase>();
}

class AForkedChildHasNothingToMoveAndItsOwnMoverCase : public InAChild {
 public:
  bool run() override {
    swap::mover::start(0);
    limit(2 * kMiB2);
    swap::mover::poke();
    EXPECT_TRUE(eventually([&] { return phase() == abi::kAbsent; }));
    in_a_child([&] {
      const int before = threads();
      EXPECT_EQ(process().alive.load(), 0u) << "wiped by the kernel";
      begin_process();
      EXPECT_EQ(swap::residency_page::total(0), 0u);
      EXPECT_EQ(swap::residency_page::resident(0), 0u);
      EXPECT_EQ(swap::pinned_pool::pinned_bytes(0), 0u);
      EXPECT_TRUE(admits()) << "what the parent's mover holds is not held here";
      EXPECT_EQ(swap::residency::executor(0).state(), swap::residency::MoverState::kResident);
      {
        const swap::RangesLock held;
        EXPECT_EQ(swap::count(), 0u);
      }
      process().joined.store(1);
      process().swappable.store(1);
      swap::mover::start(0);
      EXPECT_EQ(threads(), before + 1) << "the parent's mover stayed there";
      limit(0);
      const swap::mover::Standstill standstill;  // the parent's thread may have held this
      EXPECT_EQ(words().moves.load(), 0u);
      return true;
    });
    EXPECT_EQ(phase(), abi::kAbsent) << "the parent's page is the parent's";
    return true;
  }
};

TEST(MoverThread, AForkedChildHasNothingToMoveAndItsOwnMover) {
  run_in_a_child<AForkedChildHasNothingToMoveAndItsOwnMoverCase>();
}

}  // namespace
}  // namespace switchyard::shim

// The linker leads calls of this program here (--wrap).
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names are the linker's.
int __real_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument);
int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument);
// NOLINTEND(bugprone-reserved-identifier)
}

int __wrap_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                          void* argument) {
  if (switchyard::shim::g_threads_left <= 0) return EAGAIN;
  --switchyard::shim::g_threads_left;
  return __real_pthread_create(thread, attributes, run, argument);
}
