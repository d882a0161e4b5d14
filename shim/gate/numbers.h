// The GPU's side of the gate: waits and numbers in streams.
//
// Concept. A stream's work is put in *batches*. While the gate is armed, a wait until `closed` is 0
// stands before the first launch of a batch. After the last launch the GPU writes the batch's
// number into done[slot]. submitted[slot] says the number before the first launch. So between the
// two the monitor sees that the GPU has work of this client.
//
//     submitted = n | wait closed == 0 | launch ... launch | GPU: done = n
//     └── begin() of the first ──┘                         └── begin() of the next, or settle()
//
// A batch is full when it is worth the spacing that the monitor asks for (spacing.h, costs.h). The
// next launch ends it: its number and the next wait are one call to the driver. It also ends before
// a launch that would make it worth much more, and before each wait of the CPU and each host
// function. The end of its stream ends it, too. Without that, a client that waits would look busy
// for ever. A graph is a batch of its own. While nothing waits, only numbers stand, and a full
// batch gets its own at once, by end(). When the CPU finds that the GPU has done all of a stream's
// work, it writes the number itself.
//
// A *slot* belongs to one stream at a time; another takes it over when all its numbers are done.
// When all of a GPU's slots have work, further streams are gated and not numbered.
//
// Handles: a thread writes to a stream only if its current context is the one that the stream was
// launched into from. It never writes during a capture, or after the stream was destroyed. A thread
// that passes by holds off captures that begin meanwhile (work_guard.h: Askable). A per-thread
// default stream is written to by its own thread alone.
//
// Threading: any thread. A slot has a lock, held while its wait or number is put into the stream.
// The driver may block there when the queue is full. Nothing that opens a gate ever takes it.
#pragma once

#include <cstdint>

#include "shim/driver.h"
#include "shim/gate/timing.h"
#include "shim/gate/view.h"
#include "shim/work_guard.h"

namespace switchyard::shim::numbers {

struct Slot;

enum class WorkKind { kLaunch, kGraph };

// Work for a stream: its sort and its kernel.
struct Work {
  WorkKind kind = WorkKind::kLaunch;
  costs::Kernel kernel;
};

struct StreamPlace {
  unsigned lane = 0;
  CUstream stream = nullptr;
  bool per_thread = false;  // null means the thread's own stream
};

// One launch between begin() and end().
struct BegunLaunch {
  Slot* slot = nullptr;
  bool last = false;  // it fills its batch
  timing::Timed timed;
};
struct Asked {
  bool armed = false;   // waits, too
  bool linger = false;  // a graph's batch is ended by the wait for it (linger.h)
};
BegunLaunch begin(const StreamPlace& place, view::View& view, Work work, Asked asked);
void end(const BegunLaunch& piece);

// Ends the open batches of a GPU's streams, as far as this thread may write to them. Never waits
// for another thread, nor for the GPU. A stream whose queue may be full is left alone, unless the
// caller named it. False: one was.
bool settle(unsigned lane, const StreamPlace* named = nullptr);

// The number that ends a batch, and where the GPU has to write it.
struct Due {
  CUdeviceptr word = 0;  // 0: no batch is open
  std::uint32_t number = 0;
  explicit operator bool() const { return word != 0; }
};

// The stream of a GPU that work was put into last, held still: nobody destroys it meanwhile. False
// when there is none that this thread, whose context is `context`, may write to, or its queue may
// be full.
class Latest {
 public:
  Latest(unsigned lane, CUcontext context);
  ~Latest();
  Latest(const Latest&) = delete;
  Latest& operator=(const Latest&) = delete;
  explicit operator bool() const { return slot_ != nullptr; }
  CUstream stream() const;
  // What its open batch lacks.
  Due due() const;
  // The caller has put that behind the stream's work, into a stream of its own: the batch is ended.
  void lent();

 private:
  swap::Askable may_touch_;
  Slot* slot_ = nullptr;
};

// Batches stay open when the program no longer launches, waits or asks. They count as done after a
// second: else a client that sits at a prompt would look busy for ever. For the service thread.
void give_up_stale(std::uint64_t now_ns);

// Looks at the GPU's progress now, because the CPU has just waited for it.
void look(unsigned lane);

// The stream is about to be destroyed.
void forget(CUstream stream);

// The context is about to end, and with it its registration of the withdrawn view. Waits a moment
// for work that other contexts have queued before that view.
void wait_for_others(const view::View& view, unsigned lane, std::uint64_t owner);

// The context has ended and its work with it (owner: memory/owner.h).
void context_gone(unsigned lane, std::uint64_t owner);

// In a forked child.
void clear();

}  // namespace switchyard::shim::numbers
