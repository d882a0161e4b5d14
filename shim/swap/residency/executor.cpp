#include "shim/swap/residency/executor.h"

#include <assert.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "shim/checkpoint/checkpoint.h"
#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/clock.h"
#include "shim/gate/errors.h"
#include "shim/gate/hold.h"
#include "shim/inside.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/memory/parking.h"
#include "shim/swap/memory/peers.h"
#include "shim/swap/memory/pool_cache.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/mover.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/swap/transfer/digest.h"
#include "shim/swap/transfer/handover.h"
#include "shim/thread.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::residency {
namespace {

// After the driver has given no memory on another GPU all goes to the host for so long.
constexpr std::uint64_t kParkRestNs = 10'000'000'000;

// Of one GPU.
struct Mover {
  Executor executor;
  pthread_mutex_t at_work = PTHREAD_MUTEX_INITIALIZER;  // held while it uses a context
  std::atomic<std::int32_t> thread_of{0};               // the process that has that thread
  std::atomic<std::uint32_t> context_made{0};           // 1: the executor is still to be told
};

struct Movers {
  Mover of[abi::kMaxGpus];
  std::atomic<std::uint32_t> lacking{0};  // a bit for each whose thread could not be started
  constexpr Movers() {
    for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) of[lane].executor = Executor(lane);
  }
};
constinit Movers g_movers;

// The bytes that a move takes to the host. Memory there that is only cached is given back instead.
std::uint64_t wanted_now(unsigned lane) {
  const ChunksLock held;
  const std::uint64_t there = residency_page::resident(lane);
  return cache::any() ? there - cache::resident_on(lane) : there;
}

Error error_of(Stop stop) {
  switch (stop) {
    case Stop::kNothing:
      return Error::kFine;
    case Stop::kNoHostRoom:
      return Error::kNoHostRoom;
    case Stop::kNoDeviceRoom:
      return Error::kNoDeviceRoom;
    case Stop::kDriver:
      return Error::kFailed;
  }
  return Error::kFailed;
}

// Of two moves that follow each other; the second one only if the first was not stopped.
Moved sum(const Moved& first, Moved then) {
  if (first.stop != Stop::kNothing) return first;
  then.skipped += first.skipped;
  then.kept += first.kept;
  then.made_ns += first.made_ns;
  then.gave_ns += first.gave_ns;
  if (then.unparked == CUDA_SUCCESS) then.unparked = first.unparked;
  return then;
}

}  // namespace

Executor& executor(unsigned lane) { return g_movers.of[lane].executor; }

std::uint64_t Executor::look() {
  for (Input input{.event = MoverEvent::kLook, .seen = observe()};;) {
    const MoverStep step = decide(input);
    adopt(step);
    // Work goes on by now on memory that came back from another GPU.
    if (parking::sweep(lane_)) residency_page::parked_left(lane_);
    switch (step.action) {
      case Action::kFindHostRoom:
        input.event = find_room_away(input.seen);
        break;
      case Action::kQuiesce:
        input.event = quiesce(input.seen);
        break;
      case Action::kSwapOut:
        input = swap_out(input.seen);
        break;
      case Action::kSwapIn:
        input = swap_in(input.seen);
        break;
      case Action::kSwapInPart:
        input = swap_in_part(input.seen);
        break;
      case Action::kMoveOn:
        input = move_on(input.seen);
        break;
      case Action::kTakeContexts:
        input = take_contexts(input.seen);
        break;
      case Action::kBringContexts:
        input = bring_contexts(input.seen);
        break;
      case Action::kConsolidate:
        input = consolidate(input.seen);
        break;
      default:
        return finish(step);
    }
  }
}

// While the contexts are away none is current, and the driver answers nobody.
void Executor::pause() {
  if (!checkpoint::away()) context_.leave();
}

MoverView Executor::observe() {
  residency_page::heed(lane_);
  const residency_page::Told told = residency_page::told(lane_);
  const MoverState away =
      now_.state == MoverState::kDetached ? MoverState::kDetached : MoverState::kSwappedOut;
  MoverView seen{.limited = told.limited,
                 .limit = told.limit,
                 .detaches = told.detaches,
                 .total = residency_page::total(lane_),
                 .resident = residency_page::resident(lane_),
                 .monitored = residency_page::monitored(),
                 .quiesced = admission::is_quiesced(lane_),
                 .answered = residency_page::has_said(lane_, phase_of(away)),
                 .asked = consolidation_request::is_asked(lane_) && !paused().paused,
                 .parked = parking::parked(lane_).bytes,
                 .park_limit = residency_page::park(lane_).bytes,
                 .kept = parking::parked(lane_).kept};
  seen.handoff = follow(seen);
  seen.offers = !(admits(now_.state) && seen.asked) && may_offer(now_, seen) && prepare_to_leave();
  return seen;
}

Handoff Executor::follow(const MoverView& seen) {
  const std::uint64_t takes = residency_page::takes(lane_);
  if ((takes == 0 && !following_) || now_.state == MoverState::kDetached) return Handoff::kNone;
  following_ = takes != 0;
  const bool wants = following_ && wants_handoff(now_, seen) && context_.enter(lane_);
  if (!handover::follow(lane_, takes, wants, has_room(now_, seen))) return Handoff::kNone;
  if (handover::begun(lane_)) return Handoff::kBegun;
  return handover::is_taken(lane_) ? Handoff::kTaken : Handoff::kAwaited;
}

MoverStep Executor::decide(Input& input) {
  const std::uint64_t now = monotonic_ns();
  const MoverStep step = next(now_, input, now);
  // A context is looked for only where one is needed: to enter it is not free.
  const bool needed =
      input.event == MoverEvent::kLook && needs_context(step.action) && input.seen.total != 0;
  if (!needed || context_.enter(lane_)) return step;
  input.seen.context = false;
  result_ = CUDA_ERROR_INVALID_CONTEXT;
  return next(now_, input, now);
}

void Executor::adopt(const MoverStep& step) {
  assert(is_legal(now_.state, step.to.state));
  const MoverState state = step.to.state;
  if (step.failed) report_failure(step);
  now_ = step.to;
  if (admits(state) && !admission::is_open(lane_)) admission::open(lane_);
  if (state == MoverState::kSwappingIn) admission::shut(lane_);  // it is, but for a second attempt
  if (offering_ && state != MoverState::kQuiescing && state != MoverState::kSwappingOut) {
    handover::end_offer(lane_);
    offering_ = offered_ = false;
  }
  if (step.says)
    residency_page::say(lane_, phase_of(state), static_cast<std::uint32_t>(step.error));
}

void Executor::report_failure(const MoverStep& step) {
  residency_page::failed_with(lane_, result_);
  if (now_.backoff_ns != 0) return;
  // Without a context, as in a process that ends, no memory is left to move.
  const Level level = no_context(result_) ? Level::kInfo : Level::kWarn;
  log_line(level, "swap on GPU %u came to no end (error %u, driver %d): trying again", lane_,
           static_cast<unsigned>(step.error), static_cast<int>(result_));
}

std::uint64_t Executor::finish(const MoverStep& step) {
  switch (step.action) {
    case Action::kMakeWay:
      make_way();
      break;
    case Action::kAnswer:
      answer();
      break;
    case Action::kStandReady:
      return stands_ready() ? step.look_in_ns : 0;
    case Action::kShrinkPool:
    case Action::kTendPool:
      return tend_pool(step);
    default:
      break;
  }
  return step.look_in_ns;
}

std::uint64_t Executor::kept_now() const {
  const ChunksLock held;
  return kept_bytes(lane_);
}

bool Executor::has_host_room(std::uint64_t bytes) const {
  return pinned_pool::free_bytes(lane_) + kept_now() >= bytes;
}

bool Executor::find_room(std::uint64_t bytes, std::uint64_t kept) const {
  // The limit may fall meanwhile.
  while (pinned_pool::free_bytes(lane_) + kept < bytes + spare_) {
    if (!pinned_pool::grow(lane_, residency_page::host_limit(lane_))) return false;
  }
  return true;
}

// Room for what leaves, but for what can be parked.
MoverEvent Executor::find_room_away(const MoverView& seen) {
  const residency_page::Park park = residency_page::park(lane_);
  const std::uint64_t parked = parking::parked(lane_).bytes;
  const bool parks = monotonic_ns() >= park_ns_ && parked <= park.bytes;
  const std::uint64_t can_park = parks ? park.bytes - parked : 0;
  const std::uint64_t there = wanted_now(lane_);
  const std::uint64_t leaves = there - std::min(there, seen.limit);
  const std::uint64_t excess = leaves - std::min(leaves, can_park);
  if (park.only && excess != 0) return MoverEvent::kNoPeerRoom;
  const bool found = excess == 0 || find_room(excess, kept_now()) || has_host_room(excess);
  result_ = CUDA_SUCCESS;
  return found ? MoverEvent::kHostRoom : MoverEvent::kNoHostRoom;
}

MoverEvent Executor::quiesce(MoverView& seen) {
  const bool quiesced = admission::is_quiesced(lane_);  // it is away in part already
  result_ = CUDA_SUCCESS;
  if (!quiesced && !block_new_work(lane_)) return MoverEvent::kLate;
  // Exported while the accepted work ends.
  const std::uint64_t there = residency_page::resident(lane_);
  const std::uint64_t gives = residency_page::gives(lane_);
  offering_ = offered_ = offered_ || gives != 0;
  if (offering_) handover::offer(lane_, there - std::min(there, seen.limit), gives);
  if (!quiesced) {
    const CUresult held = drain(lane_);
    if (held == kLate) return MoverEvent::kLate;
    result_ = held;
    if (held != CUDA_SUCCESS) return MoverEvent::kFailed;
  }
  if (offering_) handover::begin_offer(lane_);
  // Draining may have taken long.
  residency_page::heed(lane_);
  const residency_page::Told told = residency_page::told(lane_);
  seen.limited = told.limited;
  seen.limit = told.limit;
  seen.detaches = told.detaches;
  return MoverEvent::kQuiesced;
}

// What the contexts leave behind on the GPU. Memory that is offered to another job goes there.
Moved Executor::keep_away(const MoverView& seen) const {
  if (offering_) return {.unparked = CUDA_ERROR_NOT_PERMITTED};
  const memory_fd::NoFork no_child;
  const ChunksLock held;
  const std::uint64_t there = residency_page::resident(lane_);
  if (there <= seen.limit) return {};
  return keep(lane_, there - seen.limit, residency_page::resident_changes,
              residency_page::may_keep);
}

Moved Executor::move_away(const MoverView& seen) {
  const std::uint64_t begun = monotonic_ns();
  const bool parks = begun >= park_ns_;
  const Moved kept = parks && residency_page::park(lane_).keeps ? keep_away(seen) : Moved{};
  Moved out;
  const MayPark may_park = parks ? residency_page::may_park : parks_nothing;
  if (kept.stop == Stop::kNothing) {
    const ChunksLock held;
    const std::uint64_t there = residency_page::resident(lane_);
    if (there > seen.limit)
      out = move_out(lane_, there - seen.limit, residency_page::resident_changes, may_park);
  }
  out = sum(kept, out);
  if (out.unparked != CUDA_SUCCESS) {
    park_ns_ = monotonic_ns() + kParkRestNs;
    log_line(Level::kWarn,
             "swap on GPU %u: the host takes what could not be parked or kept: driver %d", lane_,
             static_cast<int>(out.unparked));
  }
  residency_page::count_out(lane_, out);
  note("out", out, begun);
  return out;
}

Input Executor::swap_out(const MoverView& seen) {
  if (cache::any()) {
    const RangesLock held;
    cache::drop_all(lane_);
  }
  Moved out = move_away(seen);
  // Room in the host was found for what cannot be parked. Memory that the driver did not park needs
  // it, too.
  if (out.stop == Stop::kNoHostRoom && out.unparked != CUDA_SUCCESS &&
      find_room_away(seen) == MoverEvent::kHostRoom) {
    out = move_away(seen);
  }
  if (out.stop == Stop::kNothing) {
    residency_page::count_end(lane_);
    if (admits(now_.before)) residency_page::count_time_out(lane_);
  } else if (out.stop == Stop::kNoHostRoom) {
    // The pieces did not fit, though there was room. A lower limit is another reason.
    const std::uint64_t rest = wanted_now(lane_);
    if (has_host_room(rest - std::min(rest, seen.limit))) spare_ += pinned_pool::kSlab;
  }
  return moved(seen, out);
}

Input Executor::moved(const MoverView& seen, const Moved& moved) {
  result_ = moved.result;
  return {.event = moved.stop == Stop::kNothing ? MoverEvent::kDone : MoverEvent::kStopped,
          .seen = seen,
          .error = error_of(moved.stop)};
}

bool Executor::prepare_to_leave() {
  const std::uint64_t soon = residency_page::soon(lane_);
  const std::uint64_t number = soon != 0 ? residency_page::gives(lane_) : 0;
  // It has just been told to: that is the next look's.
  if (residency_page::told(lane_).limited && residency_page::total(lane_) != 0) return true;
  if (number == 0 ? !offered_ : !context_.enter(lane_)) return false;
  offered_ = handover::prepare(lane_, soon, number);
  return offered_;
}

CUresult Executor::hold() { return block_new_work(lane_) ? drain(lane_) : kLate; }

void Executor::note(const char* way, const Moved& moved, std::uint64_t begun) const {
  if (moved.copied + moved.skipped == 0) return;
  const auto us = [](std::uint64_t ns) { return static_cast<unsigned long long>(ns / 1000); };
  const auto mib = [](std::uint64_t bytes) { return static_cast<unsigned long long>(bytes >> 20); };
  log_line(Level::kDebug,
           "swap on GPU %u: %s in %llu us (%llu making memory, %llu pinning the host's, %llu "
           "waiting for copies, %llu giving memory back), %llu MiB copied, %llu MiB of that "
           "parked, %llu MiB known or zero, %llu MiB kept on the GPU, %llu MiB in memory of "
           "another job",
           lane_, way, us(monotonic_ns() - begun), us(moved.made_ns), us(moved.pinned_ns),
           us(moved.waited_ns), us(moved.gave_ns), mib(moved.copied), mib(moved.parked),
           mib(moved.skipped - moved.kept), mib(moved.kept), mib(moved.taken));
}

SWITCHYARD_RENEW(kState, g_movers);

}  // namespace switchyard::shim::swap::residency

namespace switchyard::shim::swap::mover {
namespace {

// While the contexts of another GPU are away.
constexpr std::uint64_t kAsideNs = 50'000'000;
// How long a new context waits for the mover's look.
constexpr unsigned kContextNaps = 100;
constexpr std::uint64_t kContextNapNs = 10'000'000;

// pre: the mover's lock.
void tell_of_context(residency::Mover& mover) {
  if (mover.context_made.load(std::memory_order_relaxed) == 0) return;
  mover.context_made.store(0, std::memory_order_relaxed);
  if (mover.executor.context_made()) poke();
}

void* run(void* of) {
  auto& mover = *static_cast<residency::Mover*>(of);
  // Captures of other threads must not notice us.
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  const auto lane = static_cast<unsigned>(&mover - residency::g_movers.of);
  for (;;) {
    const std::uint32_t seen = process().mover.seen();
    std::uint64_t wait_ns = kAsideNs;
    {
      const Locked at_work(mover.at_work);
      const inside::MoverLook look(lane);
      if (look.admitted()) {
        wait_ns = mover.executor.look();
        mover.executor.pause();
        tell_of_context(mover);
      }
    }
    if (wait_ns != 0) process().mover.sleep(seen, wait_ns);
  }
}

}  // namespace

void start(unsigned lane) {
  residency::Mover& mover = residency::g_movers.of[lane];
  // A forked child has the parent's word but not its thread.
  const auto self = static_cast<std::int32_t>(::getpid());
  std::int32_t owner = mover.thread_of.load(std::memory_order_acquire);
  if (owner == self || !mover.thread_of.compare_exchange_strong(owner, self)) return;
  swap_digest();  // the environment is read on a thread of the application's
  if (start_thread(run, &mover)) return;
  mover.thread_of.store(0, std::memory_order_release);
  residency::g_movers.lacking.fetch_or(1u << lane, std::memory_order_relaxed);
  static Once said;
  log_once(said, Level::kError,
           "no thread to move memory with: it stays on the device until one can be started");
}

void start_again() {
  if (residency::g_movers.lacking.load(std::memory_order_relaxed) == 0) return;
  const std::uint32_t lacking = residency::g_movers.lacking.exchange(0, std::memory_order_relaxed);
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) {
    if ((lacking & 1u << lane) != 0) start(lane);
  }
}

void poke() { process().mover.wake(); }

// A mover uses contexts of all GPUs: it waits for the work in them.
Standstill::Standstill() : locked_(lanes()) {
  // While the contexts are away a mover needs its lock to bring them back.
  while (locked_ != 0) {
    Outside outside;
    for (unsigned lane = 0; lane < locked_; ++lane) {
      ::pthread_mutex_lock(&residency::g_movers.of[lane].at_work);
    }
    if (outside.try_end()) break;
    unlock_all();
  }
}

Standstill::~Standstill() { unlock_all(); }

void Standstill::unlock_all() const {
  for (unsigned lane = locked_; lane-- > 0;) {
    ::pthread_mutex_unlock(&residency::g_movers.of[lane].at_work);
  }
}

// Before a mover is done it tells this, too. It may wait for the GPU, whose work may wait for the
// calling thread. Memory is not away for the lack of a context then, and no thread is admitted.
void context_made(unsigned lane) {
  if (lane >= lanes()) return;
  peers::context_made(lane);
  // The mover may be about to find that there is none: it sees this one, or we see that.
  residency::Mover& mover = residency::g_movers.of[lane];
  mover.context_made.store(1, std::memory_order_seq_cst);
  for (unsigned nap = 0; nap < kContextNaps; ++nap) {
    if (::pthread_mutex_trylock(&mover.at_work) == 0) {
      tell_of_context(mover);
      ::pthread_mutex_unlock(&mover.at_work);
      return;
    }
    const Outside outside;  // the mover may have to bring the contexts back
    sleep_ns(kContextNapNs);
  }
}

}  // namespace switchyard::shim::swap::mover
