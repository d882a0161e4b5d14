#include "shim/swap/moves.h"

#include <algorithm>
#include <atomic>

#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/clock.h"
#include "shim/gate/errors.h"
#include "shim/gate/hold.h"
#include "shim/log.h"
#include "shim/swap/admission.h"
#include "shim/swap/bodies.h"
#include "shim/swap/drain.h"
#include "shim/swap/handover.h"
#include "shim/swap/host_pool.h"
#include "shim/swap/pooled.h"
#include "shim/swap/ranges.h"
#include "shim/swap/wanted.h"
#include "shim/swap/whole.h"
#include "shim/swap/words.h"

namespace switchyard::shim::swap::mover {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kLookNs = 200 * kMs;
constexpr std::uint64_t kSoonNs = 5 * kMs;
constexpr std::uint64_t kPatienceNs = 10 * kMs;
constexpr std::uint64_t kNapNs = 50'000;
// While another's memory is about to be handed over.
constexpr std::uint64_t kOfferedNs = kMs / 2;
// After a move that failed.
constexpr std::uint64_t kFirstRestNs = 20 * kMs;
constexpr std::uint64_t kLastRestNs = 2'000 * kMs;
// Work is not held in time.
constexpr CUresult kLate = CUDA_ERROR_NOT_READY;

bool may_always(unsigned, std::uint64_t, bool) { return true; }

// As another's chunks leave the limit rises, several times in a millisecond.
bool may_come(unsigned lane, std::uint64_t bytes, bool waits) {
  for (const std::uint64_t end = monotonic_ns() + (waits ? kPatienceNs : 0);;) {
    const std::uint64_t limit = words::told(lane).limit;
    const std::uint64_t there = words::resident(lane);
    if (there <= limit && bytes <= limit - there) return true;
    if (monotonic_ns() >= end) return false;
    sleep_ns(kNapNs);
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

// Whether the host has room for so much as far as is known without trying.
bool has_host_room(std::uint64_t bytes) { return host_pool::free_bytes() + kept_now() >= bytes; }

std::uint64_t bytes_of(Handle number) {
  const Held held;
  const Body* body = bodies::find(number);
  return body != nullptr ? body->bytes : 0;
}

// Whether some of what is away may come: for less than a chunk it isn't worth to begin.
bool has_room(std::uint64_t limit, std::uint64_t resident, std::uint64_t total) {
  return resident < total && resident < limit &&
         limit - resident >= std::min(kChunk, total - resident);
}

}  // namespace

bool was_stranded() { return g_stranded.exchange(false); }

std::uint64_t Moves::look() {
  words::heed(lane_);
  const std::uint64_t total = words::total(lane_);
  const std::uint64_t resident = words::resident(lane_);
  const words::Told now = words::told(lane_);
  const bool away = !admission::is_open();
  const bool leaves = now.limited && (!away || resident > now.limit);
  const std::uint64_t takes = words::takes(lane_);
  const bool wants = takes != 0 && away && !leaves && total != 0 && current_.enter(lane_);
  const bool room = away && has_room(now.limit, resident, total);
  const bool offered = handover::follow(takes, wants, room);
  if (!away && wanted::is_asked() && !paused().paused) {
    make_whole();
    return 0;
  }
  const bool offers = !away && (!leaves || total == 0) && prepare_to_leave();
  if (total == 0 && !away) return shrink_pool() ? 0 : kLookNs;
  if (monotonic_ns() < next_ns_) return kSoonNs;
  const bool comes = away && (handover::is_taken() ? handover::begun() : room);
  const bool opens = away && (!now.limited || total == 0);
  if (!leaves && !comes && !opens) {
    if (away && !words::has_said(lane_, abi::kAbsent)) {
      words::say(lane_, abi::kAbsent, abi::kSwapFine);
    }
    if (offered) return stands_ready() ? kOfferedNs : 0;
    if (offers) return kSoonNs;
    // To pin a slab takes longer than to come back: while it is away its turn is near.
    return shrink_pool() || (!away && grow_pool()) ? 0 : kLookNs;
  }
  if (total != 0 && !current_.enter(lane_)) {
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

void Moves::leave(std::uint64_t limit) {
  const std::uint64_t there_now = wanted_now(lane_);
  const bool works = admission::is_open();  // else a part is away, and the rest may stay
  if (there_now > limit && !find_host_room(there_now - limit + spare_, kept_now()) &&
      !has_host_room(there_now - limit)) {
    rest(works ? abi::kResident : abi::kAbsent, abi::kSwapNoHostRoom, CUDA_SUCCESS);
    return;
  }
  if (!held_back()) return;
  // Exported while the accepted work ends.
  const std::uint64_t all_now = words::resident(lane_);
  handover::Offer offer(lane_, all_now - std::min(all_now, limit), words::gives(lane_));
  if (!quiet()) return;
  offer.begin();
  // Draining may have taken long.
  words::heed(lane_);
  const words::Told now = words::told(lane_);
  if (!now.limited) {
    offer.end();
    return come_back();
  }
  limit = now.limit;
  const std::uint64_t begun = monotonic_ns();
  Moved moved;
  {
    const Held held;
    pooled::drop_cached(lane_);
    const std::uint64_t there = words::resident(lane_);
    if (there > limit) moved = move_out(lane_, there - limit, words::resident_changes);
  }
  offer.end();
  words::count_out(lane_, moved);
  note("out", moved, begun);
  if (moved.stop != Stop::kNothing) {
    // The pieces did not fit, though there was room. A lower limit is another reason.
    const std::uint64_t rest_now = wanted_now(lane_);
    if (moved.stop == Stop::kNoHostRoom && has_host_room(rest_now - std::min(rest_now, limit))) {
      spare_ += host_pool::kSlab;
    }
    rest(works ? abi::kReturning : abi::kAbsent, words::error_of(moved.stop), moved.result);
    if (works) come_back(words::error_of(moved.stop));
    return;
  }
  succeeded();
  words::count_end(lane_);
  if (works) words::count_time_out(lane_);
  words::say(lane_, abi::kAbsent, abi::kSwapFine);
}

bool Moves::prepare_to_leave() {
  const std::uint64_t soon = words::soon(lane_);
  const std::uint64_t number = soon != 0 ? words::gives(lane_) : 0;
  // It has just been told to: that is the next look's.
  if (words::told(lane_).limited && words::total(lane_) != 0) return true;
  return (number == 0 || current_.enter(lane_)) && handover::prepare(lane_, soon, number);
}

bool Moves::stands_ready() {
  const Held held;
  return !handover::put_in_place(lane_);
}

void Moves::come_back(std::uint32_t error) {
  words::say(lane_, abi::kReturning, error);
  const std::uint64_t begun = monotonic_ns();
  Moved moved;
  {
    const Held held;
    // Also where all is counted as there: some of that may lack its contents.
    if (words::total(lane_) != 0) moved = move_in(lane_, may_always, words::resident_changes);
  }
  count_in(moved, begun);
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
  words::count_end(lane_);
  if (error == abi::kSwapFine) succeeded();
  words::say(lane_, abi::kResident, error);
}

void Moves::come_in_part() {
  const std::uint64_t begun = monotonic_ns();
  Moved moved;
  {
    const Held held;
    moved = move_in(lane_, may_come, words::resident_changes);
  }
  count_in(moved, begun);
  if (moved.stop != Stop::kNothing) rest(abi::kAbsent, words::error_of(moved.stop), moved.result);
}

void Moves::make_way() {
  if (monotonic_ns() / 1000 % 2 == 0) return;
  const Held held;
  if (!find_host_room(words::resident(lane_) + spare_, kept_bytes())) return;
  words::count_out(lane_, move_out(lane_, UINT64_MAX, words::resident_changes));
}

void Moves::strand(std::uint32_t error, CUresult result) {
  g_stranded.store(true);
  admission::open();
  rest(abi::kResident, error, result);
}

bool Moves::held_back() {
  if (admission::is_moving()) return true;  // it is away in part already
  words::say(lane_, abi::kLeaving, abi::kSwapFine);
  if (shut()) return true;
  stay(abi::kSwapBusy, CUDA_SUCCESS);
  return false;
}

bool Moves::quiet() {
  if (admission::is_moving()) return true;
  const CUresult held = finish_work();
  if (held == kLate) {
    stay(abi::kSwapBusy, CUDA_SUCCESS);
  } else if (held != CUDA_SUCCESS) {
    stay(abi::kSwapFailed, held);
  }
  return held == CUDA_SUCCESS;
}

CUresult Moves::hold() { return shut() ? finish_work() : kLate; }

CUresult Moves::finish_work() {
  const CUresult result = drain(lane_);
  if (result != CUDA_SUCCESS) return result;
  return admission::begin_moving() ? CUDA_SUCCESS : kLate;
}

CUresult Moves::ready_for_whole(std::uint64_t bytes) {
  if (!current_.enter(lane_)) return CUDA_ERROR_INVALID_CONTEXT;
  return find_host_room(bytes + spare_, kept_now()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Moves::make_whole() {
  if (!wanted::take()) return;
  handover::prepare(lane_, 0, 0);  // what is offered isn't free when it has left
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
  words::publish(lane_);
  if (begun) wanted::answer(result);
}

void Moves::stay(std::uint32_t error, CUresult result) {
  admission::open();
  rest(abi::kResident, error, result);
}

void Moves::rest(std::uint32_t phase, std::uint32_t error, CUresult result) {
  page().residencies[lane_].swap_result.store(result, std::memory_order_relaxed);
  if (rest_ns_ == 0) {
    log_line(Level::kWarn, "swap on GPU %u came to no end (error %u, driver %d): trying again",
             lane_, error, static_cast<int>(result));
  }
  rest_ns_ = std::clamp(2 * rest_ns_, kFirstRestNs, kLastRestNs);
  next_ns_ = monotonic_ns() + rest_ns_;
  words::say(lane_, phase, error);
}

void Moves::succeeded() { rest_ns_ = 0; }

void Moves::count_in(const Moved& moved, std::uint64_t begun) const {
  words::count_in(lane_, moved);
  note("in", moved, begun);
}

void Moves::note(const char* way, const Moved& moved, std::uint64_t begun) const {
  if (moved.copied + moved.spared == 0) return;
  log_line(Level::kDebug,
           "swap on GPU %u: %s in %llu us, %llu MiB copied, %llu MiB known or zero, %llu MiB in "
           "memory of another job",
           lane_, way, static_cast<unsigned long long>((monotonic_ns() - begun) / 1000),
           static_cast<unsigned long long>(moved.copied >> 20),
           static_cast<unsigned long long>(moved.spared >> 20),
           static_cast<unsigned long long>(moved.taken >> 20));
}

}  // namespace switchyard::shim::swap::mover
