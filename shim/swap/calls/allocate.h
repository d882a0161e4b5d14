// Swappable allocations: what stands in for cuMemAlloc, cuMemAllocPitch and cuMemFree, and for the
// questions whose answers would tell the difference.
//
// Concept. From 2 MiB on, an allocation of a swappable process becomes a range (range_table.h).
// Smaller ones stay the driver's own: charged, counted, never moved. The rules (rules/linear.h)
// charge and note as they do for the driver's; here is only what makes the memory.
//
// A free waits for the context's work before it unmaps, as the driver's own does: unmapping by
// itself doesn't wait. While a stream is being captured it must not wait (the capture would be
// lost), and a stream-ordered free should not. So the range is kept aside until the next free that
// finds no capture, or until an allocation finds no room or passes a quota. It stays charged until
// then. Memory that is away from the device is given back at once: no work can touch it.
//
// Threading: any thread. Allocating waits while memory is being moved.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/memory/range_table.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap {

// Whether an allocation of `bytes` on the calling thread's GPU would be swappable.
bool takes(std::uint64_t bytes);

// As cuMemAlloc. pre: takes(bytes), and nothing of ours is held: it may wait for a move.
CUresult allocate(CUdeviceptr* address, std::uint64_t bytes);

enum class Free {
  kWaits,  // as cuMemFree
  kLater,  // as cuMemFreeAsync: the caller must not wait
};

// Frees what begins at `address`. False: it is none of ours, and `result` is untouched.
bool free(CUdeviceptr address, CUresult& result, Free how = Free::kWaits);

// Memory at `address` was just freed. If it is kept aside, it stays charged with `bytes` until it
// ends. False: it has ended, so the caller gives the charge back.
bool keep_charge(CUdeviceptr address, std::uint64_t bytes);
// Ends what was freed and is kept. True: something may have ended. It may wait for the GPU.
bool reclaim();

// Whether `address` is ours and away from the device altogether: a free of it waits for nothing.
bool is_away(CUdeviceptr address);

// Frees by `original` what isn't ours.
template <typename Original, typename Pointer>
CUresult free_any(Original original, Pointer address, Free how) {
  CUresult result = CUDA_SUCCESS;
  return on() && free(address, result, how) ? result : original(address);
}

// What an application knows of its allocation, where the driver sees chunks.
struct Bounds {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;   // that it asked for
  std::size_t backed = 0;  // and what stands behind them
  CUcontext context = nullptr;
  std::uint64_t id = 0;
  SyncMemops sync = SyncMemops::kUnset;
};
// Of the allocation that `address` lies in. False as above.
bool bounds_at(CUdeviceptr address, Bounds& bounds);
// Sets SYNC_MEMOPS of it. False as above.
bool set_sync_memops(CUdeviceptr address, bool on);
// The context that an address of ours was allocated in; null: none of ours.
CUcontext context_of(CUdeviceptr address);

// Waits for all that `context` has to do. While a stream is being captured it doesn't, and says so.
CUresult wait_unless_captured(CUcontext context);

// --- for pooled.h ---

// Makes the memory of `range` (lifetime.h). Where there is no room, what is kept is given back
// first.
CUresult create_where_room(Range& range);
// Freed, and ended by the next free that may wait for its context. pre: a RangesLock lives.
void defer_free(Range& range);
// The live range that `address` lies in; null: none. pre: a RangesLock lives.
Range* live(CUdeviceptr address);
// Whether the calling thread may wait for the GPU now.
bool may_wait();

// The owner has ended (memory/owner.h): what it owned on `lane` is freed, wherever it is.
void free_owned(int lane, std::uint64_t owner);

}  // namespace switchyard::shim::swap
