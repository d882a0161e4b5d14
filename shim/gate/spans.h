// Times collectives on the GPU, and the waits of its busiest stream, for the monitor's statistics
// (abi.h: Timings).
//
// Concept. Events (timers.h) stand around each, and what was read goes into the page's ring. The
// beginnings are told on one clock, so the monitor can see what ran at the same time:
//
//     busiest stream   kernels kernels ▒▒ waits ▒▒ kernels     ▒: the collective is not hidden
//     another stream           [ collective       ]
//
// The busiest stream is the one with most of the launches. Where there is none, and for a
// collective in the busiest stream itself, nothing is computed meanwhile as far as we see. Nothing
// is put into a stream that is captured. Each launch that was not timed, for any reason, leaves a
// mark before the next timing. Each timing counts against the number that the monitor allows.
//
// A collective's first operations connect the ranks inside the call, while its stream is already at
// the event before it. Such a call is seen by its length, and its timing is dropped.
//
// Threading: any thread; no lock is waited for.
#pragma once

#include <cstdint>

#include "shim/client/process.h"
#include "shim/gate/timers.h"
#include "shim/no_copy.h"

namespace switchyard::shim::spans {

// Whether the monitor wants timings of this lane's GPU.
inline bool wanted(const abi::Lane& lane) {
  return (lane.attention.load(std::memory_order_relaxed) & abi::kTimeCollectives) != 0;
}

// The program launches into a stream: by this it is seen which is the busiest. pre: wanted().
void note_launch(unsigned lane, CUstream stream, bool per_thread);
bool is_busiest(unsigned lane, CUstream stream, bool per_thread);

// Something that can't be timed one by one, or isn't: a mark stands before the next timing.
void miss(unsigned lane);
// A graph with collectives is launched.
void graph(unsigned lane);

// A timing under way, between Span::begin and its end.
struct Begun {
  timers::Running running;
  unsigned lane = 0;
  std::uint64_t began_ns = 0;  // of a collective
};
// `good`: it was launched. Nothing, where nothing was begun.
void end(const Begun& begun, bool good);

// Around the call that launches what is timed. It does nothing unless it is begun.
class Span : NoCopy {
 public:
  Span() = default;
  // what: abi::collective_record, or a mark. pre: wanted(); the stream is the GPU's.
  void begin(unsigned lane, CUstream stream, bool per_thread, std::uint32_t what);
  void end(bool good) { spans::end(begun_, good); }
  // Instead of an end: who has this ends it.
  const Begun& pass_on() const { return begun_; }

 private:
  Begun begun_;
};

// As timing.h.
void suspend(unsigned lane, std::uint64_t owner);
void lives_on(unsigned lane, std::uint64_t owner);
void context_gone(unsigned lane, std::uint64_t owner);
void clear();

}  // namespace switchyard::shim::spans
