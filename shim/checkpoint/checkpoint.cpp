#include "shim/checkpoint/checkpoint.h"

#include <string.h>

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

unsigned long long us_since(std::uint64_t begun) { return (monotonic_ns() - begun) / 1000; }
unsigned long long us(std::uint64_t ns) { return ns / 1000; }

void note_out(unsigned lane, const Spent& spent, std::uint64_t begun) {
  log_line(Level::kInfo, "contexts of GPU %u left in %llu us: lock %llu, checkpoint %llu", lane,
           us_since(begun), us(spent.lock_ns), us(spent.checkpoint_ns));
}

void note_in(unsigned lane, const Spent& spent, std::uint64_t begun) {
  log_line(Level::kInfo, "contexts of GPU %u came back in %llu us: restore %llu, unlock %llu", lane,
           us_since(begun), us(spent.restore_ns), us(spent.unlock_ns));
}

// Follows the driver's word on where the process is. False: its contexts are not there.
bool follow(const Outcome& outcome) {
  g_state.lost = outcome.state == CU_PROCESS_STATE_FAILED;
  const bool running = outcome.state == CU_PROCESS_STATE_RUNNING;
  if (running || g_state.lost) inside::open();
  return running;
}

void tell_moved(unsigned lane, const Pairs& pairs) {
  const CUcheckpointGpuPair& pair = pairs.pair[pairs.from];
  std::uint8_t was[16];
  std::uint8_t is[16];
  ::memcpy(was, &pair.oldUuid, sizeof(was));
  ::memcpy(is, &pair.newUuid, sizeof(is));
  neighbours::gpus_exchanged(was, is);
  log_line(Level::kInfo, "what was on GPU %u is on another GPU of the machine now", lane);
}

}  // namespace

CUresult take(unsigned lane) {
  if (!has_calls() || gpus_in_use() > 1 || keeps_contexts()) return CUDA_ERROR_NOT_SUPPORTED;
  const std::uint64_t begun = monotonic_ns();
  if (!inside::close(lane, begun + kComesOutNs)) return CUDA_ERROR_NOT_READY;
  const Outcome outcome = take_steps();
  if (!follow(outcome) && outcome.state == CU_PROCESS_STATE_CHECKPOINTED) {
    neighbours::contexts_left(lane);
    note_out(lane, outcome.spent, begun);
  }
  return outcome.result;
}

bool away() { return inside::is_closed(); }

CUresult bring(unsigned lane, CUresult& refused) {
  const std::uint64_t begun = monotonic_ns();
  const Pairs pairs = pairs_of(page(), lane);
  neighbours::contexts_come(lane);
  const Outcome outcome = bring_steps(pairs);
  refused = outcome.refused;
  if (outcome.moved) tell_moved(lane, pairs);  // before anybody works
  const bool back = follow(outcome);
  neighbours::contexts_came(lane, outcome.state != CU_PROCESS_STATE_CHECKPOINTED);
  if (back) note_in(lane, outcome.spent, begun);
  if (back || outcome.result != CUDA_SUCCESS) return outcome.result;
  return CUDA_ERROR_ILLEGAL_STATE;
}

bool lost() { return g_state.lost; }

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::checkpoint
