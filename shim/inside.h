// Counts the threads inside a call of the driver: none may be there while the process's contexts
// are away.
//
// Concept. While the driver has checkpointed the process (checkpoint/checkpoint.h), whoever calls
// the driver sleeps inside it, unseen, until the process is restored. So a swappable process counts
// its threads in at each intercepted call (doors/table.cpp), and every call of the driver's is
// intercepted. A thread that comes while it is closed sleeps here instead, and the monitor sees
// that it wants to work. That is how the first call brings the contexts back.
//
// A thread that sleeps in the library, inside a call, is Outside meanwhile.
//
// Threading: any thread. An Inside and an Outside live on one thread's stack, and nest.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/client/process.h"
#include "shim/no_copy.h"

namespace switchyard::shim {

class Inside : NoCopy {
 public:
  // Sleeps while it is closed; does nothing in a process whose memory can't be moved.
  Inside() : counted_(process().swappable.load(std::memory_order_relaxed) != 0) {
    if (counted_) [[unlikely]]
      enter();
  }
  ~Inside() {
    if (counted_) [[unlikely]]
      leave();
  }

 private:
  static void enter();
  static void leave();

  bool counted_;
};

// The calling thread is in no call of the driver's while one lives. Its end may sleep.
class Outside : NoCopy {
 public:
  Outside();
  ~Outside();
  // Ends it at once, if it isn't closed: for who holds a lock.
  bool try_end();

 private:
  unsigned depth_;
};

namespace inside {

// One look of a mover, which calls the driver too. Not `admitted` while the contexts of another
// GPU are away.
class MoverLook : NoCopy {
 public:
  explicit MoverLook(unsigned lane);
  ~MoverLook();
  bool admitted() const { return admitted_; }

 private:
  bool admitted_;
};

// --- for a mover, inside its look ---

// Nobody new comes in, and who was has come out, other movers too. False: not by `deadline_ns`; it
// is open again. `lane`: whose contexts leave, where the monitor sees who waits.
bool close(unsigned lane, std::uint64_t deadline_ns);
bool is_closed();
void open();

}  // namespace inside

// Sleeps for a moment, or until `word` is woken or isn't `seen` any more. The monitor sees a thread
// that wants to work on the GPU of this lane.
void sleep_held(std::atomic<std::uint32_t>& word, std::uint32_t seen, unsigned lane);

}  // namespace switchyard::shim
