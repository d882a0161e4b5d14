// Handing memory over: what leaves this process is given to the one that comes, as it is.
//
// Concept. switchyard/handover.h says what both sides do, and why. The donor makes the *offer*. It
// exports the memory that is about to leave while its work still runs, so that the other can import
// that in time. The recipient has *taken* memory, which stays apart until the donor has begun. Then
// the pipeline maps it where equal chunks are away, and fills each as soon as it has left the
// donor.
//
// All of it is a short cut. Memory that fails or isn't equal is given back to the driver and made
// anew, as if there were no hand-over.
//
// Threading: the mover's thread of `lane`. Mapped memory can be freed by others: it belongs to the
// ranges.
#pragma once

#include <cstdint>

#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::swap::handover {

// --- the donor ---

// Offers what would leave next of the GPU's memory, `bytes` in all, in the monitor's hand-over
// `number`, unless that was done; nothing with number 0. An offer in another one ends. Work may go
// on: an offer of which something has been freed ends, too. Whether one stands. pre: no ChunksLock
// lives.
bool prepare(unsigned lane, std::uint64_t bytes, std::uint64_t number);

// The offer while it leaves: prepared before, or now. Until end_offer() has_left() tells the other.
// pre: nobody new is admitted, and no ChunksLock lives.
void offer(unsigned lane, std::uint64_t bytes, std::uint64_t number);
// The accepted work is done.
void begin_offer(unsigned lane);
// Memory that has not left by now stays. Before anything is made anew: what is offered isn't free.
void end_offer(unsigned lane);

// Whether one stands.
bool offers(unsigned lane);
// A chunk's contents are safe, and `handle`, which was mapped there, is released.
void has_left(unsigned lane, CUdeviceptr address, CUmemGenericAllocationHandle handle);

// --- the recipient ---

// Whether there is an offer to wait for. Looks after `number`, the one that the monitor told last.
// Takes the memory that is offered in it as soon as possible, at once if it is `due`. Drops it once
// it can't be used any more. pre: no ChunksLock lives; if this process's memory isn't `away`, it
// wants none.
bool follow(unsigned lane, std::uint64_t number, bool away, bool due = false);
// Whether something was taken. Memory that comes meanwhile waits for that: made anew, it would be
// there twice.
bool is_taken(unsigned lane);
// Whether the donor's memory leaves now.
bool begun(unsigned lane);

// Whether the donor gives no more than what is free now.
bool ended(unsigned lane);

// Puts some of the taken memory in its place, mapped where equal chunks of the GPU are away. It
// does so in the order in which the memory leaves the donor. Memory that finds no place is given
// back. False: all was done. pre: a ChunksLock lives, and a context is current.
bool put_in_place(unsigned lane);

// A chunk whose memory is in its place and has left the donor. Once accepted it is the chunk's own,
// and may be filled.
struct Arrival {
  Chunk* chunk = nullptr;
  CUdeviceptr address = 0;
  std::uint32_t number = 0;
};
// pre: a ChunksLock lives, for these.
bool next_arrival(unsigned lane, Arrival& arrival);
void accept(unsigned lane, const Arrival& arrival);
// The bytes that are or will be in their place, and have not been accepted.
std::uint64_t expected_bytes(unsigned lane);
// Gives back whatever was taken and not accepted, mapped or not.
void drop(unsigned lane);

// In a forked child: the parent's memory is not ours.
void clear();
void forget_offer();  // clear() does

}  // namespace switchyard::shim::swap::handover
