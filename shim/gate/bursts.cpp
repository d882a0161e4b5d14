#include "shim/gate/bursts.h"

#include <algorithm>

#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/reset.h"

namespace switchyard::shim::bursts {
namespace {

// A copy that took longer has waited for the GPU: to enqueue one takes a few microseconds.
constexpr std::uint64_t kCopyWaitsNs = 20'000;

// A thread that launches and does nothing for so long does not work meanwhile.
constexpr std::uint64_t kLongestBurstNs = 500'000'000;

std::atomic<std::uint64_t> g_began_ns[abi::kMaxGpus];  // of the burst; 0: nothing was launched

void add(abi::Word64& sum, std::uint64_t more) { sum.fetch_add(more, std::memory_order_relaxed); }

}  // namespace

void begin(abi::Lane& lane) {
  lane.attention.fetch_and(~abi::kBurstBegins, std::memory_order_relaxed);
  g_began_ns[lane_index(&lane)].store(monotonic_ns(), std::memory_order_relaxed);
}

void drop(unsigned lane) { g_began_ns[lane].store(0, std::memory_order_relaxed); }

void wait_ended(abi::Lane& lane, std::uint64_t began_ns) {
  const int index = lane_index(&lane);
  abi::Gate& gate = page().gates[index];
  const std::uint64_t now = monotonic_ns();
  const std::uint64_t first = g_began_ns[index].exchange(0, std::memory_order_relaxed);
  const std::uint64_t waited = now - std::min(began_ns, now);
  const std::uint64_t burst = std::max(waited, now - std::min(first, now));
  const bool counts = first != 0 && burst - waited < kLongestBurstNs;
  // Bursts first, and the monitor reads them last: it never sees more waiting than burst.
  add(gate.burst_ns, counts ? burst : waited);
  add(gate.waited_ns, waited);
  if (counts) gate.bursts.fetch_add(1, std::memory_order_relaxed);
  lane.attention.fetch_or(abi::kBurstBegins, std::memory_order_relaxed);
}

void copy_ended(abi::Lane& lane, std::uint64_t began_ns) {
  if (monotonic_ns() - began_ns >= kCopyWaitsNs) wait_ended(lane, began_ns);
}

namespace {
void forget() {
  for (auto& began : g_began_ns) began.store(0);
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::bursts
