#include "tests/shim/swap/residency/mover_world.h"

#include <string.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "shim/checkpoint/neighbours.h"
#include "shim/client/client.h"
#include "shim/clock.h"
#include "shim/contexts.h"
#include "shim/inside.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/transfer/handover.h"

namespace switchyard::shim {

std::uint64_t monotonic_ns() { return testing::g_mover->now_ns.load(); }

void sleep_ns(std::uint64_t ns) {
  // Once in a millisecond of the clock is enough for a test's other threads. On a busy machine each
  // costs a time slice, and many sleeps are of microseconds.
  constexpr std::uint64_t kYieldEvery = 1'000'000;
  const std::uint64_t before = testing::g_mover->now_ns.fetch_add(ns);
  if (testing::g_mover->during_sleep) testing::g_mover->during_sleep();
  if (before / kYieldEvery != (before + ns) / kYieldEvery) std::this_thread::yield();
}

std::uint32_t sharing_monitor() { return testing::g_mover->monitor; }

bool share(wire::Kind kind, const wire::Share& asked, Descriptors& descriptors,
           wire::Shared& answer) {
  const std::vector<int>& shared = testing::g_mover->shared;
  testing::g_mover->told.emplace_back(kind, static_cast<int>(descriptors.count));
  descriptors.close();
  answer = {};
  answer.verdict = wire::kTaken;
  if (kind != wire::kOpenShared) return true;
  if (shared.empty()) answer.verdict = wire::kNoSuchShare;
  answer.total = static_cast<std::uint32_t>(shared.size());
  for (std::size_t i = asked.first; i < shared.size(); ++i) descriptors.add(::dup(shared[i]));
  answer.count = descriptors.count;
  return true;
}

namespace neighbours {

void contexts_left(unsigned) { testing::g_mover->groups = false; }
void contexts_come(unsigned) { testing::g_mover->groups_come = true; }
void contexts_came(unsigned, bool all) {
  testing::g_mover->groups = all;
  testing::g_mover->groups_come = false;
}
// What client/hello.cpp does.
void gpus_exchanged(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]) {
  ++testing::g_mover->exchanged;
  for (abi::Lane& lane : page().lanes) {
    const bool is_one = ::memcmp(lane.uuid, one, sizeof(one)) == 0;
    if (is_one || ::memcmp(lane.uuid, other, sizeof(other)) == 0)
      ::memcpy(lane.uuid, is_one ? other : one, sizeof(one));
  }
}

}  // namespace neighbours

namespace testing {

namespace {

MoverWorld g_nobodys;  // before the first test

CUresult export_memory(void* out, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                       unsigned long long) {
  *static_cast<int*>(out) = ::dup(STDERR_FILENO);
  return CUDA_SUCCESS;
}

decltype(g_driver.cuCtxSetCurrent) g_set_current = nullptr;

// A call while the process is locked or checkpointed would sleep, or end it.
CUresult use(CUcontext context) {
  EXPECT_NE(g_mover->process, CU_PROCESS_STATE_LOCKED);
  EXPECT_NE(g_mover->process, CU_PROCESS_STATE_CHECKPOINTED);
  return g_set_current(context);
}

// One call of the driver's checkpoint: it needs a state, and leads to another.
CUresult step(CUprocessState from, CUprocessState to, CUresult result) {
  EXPECT_EQ(g_world->context, nullptr) << "no context of ours may be current";
  if (g_mover->process != from) return CUDA_ERROR_ILLEGAL_STATE;
  if (result == CUDA_SUCCESS) g_mover->process = to;
  return result;
}

void have_checkpoint() {
  g_set_current = g_driver.cuCtxSetCurrent;
  g_driver.cuCtxSetCurrent = use;
  g_driver.cuCheckpointProcessGetState = [](int pid, CUprocessState* out) {
    EXPECT_EQ(pid, ::getpid());
    *out = g_mover->process;
    return CUDA_SUCCESS;
  };
  g_driver.cuCheckpointProcessLock = [](int, CUcheckpointLockArgs* args) {
    EXPECT_NE(args->timeoutMs, 0u) << "no wait without a limit";
    return step(CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED, g_mover->lock_result);
  };
  g_driver.cuCheckpointProcessCheckpoint = [](int, CUcheckpointCheckpointArgs*) {
    return step(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED, g_mover->take_result);
  };
  g_driver.cuCheckpointProcessRestore = [](int, CUcheckpointRestoreArgs* given) {
    const auto* args = cuda::RestoreArgs::of(given);
    EXPECT_TRUE(g_mover->groups_come) << "what is born now is known";
    const bool moves = args->gpu_pairs_count != 0;
    const CUresult result = step(CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED,
                                 moves ? g_mover->move_result : g_mover->restore_result);
    if (result == CUDA_SUCCESS)
      g_mover->pairs.assign(args->gpu_pairs, args->gpu_pairs + args->gpu_pairs_count);
    return result;
  };
  g_driver.cuCheckpointProcessUnlock = [](int, CUcheckpointUnlockArgs*) {
    return step(CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING, g_mover->unlock_result);
  };
}

// Their threads, where a test has begun some, live on.
void forget_executors() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    swap::residency::executor(lane) = swap::residency::Executor(lane);
  }
}

}  // namespace

MoverWorld* g_mover = &g_nobodys;

MoverTest::MoverTest() {
  forget_executors();
  g_mover = &mover_;
  use_contexts();
  world_.context = nullptr;  // none is current on the mover's thread
  g_driver.cuDeviceGet = [](CUdevice* out, int ordinal) {
    *out = ordinal;
    return CUDA_SUCCESS;
  };
  g_driver.cuMemExportToShareableHandle = export_memory;
  g_driver.cuMemHostUnregister = [](void*) { return CUDA_SUCCESS; };
  have_checkpoint();
  process().swappable.store(1);
  allow_host(swap::pinned_pool::kSlab);
  swap::mover::allocated(0, kAll);
  const swap::RangesLock held;
  for (std::size_t i = 0; i < swap::count(); ++i) {
    swap::Range& range = swap::at(i);
    range.properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    range.properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    range.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
}

MoverTest::~MoverTest() {
  EXPECT_EQ(world_.retained, 0);
  swap::handover::prepare(0, 0, 0);
  process().swappable.store(0);
  process().captures.store(0);
  forget_executors();
  for (unsigned lane : {0u, 1u}) swap::admission::open(lane);
  inside::open();
  g_mover = &g_nobodys;
}

void MoverTest::use_two_gpus() {
  process().swappable.store(2);
  {
    const swap::RangesLock held;
    for (std::size_t i = 0; i < swap::count(); ++i) {
      swap::Range& range = swap::at(i);
      if (range.count == 2) range.lane = 1;
      range.properties.location.id = static_cast<int>(range.lane);
    }
  }
  swap::mover::freed(0, 2 * kMiB2, 2 * kMiB2);
  swap::mover::allocated(1, 2 * kMiB2);
  fill_pool(1);
  page().residencies[1].host_limit_bytes.store(swap::pinned_pool::kSlab);
}

void MoverTest::limit(std::uint64_t bytes) {
  words().limit_bytes.store(bytes);
  words().limited.store(1);
}

void MoverTest::pause(bool paused) {
  page().gates[0].closed.store(paused ? abi::kClosedByPause : 0u);
}

void MoverTest::begin_fresh_page(unsigned gpus) {
  for (unsigned lane = 0; lane < gpus; ++lane) {
    abi::Residency& at = page().residencies[lane];
    at.answered.store(0);
    at.phase.store(abi::kResident);
    at.total_bytes.store(0);
    at.resident_bytes.store(0);
  }
  swap::residency_page::moved_to_fresh_page();
}

void MoverTest::set_primary(bool active) {
  const bool made = active && !world_.primary;
  world_.primary = active;
  if (made) swap::mover::context_made(0);
}

void MoverTest::make_context(std::uintptr_t number) {
  swap::note_context(reinterpret_cast<CUcontext>(number), 0);
}

void MoverTest::end_context(std::uintptr_t number) {
  const auto context = reinterpret_cast<CUcontext>(number);
  const swap::Made made = swap::made_context(context);
  ASSERT_EQ(made.lane, 0);
  swap::forget_context(context, made);
}

void MoverTest::allocate_more(int ranges) {
  for (int i = 0; i < ranges; ++i) {
    add({kMiB2, kMiB2, kMiB2});
    swap::mover::allocated(0, 3 * kMiB2);
  }
}

void MoverTest::empty_host_pool() {
  while (swap::pinned_pool::slabs(0) != 0 && swap::pinned_pool::drop(0, 0)) continue;
}

void MoverTest::look(unsigned lane) {
  const std::uint64_t wait_ns = swap::residency::executor(lane).look();
  swap::residency::executor(lane).pause();
  // A little more than it asked for, and not always the same part of a microsecond.
  mover_.now_ns.fetch_add(wait_ns + 1'300);
  if (mover_.during_sleep) mover_.during_sleep();
}

void MoverTest::run_for(std::uint64_t ns) {
  for (const std::uint64_t end = now() + ns; now() < end;) look();
}

bool MoverTest::run_until(const std::function<bool()>& done, std::uint64_t ns) {
  for (const std::uint64_t end = now() + ns; now() < end && !done();) look();
  return done();
}

void MoverTest::expect_told_right() {
  g_resident = static_cast<std::int64_t>(resident());
  expect_nothing_lost();
  std::uint64_t total = 0;
  for (const std::string& each : contents_) total += each.size();
  EXPECT_EQ(words().total_bytes.load(), total);
  EXPECT_EQ(words().host_bytes.load(), swap::pinned_pool::pinned_bytes(0));
}

void MoverTest::expect_held(std::uint32_t in_phase, std::uint32_t for_error,
                            std::uint64_t resident_bytes) {
  EXPECT_EQ(phase(), in_phase);
  EXPECT_EQ(error(), for_error);
  EXPECT_FALSE(admits());
  EXPECT_EQ(resident(), resident_bytes);
  expect_told_right();
}

}  // namespace testing
}  // namespace switchyard::shim
