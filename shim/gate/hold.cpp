#include "shim/gate/hold.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/gate/bursts.h"
#include "shim/inside.h"

namespace switchyard::shim {
namespace {

constexpr long kNapNs = 100'000'000;
// The bits that a monitor which is gone must not leave behind.
constexpr std::uint32_t kMonitorsBits = abi::kGateArmed | abi::kProgress | abi::kLinger |
                                        abi::kTimeBursts | abi::kTellWaits | abi::kRecordLaunches |
                                        abi::kTimeCollectives;

void nap(abi::Word32& closed, std::uint32_t seen) {
  const timespec limit{0, kNapNs};
  // Not FUTEX_PRIVATE: the monitor wakes it through its own mapping of the page.
  ::syscall(SYS_futex, &closed, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

// The page may have been replaced while we slept, so this count may not be the one that we raised.
// It never goes below zero, and is right again after one nap.
void count_out(abi::Word32& threads) {
  std::uint32_t now = threads.load(std::memory_order_relaxed);
  while (now != 0 && !threads.compare_exchange_weak(now, now - 1, std::memory_order_relaxed)) {
  }
}

void open(unsigned lane, std::uint32_t reasons) {
  abi::Gate& gate = page().gates[lane];
  if ((gate.closed.fetch_and(~reasons, std::memory_order_acq_rel) & ~reasons) != 0) return;
  // Launches look at `attention` alone, so it goes last.
  page().lanes[lane].attention.fetch_and(~kMonitorsBits, std::memory_order_relaxed);
  wake_held(gate.closed);
}

bool is_paused(const abi::Gate& gate) {
  return (gate.closed.load(std::memory_order_acquire) & abi::kClosedByPause) != 0 ||
         gate.paused.load(std::memory_order_relaxed) != 0;
}

// Launches look at `attention` alone, so it goes first.
void close_for_pause(abi::Page& on, unsigned lane) {
  on.lanes[lane].attention.fetch_or(abi::kGateArmed, std::memory_order_relaxed);
  on.gates[lane].closed.fetch_or(abi::kClosedByPause, std::memory_order_release);
}

// Whether memory of any GPU leaves. Accepted work has to end then, before any gate.
bool any_leaves() {
  for (const abi::Residency& each : page().residencies) {
    if (each.phase.load(std::memory_order_acquire) == abi::kLeaving) return true;
  }
  return false;
}

}  // namespace

__thread unsigned t_not_held = 0;

bool Ear::silent() {
  if (process().joined.load(std::memory_order_acquire) == 0) return true;
  const std::uint64_t beat = page().head.heartbeat.load(std::memory_order_relaxed);
  const std::uint64_t now = monotonic_ns();
  if (beat != beat_ || heard_ns_ == 0) {
    beat_ = beat;
    heard_ns_ = now;
  }
  return now - heard_ns_ > std::uint64_t{kSilentMs} * 1'000'000;
}

void nap_on(abi::Word32& word, std::uint32_t seen, abi::Word32& sleepers, Ear& ear) {
  sleepers.fetch_add(1, std::memory_order_relaxed);
  {
    const Outside outside;
    nap(word, seen);
  }
  count_out(sleepers);
  if (ear.silent()) open_without_monitor();
}

void hold(unsigned lane) {
  if (t_not_held != 0) return;
  abi::Gate& gate = page().gates[lane];
  Ear ear;
  for (;;) {
    const std::uint32_t closed = gate.closed.load(std::memory_order_acquire);
    if (closed == 0) return;
    nap_on(gate.closed, closed, gate.held_threads, ear);
    bursts::drop(lane);
  }
}

void wake_held(abi::Word32& closed) {
  ::syscall(SYS_futex, &closed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void open_without_monitor() {
  const bool leaves = any_leaves();
  bool stands = false;
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    abi::Gate& gate = page().gates[lane];
    const bool closed = gate.closed.load(std::memory_order_relaxed) != 0;
    const bool paused = gate.paused.load(std::memory_order_relaxed) != 0;
    const std::uint32_t attention = page().lanes[lane].attention.load(std::memory_order_relaxed);
    if (!closed && !paused && (attention & kMonitorsBits) == 0) continue;
    const std::uint64_t until = gate.pause_until_ns.load(std::memory_order_relaxed);
    const bool over = until != 0 && monotonic_ns() >= until;
    if (over) gate.paused.store(0, std::memory_order_relaxed);
    if (paused && !over && !leaves) close_for_pause(page(), lane);
    stands = stands || (!over && is_paused(gate));
    open(lane, over || (paused && leaves) ? ~0u : ~abi::kClosedByPause);
  }
  // Last: a rank that went on before its gate is closed would wait for the others on its GPU. Those
  // of a paused job stay at their cut.
  if (!stands && page().process.cut.exchange(0, std::memory_order_acq_rel) != 0)
    wake_held(page().process.cut);
}

void follow_head() {
  if (is_served(abi::SectionId::kGates)) return;
  const std::uint64_t until = page().head.pause_until_ns.load(std::memory_order_relaxed);
  const bool over = until != 0 && monotonic_ns() >= until;
  const bool paused = page().head.paused.load(std::memory_order_relaxed) != 0 && !over;
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    if (page().lanes[lane].in_use.load(std::memory_order_acquire) == 0) continue;
    abi::Gate& gate = page().gates[lane];
    gate.pause_until_ns.store(until, std::memory_order_relaxed);
    if (paused) {
      close_for_pause(page(), lane);
    } else if (gate.closed.load(std::memory_order_relaxed) != 0) {
      open(lane, ~0u);
    }
  }
}

Paused paused() {
  for (const abi::Gate& gate : page().gates) {
    if (is_paused(gate)) return {true, gate.pause_until_ns.load(std::memory_order_relaxed)};
  }
  return {};
}

void carry_pause(const abi::Page& from, abi::Page& to) {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    const abi::Gate& old = from.gates[lane];
    if ((old.closed.load(std::memory_order_acquire) & abi::kClosedByPause) == 0) continue;
    to.gates[lane].pause_until_ns.store(old.pause_until_ns.load(std::memory_order_relaxed),
                                        std::memory_order_relaxed);
    // `paused` is the fresh page's monitor's: one that doesn't know it would never clear it.
    close_for_pause(to, lane);
  }
}

}  // namespace switchyard::shim
