// Pairs of the driver's events that stand around what is to be timed on a GPU.
//
// Concept. A ring. Timers are read in the order in which they were begun, once the GPU has passed
// them; nobody waits for that. The events are made when they are needed first, in the context that
// came first, and kept. Work in other contexts goes untimed.
//
//     take, start | record before | what is timed | record behind, passed ... read
//
// Where the driver refuses, nothing is timed any more until the context has ended.
//
// Threading: any thread. Its lock is never held in a call that may wait for the GPU, so `before`
// and `after` are recorded outside it.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "shim/driver.h"
#include "shim/gate/errors.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"

namespace switchyard::shim::timers {

// Between start() and passed(); `after` null: it is not timed.
struct Running {
  CUevent before = nullptr, after = nullptr;
  CUstream stream = nullptr;
  unsigned index = 0;
  std::uint32_t generation = 0;
};

// Whether the driver has all that is needed.
bool complete();
bool current_is(CUcontext context);

template <typename Note>
struct Timer {
  enum class Stage : std::uint8_t { kHeld, kPassing, kSpoilt };
  CUevent before = nullptr, after = nullptr;
  Stage stage = Stage::kHeld;
  Note note{};
};

template <typename Note, unsigned kMost>
class Pool {
 public:
  using Each = Timer<Note>;
  using Stage = typename Each::Stage;

  bool try_lock() { return ::pthread_mutex_trylock(&lock_) == 0; }
  void unlock() { ::pthread_mutex_unlock(&lock_); }
  unsigned count() const { return count_.load(std::memory_order_relaxed); }

  // pre for all up to passed(): the lock.

  bool refused() const { return refused_; }

  // The next timer of the ring, ready to be used; null: none. pre: there is room.
  Each* take(CUcontext context) {
    if (!usable() || !complete() || !current_is(context)) return nullptr;
    if (context_ == nullptr) {
      context_ = context;
      owner_ = memory::current_owner();
    }
    if (context_ != context) return nullptr;
    Each& timer = timers_[(oldest_ + count()) % kMost];
    return made(timer) ? &timer : nullptr;
  }

  Running start(Each& timer, const Note& note, CUstream stream) {
    timer.note = note;
    timer.stage = Stage::kHeld;
    count_.fetch_add(1, std::memory_order_relaxed);
    return {timer.before, timer.after, stream, static_cast<unsigned>(&timer - timers_),
            generation_};
  }

  // Reads the timers that the GPU has passed. told(timer, the one that was read before it) asks for
  // times and answers how the driver did. Null: nothing was learnt of the one before.
  template <typename Told>
  void read(Told told) {
    if (!usable() || count() == 0) return;
    const memory::Relaxed relaxed(memory::Relaxed::kAlways);
    while (count() != 0 && read_oldest(told)) {
    }
  }

  // --- without the lock ---

  // The timed work may be launched now. It isn't timed where the driver refuses.
  void record_before(Running& running) {
    if (running.after == nullptr) return;
    // Where the queue is full the driver waits here.
    const CUresult result = driver().cuEventRecord(running.before, running.stream);
    if (result == CUDA_SUCCESS) return;
    passed(running, false);
    running = {};
  }
  // It was launched. Not `good`: it counts for nothing, and its stream may have gone.
  void record_after(const Running& running, bool good) {
    if (running.after == nullptr) return;
    passed(running, good && driver().cuEventRecord(running.after, running.stream) == CUDA_SUCCESS);
  }

  // A context may be about to end: its events are left alone, until it lives on or has gone.
  void suspend(std::uint64_t owner, bool on) {
    const Locked locked(lock_);
    if (is_of(owner)) suspended_ = on;
  }
  // True: it was this one's, and its events have gone with it.
  bool context_gone(std::uint64_t owner) {
    const Locked locked(lock_);
    if (!is_of(owner)) return false;
    reset();
    return true;
  }
  // In a forked child.
  void clear() {
    lock_ = PTHREAD_MUTEX_INITIALIZER;
    reset();
  }

 private:
  bool usable() const { return !refused_ && !suspended_; }
  bool is_of(std::uint64_t owner) const { return context_ != nullptr && owner_ == owner; }

  void refuse(CUresult why) {
    refused_ = true;
    log_line(Level::kInfo, "timing: the driver refused with %d", static_cast<int>(why));
  }

  bool made(Each& timer) {
    if (timer.after != nullptr) return true;
    const memory::Relaxed relaxed(memory::Relaxed::kAlways);
    CUresult result = driver().cuEventCreate(&timer.before, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS) result = driver().cuEventCreate(&timer.after, CU_EVENT_DEFAULT);
    if (result != CUDA_SUCCESS) refuse(result);
    return result == CUDA_SUCCESS;
  }

  // False: the GPU, or the launching thread, is not that far.
  template <typename Told>
  bool read_oldest(Told told) {
    const Each& timer = timers_[oldest_];
    if (timer.stage == Stage::kHeld) return false;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (timer.stage == Stage::kPassing) {
      result = driver().cuEventQuery(timer.after);
      if (result == CUDA_ERROR_NOT_READY) return false;
      const Each& before = timers_[(oldest_ + kMost - 1) % kMost];
      if (result == CUDA_SUCCESS) result = told(timer, follows_ ? &before : nullptr);
      if (ends_context(result) || unable(result)) {
        refuse(result);
        return false;
      }
    }
    follows_ = result == CUDA_SUCCESS;
    oldest_ = (oldest_ + 1) % kMost;
    count_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }

  void passed(const Running& running, bool good) {
    const Locked locked(lock_);
    if (generation_ != running.generation) return;
    timers_[running.index].stage = good ? Stage::kPassing : Stage::kSpoilt;
  }

  void reset() {
    context_ = nullptr;
    ++generation_;
    refused_ = false;
    suspended_ = false;
    follows_ = false;
    oldest_ = 0;
    count_.store(0, std::memory_order_relaxed);
    for (Each& timer : timers_) timer = {};
  }

  pthread_mutex_t lock_ = {};
  CUcontext context_ = nullptr;
  std::uint64_t owner_ = 0;
  std::uint32_t generation_ = 0;
  bool refused_ = false;
  bool suspended_ = false;
  bool follows_ = false;  // the timer that was read last was read well
  unsigned oldest_ = 0;
  std::atomic<unsigned> count_ = 0;
  Each timers_[kMost];
};

}  // namespace switchyard::shim::timers
