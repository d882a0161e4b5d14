// Parking: memory of another GPU for what is swapped out (--park).
//
// Concept. A *slab* is memory on the neighbour, mapped at addresses of its own. The GPU that the
// chunks left reads and writes it there, over NVLink. The process needs nothing else on the
// neighbour, in particular no context. A slab has a *piece* for each of a few chunks, and is as
// large as these are together. To make and map memory of the neighbour takes longer than to copy a
// chunk over the link. It takes about as long for a large slab as for a small one. The neighbour
// has its room again when the last piece of a slab is given back.
//
//     slab     ├── piece (32 MiB) ──┼── piece (32 MiB) ──┼ … one handle, one mapping
//
// Memory can also be *kept*: it stays on the GPU that the contexts leave for another one. Meanwhile
// only a descriptor of each chunk holds it. As measured, a checkpoint and a restore on another GPU
// leave it where it is. It is mapped again when it is reached, a slab at a time, and only while a
// move lasts. The driver would take mapped memory as well.
//
//     keep()   descriptors ── contexts leave, come on another GPU ── reach()   one mapping of all
//                          └─ are back on the same GPU ── hand_over()   its own memory again
//
// The monitor says how much may be there (abi.h: park_bytes). A taker of pieces has counted them
// before, and they count until their slab is given back. So the monitor never sees less than there
// is.
//
// Threading: take() by the mover's thread of the GPU; the rest by whoever holds the ranges
// (range_table.h). The numbers: any thread.
#pragma once

#include <cstdint>

#include "shim/driver.h"

namespace switchyard::shim::swap::parking {

struct Slab;

struct ParkedPiece {
  CUdeviceptr at = 0;  // 0: it is kept, and has an address only while it is reached
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the slab
  Slab* slab = nullptr;      // null: none
  explicit operator bool() const { return slab != nullptr; }
};

// The GPU's memory that is parked or about to be, and the GPU that it is on; none: 0 bytes.
struct Parked {
  unsigned on = 0;
  std::uint64_t bytes = 0;
  bool kept = false;  // all of it: no mapping stands in a checkpoint's way
};
Parked parked(unsigned lane);

// Before a piece is taken: so much more of `lane` will be on the neighbour `on`, where all of it is
// that is parked. uncount(): it was not taken after all.
void count(unsigned lane, unsigned on, std::uint64_t bytes);
void uncount(unsigned lane, std::uint64_t bytes);
// The GPU on which it is has another lane from now on.
void is_on(unsigned lane, unsigned on);

// Pieces for memory of `lane`, in a slab of their own. Each says its bytes, which were counted.
// Fails with the driver's complaint: then there are none, and they are counted off.
CUresult take(unsigned lane, ParkedPiece* pieces, unsigned count);
// A piece for memory of `lane`, whose bytes were counted. A descriptor of memory_fd.h holds it, and
// is the piece's from here on. In `slab`, or in another one, which `slab` is then. False: no memory
// for it.
bool keep(unsigned lane, Slab*& slab, int descriptor, ParkedPiece& piece);
// Where it can be copied from. Maps kept memory for that.
CUresult reach(const ParkedPiece& piece, CUdeviceptr& at);
// Whether it is kept on the GPU of its own contexts: they did not get to another one.
bool is_at_home(const ParkedPiece& piece);
// Imports what is kept. The caller owns the handle, and the piece stays as it is.
CUresult import(const ParkedPiece& piece, CUmemGenericAllocationHandle& handle);
// Gives the caller the descriptor of what is kept, and gives the piece back later.
int hand_over(ParkedPiece& piece);
// Unmaps kept memory. pre: no copy reads it.
void leave(const ParkedPiece& piece);
// Gives one back, if there is one. pre: no copy reads or writes it.
void give_back(ParkedPiece& piece);
// The same for one whose work shall not wait for the driver's calls: its slab stays, and counts,
// until sweep(). For the mover's thread.
void give_back_later(ParkedPiece& piece);
// Whether there were such slabs. For the mover's thread.
bool sweep(unsigned lane);

// In a forked child: the parent's pieces are not there.
void clear();

}  // namespace switchyard::shim::swap::parking
