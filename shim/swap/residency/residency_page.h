// The words of swap: what the monitor and the library tell each other in the page (abi.h:
// Residency), and how much memory there is to tell of.
//
// Concept. The sums and what the mover said last are kept here. The page changes under us when one
// monitor follows another, and what was said in between must reach the fresh one. Only the mover
// says phases and errors, each with the order that they answer.
//
// Threading: any thread. Each word is an atomic. The sums are published under a lock of their own,
// so that two writers at once don't leave the older figures.
#pragma once

#include <cstdint>

#include "shim/swap/transfer/pipeline.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap::residency_page {

// Decides once, before the process allocates any memory, whether that may be moved. It sees `gpus`
// GPUs. Memory stays where these cannot reach each other, and in a process that had contexts before
// it joined first. pre: joined.
void choose_swappable(unsigned gpus);

// Swappable memory of a GPU, wherever it is, and what of it is on the device.
std::uint64_t total(unsigned lane);
std::uint64_t resident(unsigned lane);
// Told by the pipeline (Resident). The monitor hears of each chunk: what has left is another's room
// at once.
void resident_changes(unsigned lane, std::int64_t bytes);
void publish(unsigned lane);

// Whether there is a monitor.
bool monitored();
// Whether work is to be held, and what may be on the device meanwhile. Without a monitor there is
// nobody to make room for, unless a person's release still stands, or the memory of another GPU has
// made way.
struct Told {
  bool limited = false;
  std::uint64_t limit = UINT64_MAX;
  bool detaches = false;  // the contexts are to leave as well
};
Told told(unsigned lane);
// Without a monitor: the GPU's memory lacks room and has made way, until it is tried again. That of
// the process's other GPUs makes way meanwhile, or two processes could each keep one GPU and wait
// for the other.
void made_way(unsigned lane, std::uint64_t until_ns);
// The hand-overs in which it may give and take (handover.h); 0: none.
std::uint64_t gives(unsigned lane);
std::uint64_t takes(unsigned lane);
// What will leave shortly, and may be offered already.
std::uint64_t soon(unsigned lane);
// Pinned memory of the host that may be kept.
std::uint64_t host_limit(unsigned lane);

// The request that the host pool be unpinned while work goes on (abi.h: unpin); 0: there is none.
std::uint32_t unpin_asked(unsigned lane);
// Whether what is on the GPU is copied to the host before that.
bool precopy_asked(unsigned lane);
bool unpin_answered(unsigned lane, std::uint32_t request);
// Says nothing if it stands no more.
void answer_unpin(unsigned lane, std::uint32_t request);

// Where what leaves may be parked, and how much of it: `bytes` of 0 is nowhere. Without a monitor
// nobody could ask for the room there.
struct Park {
  unsigned on = 0;
  std::uint64_t bytes = 0;
  bool only = false;   // and nothing in the host
  bool keeps = false;  // `on` is the GPU that it leaves: it is kept there (parking.h)
};
Park park(unsigned lane);
// Whether so much more may be parked, and then it is counted. Told by the pipeline (MayPark).
bool may_park(unsigned lane, std::uint64_t bytes);
// The same of what is kept.
bool may_keep(unsigned lane, std::uint64_t bytes);
// The contexts have come on a GPU: what is kept may be on another lane's from now on.
void follow_kept(unsigned lane);
// Parked memory has left: the monitor hears of each chunk, because another job waits.
void parked_left(unsigned lane);

// Takes note of the monitor's order: what is said from now on answers this one. Call it before
// told(), which then answers with the limits of this order or of a later one.
void heed(unsigned lane);
// Says how far it is, and rings.
void say(unsigned lane, std::uint32_t phase, std::uint32_t error);
// Whether this phase is the answer to the order that was heeded last.
bool has_said(unsigned lane, std::uint32_t phase);
// The driver's result that belongs to the error that is said next.
void failed_with(unsigned lane, CUresult result);

// Adds up the moves (abi.h: Memory), by direction; a move that came to its end; work was held, and
// what had to leave has left.
void count_out(unsigned lane, const Moved& moved);
void count_in(unsigned lane, const Moved& moved);
void count_end(unsigned lane);
void count_time_out(unsigned lane);

// Writes its state into the fresh page of another monitor, before that is shown.
void carry_over(abi::Page& fresh);
// Once the fresh page is in its place: what was said meanwhile went into the old one.
void moved_to_fresh_page();

}  // namespace switchyard::shim::swap::residency_page
