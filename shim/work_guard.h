// Admission: who may put work on the GPU while memory may be taken from under it.
//
// Concept. A kernel that touches an address whose memory has been taken away loses the context. The
// gate isn't enough here, because a thread that has just passed it goes on. A thread puts work that
// may touch memory inside a *WorkGuard*. To move memory the mover shuts the admission, waits until
// nobody is inside, and then waits for the accepted work:
//
//     open ──► shut: nobody new ──► draining: the GPUs finish ──► quiesced ──► open
//       ▲──────── not in time ──────────┴─ not in time (the service thread)
//
// Each GPU has such a state, for its memory leaves and comes by itself. Work may touch memory of
// any GPU, so it is admitted where all are open, and a drain waits for all GPUs. Once one is
// quiesced, so is every other that is not open: the first drain has waited for what the second
// would wait for.
//
// A thread that arrives while one isn't open sleeps. A process whose memory isn't swappable never
// comes here: one bit of its lanes' `attention` is not set (abi.h: kSwappable).
//
// Guards nest: a callback that puts work inside another call is inside already. Around a wait for
// the GPU there is no WorkGuard: the mover would wait for the waiter.
//
// Threading: any thread. The count is spread over cache lines. A WorkGuard lives on one thread's
// stack.
#pragma once

#include <cstdint>

#include "shim/client/process.h"
#include "shim/driver.h"
#include "shim/no_copy.h"

namespace switchyard::shim::swap {

// On how many GPUs this process's memory is swappable: on all that it sees, or on none.
inline unsigned lanes() { return process().swappable.load(std::memory_order_relaxed); }
inline bool on() { return lanes() != 0; }

class WorkGuard : NoCopy {
 public:
  // Sleeps until it is admitted; does nothing unless `needed`.
  explicit WorkGuard(bool needed = true) : needed_(needed) {
    if (needed_) [[unlikely]]
      enter();
  }
  ~WorkGuard() {
    if (needed_) [[unlikely]]
      leave();
  }

 private:
  static void enter();
  static void leave();

  bool needed_;
};

// A question to the driver, or a wait for the GPU, that we make on our own account would end any
// capture in the process. So it is made while one of these lives that says yes: nobody captures. A
// thread that begins a capture counts it (process().captures), and then waits for those that have
// said yes before.
class Askable : NoCopy {
 public:
  Askable();
  ~Askable();
  explicit operator bool() const { return yes_; }

 private:
  bool yes_;
};

// The driver looks for captures when it is called, not while it waits. And what it waits for may
// wait for the calling thread. So this returns once all have ended, or are inside the driver for
// sure. pre: the capture that is about to begin is counted.
void let_questions_begin();

namespace admission {

// Sleeps until all are open; one may be shut again when this returns.
void wait_until_open();
// Whether all are.
bool is_open();
// Whether the calling thread is inside a WorkGuard.
bool inside();

// --- the side of a GPU's mover, one thread for each ---

bool is_open(unsigned lane);
// From open: nobody new is admitted. False: it wasn't open.
bool shut(unsigned lane);
// Whether nobody is inside any more.
bool empty();
// The accepted work is waited for now, until `deadline_ns` at most (CLOCK_MONOTONIC).
void drain_until(unsigned lane, std::uint64_t deadline_ns);
// False once it was opened meanwhile.
bool draining(unsigned lane);
// The accepted work is done. False: it was opened meanwhile, so new work may be there.
bool mark_quiesced(unsigned lane);
bool is_quiesced(unsigned lane);
// Whether any is. Where `lane` isn't open meanwhile, no work is left that could touch its memory.
bool any_quiesced();
// From whatever it is.
void open(unsigned lane);

// For the service thread, often. Where accepted work was not done in time, it opens all admissions
// that are being drained: the movers' own waits can't end by themselves. All, for the work may wait
// for a thread that each of them holds. True: one is being drained, so look again soon.
bool overrule(std::uint64_t now_ns);

}  // namespace admission

// --- the drain: the mover's thread of that GPU alone ---
//
// Before memory moves nobody is inside a call that puts work, and the GPU has finished what was
// accepted. Both steps are bounded: a thread inside a call may stand behind work that waits for a
// held thread, and so may the GPU.

// Nobody new is admitted, and the calls that were have ended. False: not in time. Not while anybody
// captures: the capture's next call might stand outside, and a wait for the context would end the
// capture.
bool block_new_work(unsigned lane);

// The GPU's memory is quiesced: the accepted work has ended, of every context of all GPUs, for each
// can touch the memory. Not ready: not in time. One drain at a time. A second waits for the first
// and has its result, else it would wait for the copies that follow the first. pre:
// block_new_work(lane). Another context of the GPU may be current afterwards.
CUresult drain(unsigned lane);

}  // namespace switchyard::shim::swap
