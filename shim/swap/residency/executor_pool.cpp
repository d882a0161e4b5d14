// The host pool between moves: it grows so that the next finds room, and shrinks for others.
#include <algorithm>

#include "shim/clock.h"
#include "shim/gate/hold.h"
#include "shim/log.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/residency/pool_shrinking.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::residency {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
// Chunks of a size that doesn't divide a slab leave some of it: a sixteenth where all are of 20
// MiB.
constexpr std::uint64_t kWasted = 16;
// Giving host memory back holds work up: for so long at a time, and for a twentieth of the time at
// most. Where work is held anyway, it must not keep what comes waiting.
constexpr std::uint64_t kShrinkNs = 100 * kMs;
constexpr std::uint64_t kShrinkAwayNs = 20 * kMs;
constexpr std::uint64_t kShrinkPart = 20;
constexpr std::uint64_t kShrinkRestNs = 10'000 * kMs;  // after nothing could be given back

}  // namespace

bool Executor::grow_pool() {
  const std::uint64_t most = residency_page::host_limit(lane_);
  const std::uint64_t pinned = pinned_pool::pinned_bytes(lane_);
  const std::uint64_t total = residency_page::total(lane_);
  if (pinned >= total + total / kWasted + spare_ || pinned >= most || !context_.enter(lane_) ||
      !pinned_pool::grow(lane_, most)) {
    return false;
  }
  residency_page::publish(lane_);
  return true;
}

void Executor::unpin_pool() const {
  const std::uint64_t begun = monotonic_ns();
  pinned_pool::unpin(lane_);
  log_line(Level::kInfo, "host memory of GPU %u: %llu MiB unpinned in %llu us", lane_,
           static_cast<unsigned long long>(pinned_pool::pinned_bytes(lane_) >> 20),
           static_cast<unsigned long long>((monotonic_ns() - begun) / 1000));
}

bool Executor::pin_pool() {
  return pinned_pool::any_unpinned(lane_) && context_.enter(lane_) && pinned_pool::pin_next(lane_);
}

bool Executor::shrink_pool() {
  const std::uint64_t most = residency_page::host_limit(lane_);
  const std::uint64_t begun = monotonic_ns();
  if (pinned_pool::pinned_bytes(lane_) <= most || begun < shrink_ns_) return false;
  const bool away = admission::is_quiesced(lane_);
  if (!away && (!admission::is_open(lane_) || paused().paused)) return false;
  if (!can_shrink(lane_) || !context_.enter(lane_)) return false;
  unsigned given = 0;
  if (away || hold() == CUDA_SUCCESS) {
    given = shrink(lane_, most, monotonic_ns() + (away ? kShrinkAwayNs : kShrinkNs));
  }
  if (!away) admission::open(lane_);
  residency_page::publish(lane_);
  const std::uint64_t now = monotonic_ns();
  if (!away) shrink_ns_ = now + kShrinkPart * (now - begun);
  if (given == 0) shrink_ns_ = std::max(shrink_ns_, now + kShrinkRestNs);
  return given != 0;
}

}  // namespace switchyard::shim::swap::residency
