// The CPU's side of a closed gate: threads that sleep before they enter the driver.
//
// Concept. Behind a closed gate a thread that puts work on the GPU, or waits for it, would wait
// inside the driver. Once a queue is full, it would hold the driver's locks. So it sleeps here
// instead, on the word `closed` itself (a futex that the monitor wakes). The naps are bounded and
// nothing is taken for granted after one: the page may be another monitor's by now.
//
// Nobody needs the driver, or any lock of ours, to open a gate: it is one store into the page, by
// the monitor. When the monitor is gone, the library itself opens the gates that the monitor had
// closed for other jobs. A person's pause stays until its own time-out.
//
// A thread inside a call that other processes wait for (nccl/thread.h) isn't held: it was before.
//
// Threading: any thread.
#pragma once

#include "switchyard/abi.h"

namespace switchyard::shim {

// Not 0: the calling thread isn't held. Not thread_local, as t_lane (client/process.h).
extern __thread unsigned t_not_held;

// Whether the monitor still lives, as one sleeper sees it. The service thread looks, too; this is
// for when it can't.
class Ear {
 public:
  bool silent();

 private:
  std::uint64_t beat_ = 0;
  std::uint64_t heard_ns_ = 0;
};

// Sleeps while the gate of `lane` is closed.
void hold(unsigned lane);

// One nap of a sleeper on `word` while it is `seen`, counted in `sleepers`. Then, if there is no
// monitor, open_without_monitor().
void nap_on(abi::Word32& word, std::uint32_t seen, abi::Word32& sleepers, Ear& ear);

// Wakes who sleeps on a gate's word.
void wake_held(abi::Word32& closed);

// There is no monitor: opens what isn't a person's pause, and pauses that are over. A pause's gate
// is open while memory leaves, and closed again once that has.
void open_without_monitor();

// The monitor serves no gates that this library knows: closes and opens them by what the head says.
void follow_head();

// A person's pause, for the next monitor.
struct Paused {
  bool paused = false;
  std::uint64_t until_ns = 0;
};
Paused paused();

// A pause goes on in a fresh page before anybody sees it.
void carry_pause(const abi::Page& from, abi::Page& to);

}  // namespace switchyard::shim
