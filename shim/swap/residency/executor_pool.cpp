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
// A part of unpinning, or of what is copied before, takes as long as its drain did, within these: a
// slab takes 4 ms.
constexpr std::uint64_t kUnpinNs = 20 * kMs;
constexpr std::uint64_t kLongestUnpinNs = 100 * kMs;
constexpr std::uint64_t kPrecopied = 512ull << 20;  // between two looks at the clock: 10 ms

unsigned long long us(std::uint64_t ns) { return ns / 1000; }
unsigned long long mib(std::uint64_t bytes) { return bytes >> 20; }

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

std::uint64_t Executor::tend_pool(const MoverStep& step) {
  if (shrink_pool()) return 0;
  const std::uint32_t request = residency_page::unpin_asked(lane_);
  // The next monitor begins with the same number.
  if (request == 0) unpinning_ = {};
  if (admits(now_.state) && request != 0) return unpin_beside_work(request, step.look_in_ns);
  // To pin a slab takes longer than to come back: while it is away its turn is near.
  const bool may_pin = step.action == Action::kTendPool;
  const std::uint64_t begun = monotonic_ns();
  if (!may_pin || !(pin_pool() || grow_pool())) return step.look_in_ns;
  // The driver keeps launches waiting while it pins. They have as long before the next slab.
  return monotonic_ns() - begun;
}

void Executor::unpin_pool() {
  const std::uint64_t begun = monotonic_ns();
  const std::uint64_t bytes = pinned_pool::unpin_all(lane_);
  log_line(Level::kInfo, "host memory of GPU %u: %llu MiB of %llu unpinned while held, in %llu us",
           lane_, mib(bytes), mib(pinned_pool::pinned_bytes(lane_)), us(monotonic_ns() - begun));
  // Nobody is held for the rest of it once the job works again.
  const std::uint32_t request = residency_page::unpin_asked(lane_);
  if (request == 0 || residency_page::unpin_answered(lane_, request)) return;
  begin_unpinning(request);
  end_unpinning("is held");
}

void Executor::begin_unpinning(std::uint32_t request) {
  if (unpinning_.request == request) return;
  unpinning_ = {.request = request, .begun_ns = monotonic_ns()};
  if (residency_page::precopy_asked(lane_)) unpinning_.below = unpinning_.unsure = UINT64_MAX;
  none_is_needed(lane_);
}

// Work writes on what has been copied. The move finds that by the digests.
void Executor::precopy_until(std::uint64_t end_ns) {
  Moved done;
  {
    const ChunksLock held;
    while (unpinning_.below != 0 && monotonic_ns() < end_ns) {
      done.copied += precopy(lane_, unpinning_.below, kPrecopied).copied;
    }
  }
  residency_page::count_out(lane_, done);
  unpinning_.copied += done.copied;
}

// Chunks that have changed since they were copied will be copied in the move, to memory that is
// pinned.
Unpinned Executor::prepare_part(std::uint64_t end_ns) {
  if (unpinning_.below != 0) {
    precopy_until(end_ns);
    return {};
  }
  while (unpinning_.unsure != 0 && monotonic_ns() < end_ns) find_needed(lane_, unpinning_.unsure);
  return unpinning_.unsure != 0 ? Unpinned{} : unpin_spare(lane_, end_ns);
}

// The driver waits for all work of the process, without a limit, before it unpins. So work is held
// and drained first, which has one, for a part at a time. Work has as long before the next part.
std::uint64_t Executor::unpin_beside_work(std::uint32_t request, std::uint64_t look_in_ns) {
  if (residency_page::unpin_answered(lane_, request)) return look_in_ns;
  begin_unpinning(request);
  const std::uint64_t begun = monotonic_ns();
  if (begun < unpinning_.not_before_ns) return unpinning_.not_before_ns - begun;
  // Room for all copies is found before work is held for them.
  if (unpinning_.below != 0 && grow_pool()) return monotonic_ns() - begun;
  // It makes no steps that this could spare, and its accepted work may stand before a gate.
  if (!admission::is_open(lane_) || paused().paused || !context_.enter(lane_)) {
    end_unpinning("is held");
    return look_in_ns;
  }
  const bool drained = hold() == CUDA_SUCCESS;
  const std::uint64_t held = monotonic_ns();
  Unpinned part{.all = true};
  if (drained) {
    const std::uint64_t most = std::clamp(held - begun, kUnpinNs, kLongestUnpinNs);
    part = prepare_part(held + most);
  }
  admission::open(lane_);
  const std::uint64_t now = monotonic_ns();
  unpinning_.bytes += part.bytes;
  unpinning_.held_ns += now - held;
  ++unpinning_.parts;
  unpinning_.not_before_ns = now + std::max(now - held, kMs);
  if (part.all) end_unpinning(drained ? "is done" : "does not drain");
  return part.all ? look_in_ns : unpinning_.not_before_ns - now;
}

void Executor::end_unpinning(const char* how) {
  residency_page::answer_unpin(lane_, unpinning_.request);
  log_line(Level::kInfo,
           "host memory of GPU %u: %llu MiB copied to it, %llu MiB of %llu unpinned beside work in "
           "%llu us, of which %llu in %u parts without work; work %s",
           lane_, mib(unpinning_.copied), mib(unpinning_.bytes),
           mib(pinned_pool::pinned_bytes(lane_)), us(monotonic_ns() - unpinning_.begun_ns),
           us(unpinning_.held_ns), unpinning_.parts, how);
  unpinning_ = {};  // another monitor may begin with the same number
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
