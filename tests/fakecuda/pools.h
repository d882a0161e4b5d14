// Stream-ordered memory: pools that reserve in slabs and hand out pieces in stream order.
//
// Concept. A pool reserves slabs (Backings, mapped once) and cuts them. An allocation takes its
// piece when the call is made; a free gives it back when the stream gets there. Reserved memory
// above the release threshold goes back to the GPU after a wait, or by a trim.
//
// Threading: one lock for all pools (Pools::lock), a leaf under ops_lock.
#pragma once

#include "memory.h"

namespace fakecuda {

struct Slab {
  BackingRef backing;
  std::map<std::size_t, std::size_t> holes;  // offset → bytes
};

struct Pool {
  int gpu = 0;
  bool is_default = false;
  bool alive = true;
  bool of_host = false;  // pinned memory of the host, which takes nothing of the GPU
  CUmemAllocationHandleType handle_types = CU_MEM_HANDLE_TYPE_NONE;
  std::size_t max_bytes = 0;
  std::map<CUdeviceptr, Slab> slabs;
  int reuse[3] = {1, 1, 1};
  std::uint64_t threshold = 0, reserved = 0, reserved_high = 0, used = 0, used_high = 0;
};

struct Pools {
  std::mutex lock;
  std::set<Pool*> all;
  Pool* defaults[kMaxGpus] = {};
  Pool* current[kMaxGpus] = {};
};

Pools& pools();

// REQUIRES for these: the pools' lock.
Pool* default_pool(int gpu);
Pool* current_pool(int gpu);
Pool* pool_of(CUmemoryPool handle);  // null when the handle isn't a living pool
void trim(Pool* pool, std::uint64_t keep);

// These take it. 0: out of memory.
CUdeviceptr allocate_from(Pool* pool, std::size_t bytes);
void free_now(const Range& range);

}  // namespace fakecuda
