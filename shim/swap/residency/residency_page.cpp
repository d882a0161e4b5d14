#include "shim/swap/residency/residency_page.h"

#include <pthread.h>
#include <string.h>

#include <atomic>

#include "shim/checkpoint/steps.h"
#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/gate/hold.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/mover.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::residency_page {
namespace {

// What the mover said last, and the order that it works on.
struct Said {
  std::uint32_t phase = abi::kResident;
  std::uint32_t error = abi::kSwapFine;
  std::uint32_t answered = abi::kAnswersNone;
  std::uint32_t heeded = abi::kAnswersNone;
};

struct State {
  std::atomic<std::uint64_t> total[abi::kMaxGpus] = {};
  std::atomic<std::uint64_t> resident[abi::kMaxGpus] = {};
  Said said[abi::kMaxGpus];  // under `publishing`
  pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// The numbers of another monitor mean nothing to this one. pre: `publishing` is held.
void forget_orders() {
  for (Said& said : g_state.said) said.answered = said.heeded = abi::kAnswersNone;
}

// pre: `publishing` is held.
void write(unsigned lane) {
  const Said& said = g_state.said[lane];
  abi::Residency& words = page().residencies[lane];
  words.total_bytes.store(g_state.total[lane].load(), std::memory_order_relaxed);
  words.resident_bytes.store(g_state.resident[lane].load(), std::memory_order_relaxed);
  words.host_bytes.store(pinned_pool::pinned_bytes(), std::memory_order_relaxed);
  // The error before the order that it answers, and both before the phase.
  words.error.store(said.error, std::memory_order_relaxed);
  words.answered.store(said.answered, std::memory_order_release);
  words.phase.store(said.phase, std::memory_order_release);
}

void count(unsigned lane, const Moved& moved, abi::Word64 abi::Memory::*direction) {
  abi::Memory& memory = page().memories[lane];
  page().residencies[lane].moved_bytes.fetch_add(moved.copied, std::memory_order_relaxed);
  (memory.*direction).fetch_add(moved.copied, std::memory_order_relaxed);
  memory.spared_bytes.fetch_add(moved.skipped, std::memory_order_relaxed);
}

}  // namespace

void choose_swappable(unsigned gpus) {
  if (::strcmp(page().card.swappable, "yes") != 0) return;
  if (gpus != 1) {
    log_line(Level::kWarn, "the process sees %u GPUs: memory is swappable where it sees one", gpus);
    return;
  }
  page().residencies[0].answered.store(abi::kAnswersNone, std::memory_order_relaxed);
  page().memories[0].contexts.store(
      checkpoint::has_calls() ? abi::kContextsMayLeave : abi::kContextsNoCalls,
      std::memory_order_relaxed);
  process().swappable.store(1, std::memory_order_release);
  page().lanes[0].attention.fetch_or(abi::kSwappable, std::memory_order_relaxed);
}

std::uint64_t total(unsigned lane) { return g_state.total[lane].load(); }
std::uint64_t resident(unsigned lane) { return g_state.resident[lane].load(); }

void publish(unsigned lane) {
  const Locked locked(g_state.publishing);
  write(lane);
}

void resident_changes(unsigned lane, std::int64_t bytes) {
  g_state.resident[lane].fetch_add(static_cast<std::uint64_t>(bytes));
  publish(lane);
  wake_monitor();
}

void heed(unsigned lane) {
  const Locked locked(g_state.publishing);
  const std::uint32_t order = page().residencies[lane].order.load(std::memory_order_acquire);
  g_state.said[lane].heeded = order != 0 ? order : abi::kAnswersNone;
}

void say(unsigned lane, std::uint32_t phase, std::uint32_t error) {
  {
    const Locked locked(g_state.publishing);
    Said& said = g_state.said[lane];
    said.phase = phase;
    said.error = error;
    said.answered = said.heeded;
    write(lane);
  }
  wake_monitor();
}

bool has_said(unsigned lane, std::uint32_t phase) {
  const Locked locked(g_state.publishing);
  return g_state.said[lane].phase == phase &&
         g_state.said[lane].answered == g_state.said[lane].heeded;
}

void failed_with(unsigned lane, CUresult result) {
  page().residencies[lane].swap_result.store(result, std::memory_order_relaxed);
}

bool monitored() { return process().joined.load(std::memory_order_acquire) != 0; }

Told told(unsigned lane) {
  const abi::Residency& words = page().residencies[lane];
  const std::uint32_t level = words.limited.load(std::memory_order_acquire);
  if (level == abi::kUnlimited || !(monitored() || paused().paused)) return {};
  return {true, words.limit_bytes.load(std::memory_order_relaxed), level == abi::kContextsToo};
}

std::uint64_t gives(unsigned lane) {
  return monitored() ? page().residencies[lane].gives.load(std::memory_order_relaxed) : 0;
}
std::uint64_t takes(unsigned lane) {
  return monitored() ? page().residencies[lane].takes.load(std::memory_order_relaxed) : 0;
}

std::uint64_t soon(unsigned lane) {
  return monitored() ? page().residencies[lane].soon_bytes.load(std::memory_order_relaxed) : 0;
}

std::uint64_t host_limit(unsigned lane) {
  return page().residencies[lane].host_limit_bytes.load(std::memory_order_relaxed);
}

void count_out(unsigned lane, const Moved& moved) {
  count(lane, moved, &abi::Memory::moved_out_bytes);
}
void count_in(unsigned lane, const Moved& moved) {
  count(lane, moved, &abi::Memory::moved_in_bytes);
  page().residencies[lane].taken_bytes.fetch_add(moved.taken, std::memory_order_relaxed);
}
void count_end(unsigned lane) {
  page().residencies[lane].moves.fetch_add(1, std::memory_order_relaxed);
}
void count_time_out(unsigned lane) {
  page().memories[lane].times_out.fetch_add(1, std::memory_order_relaxed);
}

void carry_over(abi::Page& fresh) {
  if (!on()) return;
  const abi::Residency& from = page().residencies[0];
  abi::Residency& to = fresh.residencies[0];
  const Locked locked(g_state.publishing);
  forget_orders();
  to.phase.store(g_state.said[0].phase, std::memory_order_relaxed);
  to.error.store(g_state.said[0].error, std::memory_order_relaxed);
  to.answered.store(abi::kAnswersNone, std::memory_order_relaxed);
  copy_word(to.swap_result, from.swap_result);
  copy_word(to.moved_bytes, from.moved_bytes);
  copy_word(to.moves, from.moves);
  copy_word(to.taken_bytes, from.taken_bytes);
  const abi::Memory& memory = page().memories[0];
  copy_word(fresh.memories[0].moved_out_bytes, memory.moved_out_bytes);
  copy_word(fresh.memories[0].moved_in_bytes, memory.moved_in_bytes);
  copy_word(fresh.memories[0].spared_bytes, memory.spared_bytes);
  copy_word(fresh.memories[0].times_out, memory.times_out);
  copy_word(fresh.memories[0].contexts, memory.contexts);
  // Until the new monitor has made up its mind, what a person released stays away.
  copy_word(to.limit_bytes, from.limit_bytes);
  copy_word(to.limited, from.limited);
  copy_word(to.host_limit_bytes, from.host_limit_bytes);
  to.total_bytes.store(g_state.total[0].load(), std::memory_order_relaxed);
  to.resident_bytes.store(g_state.resident[0].load(), std::memory_order_relaxed);
  to.host_bytes.store(pinned_pool::pinned_bytes(), std::memory_order_relaxed);
  fresh.lanes[0].attention.fetch_or(abi::kSwappable, std::memory_order_relaxed);
}

void moved_to_fresh_page() {
  if (!on()) return;
  const Locked locked(g_state.publishing);
  forget_orders();
  write(0);
}

// The parent's memory is not ours.
SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::swap::residency_page

namespace switchyard::shim::swap::mover {

void allocated(unsigned lane, std::uint64_t bytes) {
  residency_page::g_state.total[lane].fetch_add(bytes);
  residency_page::g_state.resident[lane].fetch_add(bytes);
  residency_page::publish(lane);
}

void freed(unsigned lane, std::uint64_t bytes, std::uint64_t resident_bytes) {
  residency_page::g_state.total[lane].fetch_sub(bytes);
  residency_page::g_state.resident[lane].fetch_sub(resident_bytes);
  residency_page::publish(lane);
}

}  // namespace switchyard::shim::swap::mover
