#include "shim/checkpoint/checkpoint.h"

#include "shim/checkpoint/neighbours.h"
#include "shim/checkpoint/steps.h"
#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/inside.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "switchyard/stays.h"

namespace switchyard::shim::checkpoint {
namespace {

// The accepted work is done before: only a call that waits for another process takes longer.
constexpr std::uint64_t kComesOutNs = 5'000'000'000;

struct State {
  bool lost = false;
};
constinit State g_state;

unsigned gpus_in_use() {
  unsigned count = 0;
  for (const abi::Lane& lane : page().lanes) {
    if (lane.contexts.load(std::memory_order_relaxed) != 0) ++count;
  }
  return count;
}

bool keeps_contexts() {
  for (const auto& lane : process().stays_bytes) {
    for (const Stays why : kKeepsContexts) {
      if (lane[static_cast<unsigned>(why)].load(std::memory_order_relaxed) != 0) return true;
    }
  }
  return false;
}

void note(unsigned lane, const char* way, std::uint64_t begun) {
  log_line(Level::kDebug, "contexts of GPU %u: %s in %llu us", lane, way,
           static_cast<unsigned long long>((monotonic_ns() - begun) / 1000));
}

// Follows the driver's word on where the process is. False: its contexts are not there.
bool follow(const Outcome& outcome) {
  g_state.lost = outcome.state == CU_PROCESS_STATE_FAILED;
  const bool running = outcome.state == CU_PROCESS_STATE_RUNNING;
  if (running || g_state.lost) inside::open();
  return running;
}

}  // namespace

CUresult take(unsigned lane) {
  if (!has_calls() || gpus_in_use() > 1 || keeps_contexts()) return CUDA_ERROR_NOT_SUPPORTED;
  if (!inside::close(lane, monotonic_ns() + kComesOutNs)) return CUDA_ERROR_NOT_READY;
  const std::uint64_t begun = monotonic_ns();
  const Outcome outcome = take_steps();
  if (!follow(outcome) && outcome.state == CU_PROCESS_STATE_CHECKPOINTED) {
    neighbours::contexts_left(lane);
    note(lane, "out", begun);
  }
  return outcome.result;
}

bool away() { return inside::is_closed(); }

CUresult bring(unsigned lane) {
  const std::uint64_t begun = monotonic_ns();
  neighbours::contexts_come(lane);
  const Outcome outcome = bring_steps();
  const bool back = follow(outcome);
  neighbours::contexts_came(lane, outcome.state != CU_PROCESS_STATE_CHECKPOINTED);
  if (back) note(lane, "in", begun);
  if (back || outcome.result != CUDA_SUCCESS) return outcome.result;
  return CUDA_ERROR_ILLEGAL_STATE;
}

bool lost() { return g_state.lost; }

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::checkpoint
