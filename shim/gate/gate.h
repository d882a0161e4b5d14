// The gate: admission of work to the GPU while the monitor has something to say about it.
//
// Concept. The gate's words and contract are in abi.h. While no bit of a lane's `attention` is set,
// nothing of this runs: rules look at that one word. Otherwise
//
//     work for a stream (Passage)   threads sleep while it is closed (hold.h); then wait and
//                                   number go into the stream around it (numbers.h, view.h)
//     a wait of the CPU (Waiting)   what was put gets its number; threads sleep while it is
//                                   closed: they would wait behind it inside the driver
//     a question (asking)           what was put gets its number; never sleeps
//
// Capture: work for a captured stream runs nothing now, so it passes. Nothing of ours is put into
// such a stream, asked of it or waited for on it. A thread that captures opens nothing for others.
//
// Threading: any thread; each value lives on one thread's stack, around one call of the driver.
// Before it sleeps a thread holds no lock of ours.
#pragma once

#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/driver.h"
#include "shim/gate/bursts.h"
#include "shim/gate/numbers.h"
#include "shim/work_guard.h"

namespace switchyard::shim::gate {

using numbers::Work;
using numbers::WorkKind;

// The lane when some bit of its attention is set beside these, else null: what everything below
// costs when nothing is armed.
template <std::uint32_t kBeside>
inline abi::Lane* attentive_beside(abi::Lane* lane) {
  if (lane == nullptr || (lane->attention.load(std::memory_order_relaxed) & ~kBeside) == 0)
      [[likely]] {
    return nullptr;
  }
  return lane;
}
// When the gate has anything to do for it.
inline constexpr std::uint32_t kNotTheGates =
    abi::kSwappable | abi::kTimeBursts | abi::kBurstBegins | abi::kTellWaits |
    abi::kRecordLaunches | abi::kTimeCollectives | abi::kTellFaults;
inline constexpr std::uint32_t kNotForWaits = abi::kSwappable | abi::kBurstBegins |
                                              abi::kRecordLaunches | abi::kTimeCollectives |
                                              abi::kTellFaults;
inline abi::Lane* attentive(abi::Lane* lane) { return attentive_beside<kNotTheGates>(lane); }
inline abi::Lane* attentive_lane() { return attentive(current_lane()); }

// Before a launch, and behind its Passage if there is one.
inline constexpr std::uint32_t kOfBursts = abi::kBurstBegins | abi::kTellWaits;
inline void note_launch(abi::Lane& lane) {
  const std::uint32_t asked = lane.attention.load(std::memory_order_relaxed);
  if ((asked & abi::kBurstBegins) != 0) bursts::begin(lane);
  if ((asked & abi::kTellWaits) != 0) bursts::ring_if_due(lane);
}

// Does what the monitor asked for, once.
void attend(abi::Lane& lane);

// Around work for a stream. pre: some bit of attention is set. It sleeps at a closed gate before it
// is admitted (work_guard.h), and is admitted before it begins a batch. A thread asleep inside the
// admission, or with a batch begun, would be waited for.
class Passage {
 public:
  Passage(abi::Lane& lane, CUstream stream, bool per_thread, Work work);
  ~Passage() { numbers::end(piece_); }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

 private:
  bool may_touch_;
  swap::WorkGuard entry_;
  numbers::BegunLaunch piece_;
};

// Around a call in which the CPU waits for the GPU.
class Waiting {
 public:
  // For a stream or event, for all that the context has, or for that before it ends.
  enum What { kStream, kContext, kEnd };
  explicit Waiting(What what) : Waiting(attentive_beside<kNotForWaits>(current_lane()), what) {}
  Waiting(abi::Lane* lane, What what) : lane_(lane) {
    if (lane_ != nullptr) [[unlikely]]
      before(what);
  }
  ~Waiting() {
    if (lane_ != nullptr) [[unlikely]]
      after();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  void before(What what);
  void after() const;

  abi::Lane* lane_;
  bool gated_ = false;          // not only timed
  bool again_ = false;          // a batch is still to be ended
  std::uint64_t began_ns_ = 0;  // 0: it isn't timed
};

// Around a copy into a stream, in which the driver may wait for the GPU. It does where the copy
// goes to pageable memory of the host, so there the wait is told when it begins.
class Copying {
 public:
  // `to`: where the copy goes, if that may be memory of the host; else null.
  Copying(abi::Lane& lane, const void* to) : lane_(lane) {
    if ((lane.attention.load(std::memory_order_relaxed) & abi::kTimeBursts) != 0) [[unlikely]]
      before(to);
  }
  ~Copying() {
    if (began_ns_ != 0) [[unlikely]]
      after();
  }
  Copying(const Copying&) = delete;
  Copying& operator=(const Copying&) = delete;

 private:
  void before(const void* to);
  void after() const;

  abi::Lane& lane_;
  std::uint64_t began_ns_ = 0;  // 0: it isn't timed
  bool waits_ = false;
};

// Before a call that asks whether the GPU is done.
void asking(abi::Lane& lane);

// Before a host function, or anything else that goes behind a stream's work and is none itself.
void before_callback(abi::Lane& lane, CUstream stream, bool per_thread);

// Before work for several GPUs at once: sleeps while any of them is closed.
void hold_all();

// The stream is about to be destroyed: whatever is armed, or was. A forked child that begins with
// this has no streams, but its parent's locks.
inline void forget(CUstream stream) {
  if (process().alive.load(std::memory_order_relaxed) != 0) numbers::forget(stream);
}

// Around the end of a context (owner: memory/owner.h).
class Ending {
 public:
  Ending(int device, std::uint64_t owner);
  ~Ending() { give_back(); }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  // It hasn't ended after all.
  void lives_on() const;
  // The view may be registered anew. Before context_gone(), which looks at it.
  void give_back() {
    if (view_ != nullptr) view::give_back(*view_);
    view_ = nullptr;
  }

 private:
  int device_;
  std::uint64_t owner_;
  view::View* view_ = nullptr;
};
// After it.
void context_gone(int device, std::uint64_t owner);

}  // namespace switchyard::shim::gate
