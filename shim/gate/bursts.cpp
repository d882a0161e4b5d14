#include "shim/gate/bursts.h"

#include <algorithm>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/reset.h"

namespace switchyard::shim::bursts {
namespace {

// A copy that took longer has waited for the GPU. To enqueue one takes a few microseconds, or up to
// 30 with pageable memory and a slow CPU. At 20 the bursts of one server had now one, now two
// numbers of launches.
constexpr std::uint64_t kCopyWaitsNs = 60'000;

// A thread that launches and does nothing for so long does not work meanwhile.
constexpr std::uint64_t kLongestBurstNs = 500'000'000;

struct State {
  std::atomic<std::uint64_t> began_ns[abi::kMaxGpus] = {};  // of the burst; 0: nothing was launched
  std::atomic<std::uint32_t> rang_for[abi::kMaxGpus] = {};  // ring_after, since the last wait
};
constinit State g_state;

bool told(const abi::Lane& lane) {
  return (lane.attention.load(std::memory_order_relaxed) & abi::kTellWaits) != 0;
}

// The low half: differences are right all the same.
std::uint32_t launches(const abi::Lane& lane) {
  return static_cast<std::uint32_t>(lane.launches.load(std::memory_order_relaxed) +
                                    lane.graph_launches.load(std::memory_order_relaxed));
}

void add(abi::Word64& sum, std::uint64_t more) { sum.fetch_add(more, std::memory_order_relaxed); }

}  // namespace

void begin(abi::Lane& lane) {
  lane.attention.fetch_and(~abi::kBurstBegins, std::memory_order_relaxed);
  g_state.began_ns[lane_index(&lane)].store(monotonic_ns(), std::memory_order_relaxed);
}

void ring_if_due(abi::Lane& lane) {
  const int index = lane_index(&lane);
  const abi::Gate& gate = page().gates[index];
  const std::uint32_t after = gate.ring_after.load(std::memory_order_relaxed) & ~abi::kWaitForeseen;
  if (after == 0 || g_state.rang_for[index].load(std::memory_order_relaxed) == after) return;
  if (launches(lane) - gate.launched.load(std::memory_order_relaxed) < after) return;
  g_state.rang_for[index].store(after, std::memory_order_relaxed);
  wake_monitor();
}

void drop(unsigned lane) { g_state.began_ns[lane].store(0, std::memory_order_relaxed); }

void wait_begins(abi::Lane& lane) {
  abi::Gate& gate = page().gates[lane_index(&lane)];
  gate.waiting.store(1, std::memory_order_relaxed);
  const std::uint32_t after = gate.ring_after.load(std::memory_order_relaxed);
  if (told(lane) && (after & abi::kWaitForeseen) == 0) wake_monitor();
}

namespace {

std::uint16_t bounded(std::uint64_t value, std::uint64_t least) {
  return static_cast<std::uint16_t>(std::clamp<std::uint64_t>(value, least, 0xffff));
}

// The monitor reads what a burst was after `bursts`, so all of it comes first.
void note_burst(abi::Lane& lane, abi::Gate& gate, bool counts, std::uint64_t cpu_ns,
                std::uint64_t waited_ns) {
  const std::uint32_t now = launches(lane);
  const std::uint32_t burst = now - gate.launched.load(std::memory_order_relaxed);
  gate.launched.store(now, std::memory_order_relaxed);
  gate.waiting.store(0, std::memory_order_relaxed);
  if (!counts) return;
  const std::uint32_t at = (gate.bursts.load(std::memory_order_relaxed) + 1) % abi::kCountedBursts;
  gate.counts[at].store(bounded(burst, 1), std::memory_order_relaxed);
  lane.burst_cpu_us[at].store(bounded(cpu_ns / 1000, 1), std::memory_order_relaxed);
  lane.burst_waited_us[at].store(bounded(waited_ns / 1000, 0), std::memory_order_relaxed);
  gate.bursts.fetch_add(1, std::memory_order_release);
}

}  // namespace

void wait_ended(abi::Lane& lane, std::uint64_t began_ns) {
  const int index = lane_index(&lane);
  abi::Gate& gate = page().gates[index];
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t first = g_state.began_ns[index].exchange(0, std::memory_order_relaxed);
  const std::uint64_t waited = now - std::min(began_ns, now);
  const std::uint64_t burst = std::max(waited, now - std::min(first, now));
  const bool counts = first != 0 && burst - waited < kLongestBurstNs;
  // Bursts first, and the monitor reads them last: it never sees more waiting than burst.
  add(gate.burst_ns, counts ? burst : waited);
  add(gate.waited_ns, waited);
  note_burst(lane, gate, counts, burst - waited, waited);
  g_state.rang_for[index].store(0, std::memory_order_relaxed);
  lane.attention.fetch_or(abi::kBurstBegins, std::memory_order_relaxed);
  if (told(lane)) wake_monitor();
}

void copy_ended(abi::Lane& lane, std::uint64_t began_ns) {
  if (monotonic_ns() - began_ns >= kCopyWaitsNs) wait_ended(lane, began_ns);
}

SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::bursts
