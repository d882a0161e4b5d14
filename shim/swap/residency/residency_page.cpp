#include "shim/swap/residency/residency_page.h"

#include <pthread.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "shim/checkpoint/steps.h"
#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/service.h"
#include "shim/client/settings.h"
#include "shim/clock.h"
#include "shim/driver.h"
#include "shim/gate/hold.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/reset.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/parking.h"
#include "shim/swap/memory/peers.h"
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
  std::atomic<std::uint64_t> made_way_until_ns[abi::kMaxGpus] = {};
  std::uint8_t kept_on[abi::kMaxGpus][16] = {};  // the mover's: the GPU on which memory is kept
  pthread_mutex_t publishing = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// The numbers of another monitor mean nothing to this one. pre: `publishing` is held.
void forget_orders() {
  for (Said& said : g_state.said) said.answered = said.heeded = abi::kAnswersNone;
}

// The GPU's memory that is on another one.
void write_parked(unsigned lane, abi::Lane& to) {
  const parking::Parked parked = parking::parked(lane);
  to.parked_lane.store(parked.bytes != 0 ? parked.on + 1 : 0, std::memory_order_relaxed);
  to.parked_bytes.store(parked.bytes, std::memory_order_release);
}

// Where the GPU's memory is.
void write_bytes(unsigned lane, abi::Page& to) {
  abi::Residency& words = to.residencies[lane];
  words.total_bytes.store(g_state.total[lane].load(), std::memory_order_relaxed);
  words.resident_bytes.store(g_state.resident[lane].load(), std::memory_order_relaxed);
  words.host_bytes.store(pinned_pool::pinned_bytes(lane), std::memory_order_relaxed);
  write_parked(lane, to.lanes[lane]);
}

// pre: `publishing` is held.
void write(unsigned lane) {
  const Said& said = g_state.said[lane];
  abi::Residency& words = page().residencies[lane];
  write_bytes(lane, page());
  // The error before the order that it answers, and both before the phase.
  words.error.store(said.error, std::memory_order_relaxed);
  words.answered.store(said.answered, std::memory_order_release);
  words.phase.store(said.phase, std::memory_order_release);
}

bool another_made_way(unsigned lane) {
  const std::uint64_t now = monotonic_ns();
  for (unsigned other = 0; other < lanes(); ++other) {
    if (other != lane && now < g_state.made_way_until_ns[other].load(std::memory_order_relaxed))
      return true;
  }
  return false;
}

// A call that the library does not know could use memory that is away. It then fails, or changes
// another job's memory that is there by now.
bool calls_may_pass_unseen() {
  const int version = driver_version();
  if (version <= kKnownVersion || newer_driver_allowed()) return false;
  static Once said;
  log_once(
      said, Level::kWarn,
      "swap: the driver is of CUDA %d.%d, and the library knows the calls of CUDA %d.%d: memory "
      "stays on the device; see SWITCHYARD_NEWER_DRIVER in the documents",
      version / 1000, version % 1000 / 10, kKnownVersion / 1000, kKnownVersion % 1000 / 10);
  return true;
}

void count(unsigned lane, const Moved& moved, abi::Word64 abi::Memory::*direction) {
  abi::Memory& memory = page().memories[lane];
  page().residencies[lane].moved_bytes.fetch_add(moved.copied, std::memory_order_relaxed);
  (memory.*direction).fetch_add(moved.copied, std::memory_order_relaxed);
  memory.spared_bytes.fetch_add(moved.skipped, std::memory_order_relaxed);
}

// The process made contexts without a monitor, so nobody noted what these may reach.
bool has_begun_unmanaged(unsigned gpus) {
  if (process().swappable.load(std::memory_order_relaxed) != 0) return false;
  const abi::Lane* const lanes = page().lanes;
  return std::any_of(lanes, lanes + gpus, [](const abi::Lane& lane) {
    return lane.contexts.load(std::memory_order_relaxed) != 0;
  });
}

}  // namespace

void choose_swappable(unsigned gpus) {
  if (!card_says_yes(page().card.text, "swappable")) return;
  if (calls_may_pass_unseen()) return;
  // Nobody waits for work on a GPU without a lane, and that may use the memory of the others.
  if (gpus > abi::kMaxGpus || !peers::all_reach(gpus)) return;
  if (has_begun_unmanaged(gpus)) return;
  for (unsigned lane = 0; lane < gpus; ++lane) {
    page().residencies[lane].answered.store(abi::kAnswersNone, std::memory_order_relaxed);
    page().memories[lane].contexts.store(
        checkpoint::has_calls() ? abi::kContextsMayLeave : abi::kContextsNoCalls,
        std::memory_order_relaxed);
    page().lanes[lane].places.store(checkpoint::has_pairs() ? 1 : 0, std::memory_order_relaxed);
    page().lanes[lane].unpinned.store(abi::kAnswersNone, std::memory_order_relaxed);
    page().lanes[lane].precopies.store(1, std::memory_order_relaxed);
  }
  process().swappable.store(gpus, std::memory_order_release);
  for (unsigned lane = 0; lane < gpus; ++lane) {
    page().lanes[lane].attention.fetch_or(abi::kSwappable, std::memory_order_relaxed);
  }
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
  // Without a monitor the service thread closes a paused job's gate once no memory leaves.
  if (!monitored()) service::poke();
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
  if (level != abi::kUnlimited && (monitored() || paused().paused)) {
    return {true, words.limit_bytes.load(std::memory_order_relaxed), level == abi::kContextsToo};
  }
  return !monitored() && another_made_way(lane) ? Told{true, 0} : Told{};
}

void made_way(unsigned lane, std::uint64_t until_ns) {
  g_state.made_way_until_ns[lane].store(until_ns, std::memory_order_relaxed);
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

std::uint32_t unpin_asked(unsigned lane) {
  return monitored() ? page().lanes[lane].unpin.load(std::memory_order_acquire) : 0;
}

bool precopy_asked(unsigned lane) {
  return page().lanes[lane].precopy.load(std::memory_order_relaxed) != 0;
}

bool unpin_answered(unsigned lane, std::uint32_t request) {
  return page().lanes[lane].unpinned.load(std::memory_order_relaxed) == request;
}

// The page may be another monitor's since the request was read: its first one has the same number.
void answer_unpin(unsigned lane, std::uint32_t request) {
  if (unpin_asked(lane) != request) return;
  page().lanes[lane].unpinned.store(request, std::memory_order_release);
  wake_monitor();
}

Park park(unsigned lane) {
  const abi::Residency& words = page().residencies[lane];
  const std::uint32_t on = words.park_lane.load(std::memory_order_acquire);
  if (on == 0 || on > lanes() || !monitored())
    return {.only = monitored() && words.park_only.load(std::memory_order_relaxed) != 0};
  return {on - 1, words.park_bytes.load(std::memory_order_relaxed),
          words.park_only.load(std::memory_order_relaxed) != 0, on - 1 == lane};
}

namespace {

bool may_be_there(unsigned lane, std::uint64_t bytes, bool keeps) {
  const Park allowed = park(lane);
  if (allowed.keeps != keeps) return false;
  const parking::Parked there = parking::parked(lane);
  const bool elsewhere = there.bytes != 0 && there.on != allowed.on;
  if (elsewhere || bytes > allowed.bytes || there.bytes > allowed.bytes - bytes) return false;
  parking::count(lane, allowed.on, bytes);
  publish(lane);
  // The monitor may have lowered it before it could see that.
  if (parking::parked(lane).bytes <= park(lane).bytes) return true;
  parking::uncount(lane, bytes);
  publish(lane);
  return false;
}

}  // namespace

bool may_park(unsigned lane, std::uint64_t bytes) { return may_be_there(lane, bytes, false); }

bool may_keep(unsigned lane, std::uint64_t bytes) {
  if (!may_be_there(lane, bytes, true)) return false;
  ::memcpy(g_state.kept_on[lane], page().lanes[lane].uuid, sizeof(g_state.kept_on[lane]));
  return true;
}

void follow_kept(unsigned lane) {
  if (!parking::parked(lane).kept) return;
  for (unsigned on = 0; on < lanes(); ++on) {
    if (::memcmp(page().lanes[on].uuid, g_state.kept_on[lane], sizeof(g_state.kept_on[lane])) == 0)
      parking::is_on(lane, on);
  }
  publish(lane);
}

void parked_left(unsigned lane) {
  publish(lane);
  wake_monitor();
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

namespace {

// pre: `publishing` is held.
void carry_over(unsigned lane, abi::Page& fresh) {
  const abi::Residency& from = page().residencies[lane];
  abi::Residency& to = fresh.residencies[lane];
  to.phase.store(g_state.said[lane].phase, std::memory_order_relaxed);
  to.error.store(g_state.said[lane].error, std::memory_order_relaxed);
  copy_word(to.swap_result, from.swap_result);
  copy_word(to.moved_bytes, from.moved_bytes);
  copy_word(to.moves, from.moves);
  copy_word(to.taken_bytes, from.taken_bytes);
  const abi::Memory& memory = page().memories[lane];
  copy_word(fresh.memories[lane].moved_out_bytes, memory.moved_out_bytes);
  copy_word(fresh.memories[lane].moved_in_bytes, memory.moved_in_bytes);
  copy_word(fresh.memories[lane].spared_bytes, memory.spared_bytes);
  copy_word(fresh.memories[lane].times_out, memory.times_out);
  copy_word(fresh.memories[lane].contexts, memory.contexts);
  // Until the new monitor has made up its mind, what a person released stays away. Other limits may
  // have been lifted by themselves meanwhile.
  if (paused().paused) {
    copy_word(to.limit_bytes, from.limit_bytes);
    copy_word(to.limited, from.limited);
  }
  copy_word(to.host_limit_bytes, from.host_limit_bytes);
  copy_word(to.park_bytes, from.park_bytes);
  copy_word(to.park_lane, from.park_lane);
  copy_word(to.park_only, from.park_only);
  write_bytes(lane, fresh);
  // Last: by it the monitor knows that all the words before are there.
  to.answered.store(abi::kAnswersNone, std::memory_order_release);
  fresh.lanes[lane].unpinned.store(abi::kAnswersNone, std::memory_order_relaxed);
  fresh.lanes[lane].precopies.store(1, std::memory_order_relaxed);
  fresh.lanes[lane].attention.fetch_or(abi::kSwappable, std::memory_order_relaxed);
}

}  // namespace

void carry_over(abi::Page& fresh) {
  if (!on()) return;
  const Locked locked(g_state.publishing);
  forget_orders();
  for (unsigned lane = 0; lane < lanes(); ++lane) carry_over(lane, fresh);
}

void moved_to_fresh_page() {
  if (!on()) return;
  const Locked locked(g_state.publishing);
  forget_orders();
  for (unsigned lane = 0; lane < lanes(); ++lane) write(lane);
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
