// The mover's world: the page with the monitor's words in it, a clock, and the pipeline's memory.
//
// Concept. The test is the monitor and the application. run_for() plays the mover's thread: it
// looks and sleeps until so much time has passed on a clock that only sleeping moves. The test
// decides what happens while the mover waits: `during_wait` and `during_sleep`. So every case is
// the same at each run, and none depends on the machine's speed. mover_thread_test.cpp runs the
// real thread.
//
// Only outer effects are looked at: the page, the driver's calls, whether work is admitted, and
// where the bytes are.
//
// Threading: one thread, but for mover_thread_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "shim/swap/mover.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/work_guard.h"
#include "tests/shim/swap/transfer/pipeline_world.h"

namespace switchyard::shim::testing {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint64_t kSecond = 1'000 * kMs;
// Of the pipeline's world: five chunks of 2 MiB.
inline constexpr std::uint64_t kAll = 5 * kMiB2;

using swap::WorkGuard;

struct MoverWorld {
  // --- the clock ---
  std::atomic<std::uint64_t> now_ns{1'000 * kSecond};
  std::function<void()> during_sleep;

  // --- the driver's checkpoint of the process ---
  CUprocessState process = CU_PROCESS_STATE_RUNNING;
  CUresult lock_result = CUDA_SUCCESS;
  CUresult take_result = CUDA_SUCCESS;
  CUresult restore_result = CUDA_SUCCESS;
  CUresult move_result = CUDA_SUCCESS;  // of a restore with pairs
  CUresult unlock_result = CUDA_SUCCESS;
  bool groups = true;  // the process has channel groups
  bool groups_come = false;
  std::vector<CUcheckpointGpuPair> pairs;  // of the last restore that went well
  int exchanged = 0;                       // how often two GPUs were

  // --- the monitor ---
  std::uint32_t monitor = 1;                     // 0: it keeps no shared memory
  std::vector<std::pair<wire::Kind, int>> told;  // of shared memory: what, and how many descriptors
  std::vector<int> shared;  // what another client shares, opened by whatever key
};

extern MoverWorld* g_mover;

class MoverTest : public PipelineTest {
 protected:
  MoverTest();
  ~MoverTest() override;

  // --- the monitor's words ---
  static void limit(std::uint64_t bytes);
  static void detach() {
    limit(0);
    words().limited.store(abi::kContextsToo);
  }
  static void lift() { words().limited.store(0); }
  static void allow_host(std::uint64_t bytes) { words().host_limit_bytes.store(bytes); }
  static void monitor_dies() { process().joined.store(0); }
  static void pause(bool paused);

  // The page of another monitor has begun: nothing is told in it yet.
  static void begin_fresh_page(unsigned gpus);

  // --- the application ---
  void set_primary(bool active);
  void end_primary() { world_.primary = false; }
  static void make_context(std::uintptr_t number);
  static void end_context(std::uintptr_t number);
  // More ranges of three chunks each.
  void allocate_more(int ranges);
  // Unpins the host pool's memory. pre: nothing is in it.
  static void empty_host_pool();

  // The second range and its two chunks are of another GPU, whose mover has what it needs.
  static void use_two_gpus();

  // --- the mover ---
  void look(unsigned lane = 0);  // once
  void run_for(std::uint64_t ns);
  // Until `done`; false: not within `ns`.
  bool run_until(const std::function<bool()>& done, std::uint64_t ns = 100 * kSecond);

  // --- what is seen ---
  static abi::Residency& words() { return page().residencies[0]; }
  static std::uint32_t phase() { return words().phase.load(); }
  static std::uint32_t error() { return words().error.load(); }
  static std::uint64_t resident() { return words().resident_bytes.load(); }
  static bool admits() { return swap::admission::is_open(); }
  bool is_away() { return phase() == abi::kAbsent && resident() == 0 && !admits(); }
  bool is_detached() {
    return phase() == abi::kDetached && mover_.process == CU_PROCESS_STATE_CHECKPOINTED;
  }
  bool is_back() { return phase() == abi::kResident && admits(); }
  std::uint64_t now() { return mover_.now_ns.load(); }
  // No byte is lost, and the page tells what is where.
  void expect_told_right();
  // The same, while work is held for that reason.
  void expect_held(std::uint32_t in_phase, std::uint32_t for_error, std::uint64_t resident_bytes);

  MoverWorld mover_;
};

}  // namespace switchyard::shim::testing
