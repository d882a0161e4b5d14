#include "shim/inside.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/client/client.h"
#include "shim/clock.h"
#include "shim/reset.h"
#include "shim/thread_count.h"

namespace switchyard::shim {
namespace {

constexpr long kNapNs = 100'000'000;
constexpr std::uint64_t kLookNs = 50'000;

struct State {
  ThreadCount threads;
  std::atomic<std::uint32_t> closed{0};  // a futex word
  std::atomic<unsigned> lane{0};         // whose contexts are away
  std::atomic<unsigned> looks{0};        // of movers
};
constinit State g_state;

__thread unsigned t_depth = 0;

// Counted before it looks, so that the mover, which closes before it counts, sees one of both.
bool try_count_in() {
  g_state.threads.enter(&t_depth);
  if (g_state.closed.load(std::memory_order_seq_cst) == 0) return true;
  g_state.threads.leave(&t_depth);
  return false;
}

void count_in() {
  while (!try_count_in())
    sleep_held(g_state.closed, 1, g_state.lane.load(std::memory_order_relaxed));
}

}  // namespace

void sleep_held(std::atomic<std::uint32_t>& word, std::uint32_t seen, unsigned lane) {
  // What the monitor sees of who waits.
  const auto held_threads = [lane]() -> abi::Word32& {
    return page().residencies[lane].held_threads;
  };
  if (held_threads().fetch_add(1, std::memory_order_relaxed) == 0) wake_monitor();
  const timespec limit{0, kNapNs};
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
  // The page may be another monitor's by now, so the count never goes below zero.
  std::uint32_t now = held_threads().load(std::memory_order_relaxed);
  while (now != 0 && !held_threads().compare_exchange_weak(now, now - 1)) {
  }
}

void Inside::enter() {
  if (t_depth++ == 0) count_in();
}

void Inside::leave() {
  if (--t_depth == 0) g_state.threads.leave(&t_depth);
}

Outside::Outside() : depth_(t_depth) {
  if (depth_ == 0) return;
  t_depth = 0;
  g_state.threads.leave(&t_depth);
}

Outside::~Outside() {
  if (depth_ == 0) return;
  count_in();
  t_depth = depth_;
}

bool Outside::try_end() {
  if (depth_ == 0) return !inside::is_closed();
  if (!try_count_in()) return false;
  t_depth = depth_;
  depth_ = 0;
  return true;
}

namespace inside {

// Counted before it looks, as in try_count_in().
MoverLook::MoverLook(unsigned lane) {
  g_state.looks.fetch_add(1, std::memory_order_seq_cst);
  admitted_ = g_state.closed.load(std::memory_order_seq_cst) == 0 ||
              g_state.lane.load(std::memory_order_relaxed) == lane;
}

MoverLook::~MoverLook() { g_state.looks.fetch_sub(1, std::memory_order_release); }

bool close(unsigned lane, std::uint64_t deadline_ns) {
  g_state.lane.store(lane, std::memory_order_relaxed);
  g_state.closed.store(1, std::memory_order_seq_cst);
  // Its own look is one.
  while (!g_state.threads.empty() || g_state.looks.load(std::memory_order_seq_cst) > 1) {
    if (monotonic_ns() >= deadline_ns) return open(), false;
    sleep_ns(kLookNs);
  }
  return true;
}

bool is_closed() { return g_state.closed.load(std::memory_order_acquire) != 0; }

void open() {
  g_state.closed.store(0, std::memory_order_release);
  ::syscall(SYS_futex, &g_state.closed, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

SWITCHYARD_RENEW(kState, g_state, t_depth);

}  // namespace inside

}  // namespace switchyard::shim
