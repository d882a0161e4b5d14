#include "shim/checkpoint/steps.h"

#include <string.h>
#include <unistd.h>

#include "shim/clock.h"

namespace switchyard::shim::checkpoint {
namespace {

// The accepted work is done before: only a call that waits for another process takes longer.
constexpr unsigned kLockMs = 5'000;

// The driver's word. Where it doesn't answer, what follows from the last step's: a process that is
// away must not be taken for one that is lost.
CUprocessState state(CUprocessState otherwise) {
  CUprocessState now = otherwise;
  const CUresult result = driver().cuCheckpointProcessGetState(::getpid(), &now);
  return result == CUDA_SUCCESS ? now : otherwise;
}

// `spent` grows by what the step takes.
template <typename Step>
CUresult timed(std::uint64_t& spent, Step step) {
  const std::uint64_t begun = monotonic_ns();
  const CUresult result = step();
  spent += monotonic_ns() - begun;
  return result;
}

CUresult lock() {
  CUcheckpointLockArgs args{};
  args.timeoutMs = kLockMs;
  return driver().cuCheckpointProcessLock(::getpid(), &args);
}

CUresult checkpoint() {
  CUcheckpointCheckpointArgs args{};
  return driver().cuCheckpointProcessCheckpoint(::getpid(), &args);
}

// The first driver whose restore knows of pairs.
constexpr int kPairsSince = 13000;

CUresult restore(Pairs pairs) {
  cuda::RestoreArgs args{};
  args.gpu_pairs = pairs.count != 0 ? pairs.pair : nullptr;
  args.gpu_pairs_count = pairs.count;
  return driver().cuCheckpointProcessRestore(::getpid(), args.get());
}

CUresult unlock() {
  CUcheckpointUnlockArgs args{};
  return driver().cuCheckpointProcessUnlock(::getpid(), &args);
}

CUuuid machine_uuid(const abi::Page& page, unsigned gpu) {
  const abi::Word64(&words)[2] = page.lanes[gpu].machine_uuid;
  const std::uint64_t bytes[2] = {words[0].load(std::memory_order_relaxed),
                                  words[1].load(std::memory_order_relaxed)};
  CUuuid uuid;
  static_assert(sizeof(uuid) == sizeof(bytes));
  ::memcpy(&uuid, bytes, sizeof(uuid));
  return uuid;
}

bool same(const CUuuid& a, const CUuuid& b) { return ::memcmp(&a, &b, sizeof(a)) == 0; }

}  // namespace

Pairs pairs_of(const abi::Page& page, unsigned lane) {
  const std::uint32_t wanted = page.lanes[lane].shall_be_on.load(std::memory_order_acquire);
  Pairs pairs;
  unsigned count = 0;
  for (; count < abi::kMaxGpus; ++count) {
    const CUuuid uuid = machine_uuid(page, count);
    if (same(uuid, CUuuid{})) break;
    pairs.pair[count] = {uuid, uuid};
    if (::memcmp(&uuid, page.lanes[lane].uuid, sizeof(uuid)) == 0) pairs.from = count;
  }
  const bool known = count != 0 && ::memcmp(&pairs.pair[pairs.from].oldUuid, page.lanes[lane].uuid,
                                            sizeof(CUuuid)) == 0;
  if (!known || wanted == 0 || wanted > count || wanted - 1 == pairs.from) return pairs;
  pairs.count = count;
  pairs.pair[pairs.from].newUuid = pairs.pair[wanted - 1].oldUuid;
  pairs.pair[wanted - 1].newUuid = pairs.pair[pairs.from].oldUuid;
  return pairs;
}

bool has_pairs() { return has_calls() && driver_version() >= kPairsSince; }

bool has_calls() {
  const Driver& calls = driver();
  return calls.cuCheckpointProcessLock != nullptr && calls.cuCheckpointProcessUnlock != nullptr &&
         calls.cuCheckpointProcessCheckpoint != nullptr &&
         calls.cuCheckpointProcessRestore != nullptr &&
         calls.cuCheckpointProcessGetState != nullptr;
}

Outcome take_steps() {
  Spent spent;
  const CUresult locked = timed(spent.lock_ns, lock);
  if (locked != CUDA_SUCCESS) {
    return {.result = locked, .state = state(CU_PROCESS_STATE_RUNNING), .spent = spent};
  }
  const CUresult taken = timed(spent.checkpoint_ns, checkpoint);
  const bool away = taken == CUDA_SUCCESS;
  return {.result = taken,
          .state =
              away ? CU_PROCESS_STATE_CHECKPOINTED : bring_steps({}, CU_PROCESS_STATE_LOCKED).state,
          .spent = spent};
}

Outcome bring_steps(const Pairs& pairs, CUprocessState from) {
  Outcome out{.state = state(from)};
  const auto after = [&out](CUresult step, CUprocessState reached) {
    out.state = state(step == CUDA_SUCCESS ? reached : out.state);
    return step;
  };
  if (out.state == CU_PROCESS_STATE_CHECKPOINTED && pairs.count != 0) {
    const CUresult step = timed(out.spent.restore_ns, [&] { return restore(pairs); });
    out.refused = after(step, CU_PROCESS_STATE_LOCKED);
    out.moved = out.refused == CUDA_SUCCESS;
  }
  if (out.state == CU_PROCESS_STATE_CHECKPOINTED) {
    const CUresult step = timed(out.spent.restore_ns, [] { return restore({}); });
    out.result = after(step, CU_PROCESS_STATE_LOCKED);
  }
  if (out.state == CU_PROCESS_STATE_LOCKED) {
    out.result = after(timed(out.spent.unlock_ns, unlock), CU_PROCESS_STATE_RUNNING);
  }
  return out;
}

}  // namespace switchyard::shim::checkpoint
