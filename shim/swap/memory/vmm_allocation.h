// Allocations: memory that the application makes itself, apart from addresses (cuMemCreate,
// cuMemMap).
//
// Concept. In a swappable process the application gets a number of ours for it. Behind that number
// stands an *allocation*: chunks of physical memory that come and go. The driver maps a handle
// whole or not at all, so an allocation is made of handles of kChunk at most. Only one that others
// are really given becomes a single handle (consolidate.h). A *mapping* is an address that it is
// mapped at.
//
//     number ──► allocation ──► chunk 0 │ chunk 1 │ ...
//     mapping: address, access ──► allocation
//
// An allocation can leave the device while its one mapping is read and written by its own device
// alone, and nothing else knows of it. Then that place is a range (range_table.h), and moves as
// ranges do. In every other state it is on the device. The change to and fro is settle().
//
// Whether memory of a kind can be had the driver says at its making, so the first chunk is made as
// it was asked for. The others, and all that come back, can at most be handed over (handover.h).
// Memory that moves is never made for RDMA. nvidia-peermem, GDRCopy and GPUDirect Storage register
// memory without a CUDA call, so nothing would tell that it must stay. A registration that fails is
// better than a card that writes into memory which has left. Memory lent by address, as a dma-buf,
// stays from then on, so it is made as it was asked for.
//
// It lives as long as the driver's own would: until the last of its references and places.
//
// Threading: whoever reads or changes any of it holds `RangesLock`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/memory/range_table.h"
#include "switchyard/stays.h"

namespace switchyard::shim::swap {

using Handle = CUmemGenericAllocationHandle;

// Whether what stands behind an allocation that was asked for RDMA can be registered.
enum class Rdma : std::uint8_t { kCleared, kWanted, kAsAsked };

struct VmmAllocation {
  Handle number = 0;  // what the application knows it by
  std::uint64_t bytes = 0;
  unsigned lane = 0;
  CUmemAllocationProp asked = {};  // what it is made with
  CUmemAllocationProp got = {};    // what the driver says that it has become
  std::uint32_t references = 1;
  std::uint32_t places = 0;
  CUdeviceptr sum = 0;           // of its places' addresses: of a single place, its address
  Stays stays = Stays::kLeaves;  // others know of it, so it never moves again
  Stays told = Stays::kLeaves;   // why it can't leave as things are, as memory/stays.h counts it
  bool reached = false;          // somebody had access once: it has contents
  Rdma rdma = Rdma::kCleared;    // as asked: then it stays
  CUdeviceptr range = 0;         // where it is a range; 0: it can't leave
  Chunk* chunks = nullptr;
  unsigned count = 0;
};

inline constexpr unsigned kOtherLocations = 63;  // the last bit of what follows

struct Mapping {
  CUdeviceptr address = 0;
  VmmAllocation* allocation = nullptr;
  bool own_access = false;    // its own device may read and write
  std::uint64_t others = 0;   // who else has access: devices by number, the last bit for all else
  std::uint64_t id = 0;       // new_id()
  std::uint64_t readers = 0;  // who may read only, in the same way, its own device included

  std::uint64_t key() const { return address; }
};

namespace vmm_allocations {

// No driver's handle: neither an address nor a small number looks like that.
inline bool is_number(Handle handle) { return handle >> 48 == kIdTag; }

// An allocation without memory, in no table; null: no memory for it.
VmmAllocation* make(std::uint64_t bytes, const CUmemAllocationProp& properties);
// Creates the chunks that it lacks; on failure it has as few as before. Holds nothing.
CUresult fill(VmmAllocation& allocation);
// Gives back what stands behind it, and the allocation. The driver's first complaint.
CUresult destroy(VmmAllocation* allocation);
bool is_there(const VmmAllocation& allocation);
// The properties of its chunks when they come back.
CUmemAllocationProp kind_of(const VmmAllocation& allocation);
// The driver is asked what its memory has become.
void learn_kind(VmmAllocation& allocation);

// At one address: its chunks, or nothing where one fails.
CUresult map_chunks(const VmmAllocation& allocation, CUdeviceptr address);
// The first `count` chunks, as far as they are there. The driver's first complaint.
CUresult unmap_chunks(const VmmAllocation& allocation, CUdeviceptr address, unsigned count);

// --- the tables. pre: a RangesLock lives, for all below ---

// Adds it and gives it its number. False: no memory for it.
bool add(VmmAllocation& allocation);
// By a number that the application holds a reference of; null: there is none.
VmmAllocation* find(Handle number);
// The place that `address` lies in; null: none. Valid until the next place comes or goes.
Mapping* mapping_of(CUdeviceptr address);

// Places [first, last) that [address, address + size) meets, and whether it covers them whole.
struct Span {
  std::size_t first = 0;
  std::size_t last = 0;
  bool whole = true;
  bool empty() const { return first == last; }
};
Span span_of(CUdeviceptr address, std::uint64_t size);
Mapping& mapping_at(std::size_t index);
// All of an allocation's. They neither come nor go meanwhile.
template <typename Act>
void each_place(const VmmAllocation& allocation, Act act) {
  const Span all = span_of(0, UINT64_MAX);
  for (std::size_t i = all.first; i < all.last; ++i) {
    if (mapping_at(i).allocation == &allocation) act(mapping_at(i));
  }
}

// pre: the allocation is mapped there. False: no memory for it.
bool add_mapping(VmmAllocation& allocation, CUdeviceptr address);
// The mapping is gone. The allocation is where it was, or ends with it.
void end_mapping(std::size_t index);

// The allocation becomes a range, or is none any more. pre: it is on the device, or its contents
// are not wanted.
void settle(VmmAllocation& allocation);
// It ends if nothing refers to it any more.
CUresult end_if_unused(VmmAllocation& allocation);

// In a forked child: the parent's memory is not ours.
void clear();

}  // namespace vmm_allocations
}  // namespace switchyard::shim::swap
