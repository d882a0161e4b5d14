// Handing memory over: what leaves this process is given to the one that comes, as it is.
//
// Concept. switchyard/handover.h says what both sides do, and why. The *offer* is the giver's: it
// exports what is about to leave, while its accepted work still ends, so that the other can import
// that in time. What was *taken* is the taker's: it stays apart until the giver has begun; then the
// pipeline maps it where equal chunks are away, and fills each as soon as it has left the giver.
//
// All of it is a short cut: whatever fails, and whatever isn't equal, is given back to the driver
// and made anew, as if there were no hand-over.
//
// Threading: the mover's thread alone.
#pragma once

#include <cstdint>

#include "shim/swap/ranges.h"

namespace switchyard::shim::swap::handover {

// --- the giver ---

// Offers what leaves next of the GPU's memory, `bytes` in all, in the monitor's hand-over `number`;
// nothing with number 0. While it lives has_left() tells the other.
// pre: nobody new is admitted, and no Held lives.
class Offer {
 public:
  Offer(unsigned lane, std::uint64_t bytes, std::uint64_t number);
  ~Offer();
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;

  // The accepted work is done.
  void begin();
  // What has not left by now stays. Before anything is made anew: what is offered isn't free.
  void end();
};

// A chunk's contents are safe, and `handle`, which was mapped there, is released.
void has_left(CUdeviceptr address, CUmemGenericAllocationHandle handle);

// --- the taker ---

// Whether there is an offer to wait for. Looks after `number`, which the monitor told last: takes
// what is offered in it as soon as that can be had, and drops it once it can't be used any more.
// pre: no Held lives; if this process's memory isn't `away`, it wants none.
bool follow(std::uint64_t number, bool away);
// Whether the giver's memory leaves now.
bool begun();

// A chunk of this process that is away, and one that is offered for it.
struct Match {
  Chunk* chunk = nullptr;
  CUdeviceptr address = 0;
  CUmemLocation location = {};
  std::uint32_t offered = 0;
};

// Matches what was taken with chunks of the GPU that are away, in the order in which it leaves the
// giver. The array is this room's, until drop(). pre: a Held lives.
std::uint32_t match(unsigned lane, const Match*& matches);
// Maps one at its address; nobody may touch it before permit(). False: it is not to be had.
bool map(const Match& match);
// Whether its contents have left the giver, and it isn't accepted yet. Then it may be filled,
bool is_free(const Match& match);
// and is the chunk's own from here on.
void accept(const Match& match);
bool is_accepted(const Match& match);
// Whether the giver gives no more than what is free now.
bool ended();
// Gives back whatever was taken and not accepted, mapped or not.
void drop();

// In a forked child: the parent's memory is not ours.
void clear();
void forget_offer();  // clear() does

}  // namespace switchyard::shim::swap::handover
