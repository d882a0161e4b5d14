#include "shim/swap/mover.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/clock.h"
#include "shim/gate/errors.h"
#include "shim/gate/hold.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/relaxed.h"
#include "shim/swap/admission.h"
#include "shim/swap/bodies.h"
#include "shim/swap/current.h"
#include "shim/swap/digest.h"
#include "shim/swap/drain.h"
#include "shim/swap/handover.h"
#include "shim/swap/host_pool.h"
#include "shim/swap/pipeline.h"
#include "shim/swap/pooled.h"
#include "shim/swap/ranges.h"
#include "shim/swap/shrink.h"
#include "shim/swap/wanted.h"
#include "shim/swap/whole.h"
#include "shim/swap/words.h"
#include "shim/thread.h"

namespace switchyard::shim::swap::mover {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kLookNs = 200 * kMs;
constexpr std::uint64_t kSoonNs = 5 * kMs;
constexpr std::uint64_t kPatienceNs = 10 * kMs;
// While another's memory is about to be handed over.
constexpr std::uint64_t kOfferedNs = kMs / 2;
// After a move that failed.
constexpr std::uint64_t kFirstRestNs = 20 * kMs;
constexpr std::uint64_t kLastRestNs = 2'000 * kMs;
// Chunks of a size that doesn't divide a slab leave some of it: a sixteenth where all are of 20
// MiB.
constexpr std::uint64_t kWasted = 16;
// Giving host memory back holds work up: for so long at a time, and for a twentieth of the time at
// most. Where work is held anyway, it must not keep what comes waiting.
constexpr std::uint64_t kShrinkNs = 100 * kMs;
constexpr std::uint64_t kShrinkAwayNs = 20 * kMs;
constexpr std::uint64_t kShrinkPart = 20;
constexpr std::uint64_t kShrinkRestNs = 10'000 * kMs;  // after nothing could be given back
// The driver compiles the digest's kernel on it: as large as a program's first thread's.
constexpr std::size_t kStackBytes = 8u << 20;

std::atomic<std::int32_t> g_thread_of{0};  // the process that has a mover
std::atomic<std::uint32_t> g_pokes{0};     // a futex word

void sleep_until_poked(std::uint32_t seen, std::uint64_t ns) {
  const timespec limit{static_cast<time_t>(ns / (1000 * kMs)),
                       static_cast<long>(ns % (1000 * kMs))};
  ::syscall(SYS_futex, &g_pokes, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
}

// Held by the mover while it uses a context.
pthread_mutex_t g_at_work = PTHREAD_MUTEX_INITIALIZER;

bool may_always(unsigned, std::uint64_t, bool) { return true; }

// As another's chunks leave the limit rises, several times in a millisecond.
bool may_come(unsigned lane, std::uint64_t bytes, bool waits) {
  const timespec nap{0, 50'000};
  for (const std::uint64_t end = monotonic_ns() + (waits ? kPatienceNs : 0);;) {
    const std::uint64_t limit = words::told(lane).limit;
    const std::uint64_t there = words::resident(lane);
    if (there <= limit && bytes <= limit - there) return true;
    if (monotonic_ns() >= end) return false;
    ::nanosleep(&nap, nullptr);
  }
}

// Memory is away, and no context is left to bring it back by.
std::atomic<bool> g_stranded{false};

std::uint64_t kept_now() {
  const Held held;
  return kept_bytes();
}

// What a move takes to the host: what is there but only cached is given back instead.
std::uint64_t wanted_now(unsigned lane) {
  const Held held;
  return words::resident(lane) - cache::resident_on(lane);
}

std::uint64_t bytes_of(Handle number) {
  const Held held;
  const Body* body = bodies::find(number);
  return body != nullptr ? body->bytes : 0;
}

// One lane's mover: what it remembers between two looks.
struct Mover {
  unsigned lane = 0;
  Current current;
  std::uint64_t rest_ns = kFirstRestNs;
  std::uint64_t next_ns = 0;  // not before
  bool failing = false;
  std::uint64_t shrink_ns = 0;  // not before
  std::uint64_t spare = 0;  // host memory beyond the sum of all chunks, because pieces don't fit

  void rest(std::uint32_t phase, std::uint32_t error, CUresult result) {
    page().residencies[lane].swap_result.store(result, std::memory_order_relaxed);
    if (!failing) {
      log_line(Level::kWarn, "swap on GPU %u came to no end (error %u, driver %d): trying again",
               lane, error, static_cast<int>(result));
    }
    failing = true;
    next_ns = monotonic_ns() + rest_ns;
    rest_ns = std::min(2 * rest_ns, kLastRestNs);
    words::say(lane, phase, error);
  }

  // `error`: why it had to.
  void come_back(std::uint32_t error = abi::kSwapFine) {
    words::say(lane, abi::kReturning, error);
    Moved moved;
    {
      const Held held;
      // Also where all is counted as there: some of that may lack its contents.
      if (words::total(lane) != 0) moved = move_in(lane, may_always, words::resident_changes);
    }
    words::count_in(lane, moved);
    if (moved.stop != Stop::kNothing) {
      // What ends the context ends its memory: its work shall have its own error.
      if (ends_context(moved.result) || no_context(moved.result)) {
        strand(words::error_of(moved.stop), moved.result);
      } else {
        rest(abi::kReturning, words::error_of(moved.stop), moved.result);
        if (moved.stop == Stop::kNoDeviceRoom && !words::monitored()) make_way();
      }
      return;
    }
    admission::open();
    words::count_end(lane);
    if (error == abi::kSwapFine) succeeded();
    words::say(lane, abi::kResident, error);
  }

  // Two that lack room, each with a part of its memory there, would wait for each other for ever
  // once no monitor puts them in order. One day only one of them goes, and the other has its room.
  void make_way() {
    if (monotonic_ns() / 1000 % 2 == 0) return;
    const Held held;
    if (!find_host_room(words::resident(lane) + spare, kept_bytes())) return;
    words::count_out(lane, move_out(lane, UINT64_MAX, words::resident_changes));
  }

  // Work is held, and what the limit permits comes already.
  void come_in_part() {
    Moved moved;
    {
      const Held held;
      moved = move_in(lane, may_come, words::resident_changes);
    }
    words::count_in(lane, moved);
    if (moved.stop != Stop::kNothing) rest(abi::kAbsent, words::error_of(moved.stop), moved.result);
  }

  // Nothing can bring it back now, and nothing can work on it: whoever is held shall have the
  // driver's own error instead.
  void strand(std::uint32_t error, CUresult result) {
    g_stranded.store(true);
    admission::open();
    rest(abi::kResident, error, result);
  }

  void succeeded() {
    failing = false;
    rest_ns = kFirstRestNs;
  }

  // Not moved after all: work goes on.
  void stay(std::uint32_t error, CUresult result) {
    admission::open();
    rest(abi::kResident, error, result);
  }

  // `kept`: what the pipeline gives up where it finds no room.
  bool find_host_room(std::uint64_t bytes, std::uint64_t kept) {
    // The limit may fall meanwhile.
    while (host_pool::free_bytes() + kept < bytes) {
      if (!host_pool::grow(words::host_limit(lane))) return false;
    }
    return true;
  }

  // Work is held and done. kLate: not in time.
  static constexpr CUresult kLate = CUDA_ERROR_NOT_READY;
  CUresult hold() { return shut() ? finish_work() : kLate; }
  CUresult finish_work() {
    const CUresult result = drain(lane);
    if (result != CUDA_SUCCESS) return result;
    return admission::begin_moving() ? CUDA_SUCCESS : kLate;
  }

  // Nobody new is admitted.
  bool held_back() {
    if (admission::is_moving()) return true;  // it is away in part already
    words::say(lane, abi::kLeaving, abi::kSwapFine);
    if (shut()) return true;
    stay(abi::kSwapBusy, CUDA_SUCCESS);
    return false;
  }

  // pre: held_back().
  bool quiet() {
    if (admission::is_moving()) return true;
    const CUresult held = finish_work();
    if (held == kLate) {
      stay(abi::kSwapBusy, CUDA_SUCCESS);
    } else if (held != CUDA_SUCCESS) {
      stay(abi::kSwapFailed, held);
    }
    return held == CUDA_SUCCESS;
  }

  // Before anything is wanted of work that goes on.
  CUresult ready_for_whole(std::uint64_t bytes) {
    if (!current.enter(lane)) return CUDA_ERROR_INVALID_CONTEXT;
    return find_host_room(bytes + spare, kept_now()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }

  // As a thread wants it (wanted.h).
  void make_whole() {
    if (!wanted::take()) return;
    CUresult result = ready_for_whole(bytes_of(wanted::number()));
    if (result == CUDA_SUCCESS && wanted::is_taken()) result = hold();
    const bool begun = wanted::begin();
    bool away = false;
    if (begun && result == CUDA_SUCCESS) {
      const Held held;
      Body* body = bodies::find(wanted::number());
      result =
          body != nullptr ? whole::make(*body, words::resident_changes) : CUDA_ERROR_INVALID_VALUE;
      away = anything_away();
    }
    if (!away) admission::open();  // else with what comes back
    words::publish(lane);
    if (begun) wanted::answer(result);
  }

  void leave(std::uint64_t limit) {
    page().residencies[lane].error.store(abi::kSwapFine, std::memory_order_relaxed);
    const std::uint64_t there_now = wanted_now(lane);
    const bool works = admission::is_open();  // else a part is away, and the rest may stay
    if (there_now > limit && !find_host_room(there_now - limit + spare, kept_now())) {
      rest(works ? abi::kResident : abi::kAbsent, abi::kSwapNoHostRoom, CUDA_SUCCESS);
      return;
    }
    if (!held_back()) return;
    // Exported while the accepted work ends.
    const std::uint64_t all_now = words::resident(lane);
    handover::Offer offer(lane, all_now - std::min(all_now, limit), words::gives(lane));
    if (!quiet()) return;
    offer.begin();
    // Draining may have taken long.
    const words::Told now = words::told(lane);
    if (!now.limited) {
      offer.end();
      return come_back();
    }
    limit = now.limit;
    Moved moved;
    {
      const Held held;
      pooled::drop_cached(lane);
      const std::uint64_t there = words::resident(lane);
      if (there > limit) moved = move_out(lane, there - limit, words::resident_changes);
    }
    offer.end();
    words::count_out(lane, moved);
    if (moved.stop != Stop::kNothing) {
      if (moved.stop == Stop::kNoHostRoom) spare += host_pool::kSlab;
      rest(works ? abi::kReturning : abi::kAbsent, words::error_of(moved.stop), moved.result);
      if (works) come_back(words::error_of(moved.stop));
      return;
    }
    succeeded();
    words::count_end(lane);
    if (works) words::count_time_out(lane);
    words::say(lane, abi::kAbsent, abi::kSwapFine);
  }

  // The next move shall find its room.
  bool grow_pool() {
    const std::uint64_t most = words::host_limit(lane);
    const std::uint64_t pinned = host_pool::pinned_bytes();
    const std::uint64_t total = words::total(lane);
    if (pinned >= total + total / kWasted + spare || pinned >= most || !current.enter(lane) ||
        !host_pool::grow(most)) {
      return false;
    }
    words::publish(lane);
    return true;
  }

  // Others need what is pinned here beyond the limit. As the driver waits for all work of the
  // process before it lets go of host memory, work is held as for a move.
  bool shrink_pool() {
    const std::uint64_t most = words::host_limit(lane);
    const std::uint64_t begun = monotonic_ns();
    if (host_pool::pinned_bytes() <= most || begun < shrink_ns) return false;
    const bool away = admission::is_moving();
    if (!away && (!admission::is_open() || paused().paused)) return false;
    if (!can_shrink() || !current.enter(lane)) return false;
    unsigned given = 0;
    if (away || hold() == CUDA_SUCCESS) {
      given = shrink(most, monotonic_ns() + (away ? kShrinkAwayNs : kShrinkNs));
    }
    if (!away) admission::open();
    words::publish(lane);
    const std::uint64_t now = monotonic_ns();
    if (!away) shrink_ns = now + kShrinkPart * (now - begun);
    if (given == 0) shrink_ns = std::max(shrink_ns, now + kShrinkRestNs);
    return given != 0;
  }

  // How long until it should look again.
  std::uint64_t look() {
    const std::uint64_t total = words::total(lane);
    const std::uint64_t resident = words::resident(lane);
    const words::Told now = words::told(lane);
    const bool away = !admission::is_open();
    const bool leaves = now.limited && (!away || resident > now.limit);
    const std::uint64_t takes = words::takes(lane);
    const bool wants = takes != 0 && away && !leaves && total != 0 && current.enter(lane);
    const bool offered = handover::follow(takes, wants);
    if (!away && wanted::is_asked() && !paused().paused) {
      make_whole();
      return 0;
    }
    if (total == 0 && !away) return shrink_pool() ? 0 : kLookNs;
    if (monotonic_ns() < next_ns) return kSoonNs;
    const bool comes = away && (resident < std::min(now.limit, total) || handover::begun());
    const bool opens = away && (!now.limited || total == 0);
    if (!leaves && !comes && !opens) {
      const auto& phase = page().residencies[lane].phase;
      if (away && phase.load(std::memory_order_relaxed) != abi::kAbsent) {
        words::say(lane, abi::kAbsent, abi::kSwapFine);
      }
      if (offered) return kOfferedNs;
      // To pin a slab takes longer than to come back: while it is away its turn is near.
      return shrink_pool() || (!away && grow_pool()) ? 0 : kLookNs;
    }
    if (total != 0 && !current.enter(lane)) {
      if (opens) {
        strand(abi::kSwapFailed, CUDA_ERROR_INVALID_CONTEXT);
      } else {
        rest(away ? abi::kAbsent : abi::kResident, abi::kSwapFailed, CUDA_ERROR_INVALID_CONTEXT);
      }
      return kLookNs;
    }
    if (leaves) {
      leave(now.limit);
    } else if (opens) {
      come_back();
    } else {
      come_in_part();
      return offered ? kOfferedNs : kLookNs;  // the next part at the next word
    }
    return kSoonNs;
  }
};

void* run(void*) {
  // What another thread captures must not notice us.
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  Mover mover;
  for (;;) {
    const std::uint32_t seen = g_pokes.load(std::memory_order_acquire);
    std::uint64_t wait_ns = 0;
    {
      const Locked at_work(g_at_work);
      wait_ns = mover.look();
      mover.current.leave();
    }
    if (wait_ns != 0) sleep_until_poked(seen, wait_ns);
  }
}

}  // namespace

void start() {
  // A forked child has the parent's word but not its thread.
  const auto self = static_cast<std::int32_t>(::getpid());
  std::int32_t owner = g_thread_of.load(std::memory_order_acquire);
  if (owner == self || !g_thread_of.compare_exchange_strong(owner, self)) return;
  swap_digest();  // the environment is read on a thread of the application's
  if (!start_thread(run, kStackBytes)) {
    log_line(Level::kError, "no thread to move memory with: it stays on the device");
  }
}

void poke() {
  g_pokes.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &g_pokes, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

Standstill::Standstill() : locked_(on()) {
  if (locked_) ::pthread_mutex_lock(&g_at_work);
}

Standstill::~Standstill() {
  if (locked_) ::pthread_mutex_unlock(&g_at_work);
}

void context_made() {
  if (!on()) return;
  // The mover may be about to find that there is none: it sees this one, or we see that.
  const Locked at_work(g_at_work);
  if (!g_stranded.exchange(false)) return;
  {
    const Held held;
    if (anything_away()) admission::shut();
  }
  poke();
}

}  // namespace switchyard::shim::swap::mover

namespace switchyard::shim::swap {

void clear() {
  words::clear();
  mover::g_stranded.store(false);
  mover::g_at_work = PTHREAD_MUTEX_INITIALIZER;
  wanted::clear();
  handover::clear();
  admission::clear();
  bodies::clear();
  pooled::clear();
  clear_ranges();
  clear_digests();
  host_pool::clear();
}

}  // namespace switchyard::shim::swap
