// The movers: the threads that take a swappable process's memory off its GPUs and bring it back,
// one for each GPU.
//
// Concept. The monitor's word is a level, not an order (abi.h: Residency), of each GPU: its mover
// looks at it whenever it is poked, and works towards it.
//
//     limit below what is there    shut the admission, drain, then chunk by chunk: copy to the
//                                  host, unmap, release
//     no limit, some is away       chunk by chunk: create, map, give access, copy back; then open
//
// Copies of several chunks are in flight while the CPU unmaps or maps others, so the link is the
// bound. A failure leaves each chunk either on the device or in the host, never nowhere.
//
// Between moves it makes memory whole that is to be given to others (consolidation_request.h). It
// also grows the host pool for the next move, or shrinks it for the sake of others
// (pool_shrinking.h).
//
// It copies by a context of the process. Where none is left, work is admitted though memory is
// away: it will fail by itself, and nobody is held for ever. With the next context it comes back.
//
// Threading: one thread per process and GPU, made with the first swappable allocation there; poke()
// from any thread. It holds the ranges (range_table.h) during a move, and no lock while it drains.
#pragma once

#include <cstdint>

#include "shim/no_copy.h"

namespace switchyard::shim::swap::mover {

// Makes the thread of a GPU, once per process. Where the system refuses, the next allocation tries
// again, and so does the service thread.
void start(unsigned lane);
void start_again();

// The page, or what is allocated, has changed. When the monitor rings, the client itself wakes the
// mover (client/process.h).
void poke();

// Around the end of a context: no mover uses any meanwhile.
class Standstill : NoCopy {
 public:
  Standstill();
  ~Standstill();

 private:
  void unlock_all() const;

  unsigned locked_;  // movers, the first ones
};

// A context of a GPU begins where there was none, perhaps. Memory that was left away for the lack
// of one comes back before any thread works in it. The GPU also reaches the memory of the others.
void context_made(unsigned lane);

// How much there is to move is told by whoever makes and ends it, under RangesLock.
void allocated(unsigned lane, std::uint64_t bytes);
void freed(unsigned lane, std::uint64_t bytes, std::uint64_t resident_bytes);

}  // namespace switchyard::shim::swap::mover
