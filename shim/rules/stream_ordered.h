// Rules for stream-ordered memory: cuMemAllocAsync, FromPool, FreeAsync, pools, and the calls that
// synchronise, at which the driver shrinks its pools.
//
// Concept. See pools.h. In a swappable process large allocations are made by swap/calls/pooled.h
// instead of the driver; they are charged there. An allocation into a stream that is being captured
// becomes a node of a graph. It allocates when the graph runs, and graph_memory.h charges it.
//
// Threading: any thread.
#pragma once

#include "shim/capture.h"
#include "shim/client/process.h"
#include "shim/gate/gate.h"
#include "shim/island/faults.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"
#include "shim/rules/graph_memory.h"
#include "shim/rules/linear.h"
#include "shim/swap/calls/pooled.h"

namespace switchyard::shim::rules {

// The GPU of a stream; -1 when the work on it isn't ours to count.
int device_of(CUstream stream);

// Allocates by `call` from a pool that is known to us or not.
template <typename Call>
CUresult allocate_pooled(CUmemoryPool pool, CUdeviceptr* address, size_t size, CUstream stream,
                         bool per_thread, Call call) {
  // Without an address it fails, so it takes nothing.
  if (address == nullptr) return call();
  if (pool != nullptr && pools::lacks_gpu(pool)) pools::learn(pool, device_of(stream));
  pools::Growth growth;
  if (const CUresult refused = pools::begin(pool, size, growth)) return refused;
  const CUresult result = swap::pooled::with_room(call);
  const bool covered = pools::end(growth, result == CUDA_SUCCESS);
  if (result != CUDA_SUCCESS || growth.slot < 0) return result;
  if (!covered) {
    // A fragmented pool grew by more than we reserved. Over the quota nothing is handed out.
    const auto free = per_thread ? driver().cuMemFreeAsync_ptsz : driver().cuMemFreeAsync;
    if (free != nullptr && free(*address, stream) == CUDA_SUCCESS) {
      *address = 0;
      pools::freed({.bytes = size, .owner = growth.owner});
      return pools::refuse(growth);
    }
  }
  ledger::note(ledger::NoteKind::kPooled, *address, {.bytes = size, .owner = growth.owner});
  return result;
}

// The same, or by us. The driver itself refuses a question that the stream does not allow.
template <typename Call>
CUresult allocate_ordered(CUmemoryPool pool, CUdeviceptr* address, size_t size, CUstream stream,
                          bool per_thread, Call call) {
  if (swap::pooled::takes(pool, size) && !untouchable(stream, per_thread)) {
    return swap::pooled::allocate(address, size, pool, {stream, per_thread});
  }
  return allocate_pooled(pool, address, size, stream, per_thread, call);
}

// The pool that cuMemAllocAsync takes from, or null.
CUmemoryPool current_pool(CUstream stream);

template <bool kPerThread, typename Original>
CUresult allocate_async(Original original, CUdeviceptr* address, size_t size, CUstream stream) {
  if (captured(stream, kPerThread))
    return graph_memory::captured_allocation(original(address, size, stream));
  return allocate_ordered(current_pool(stream), address, size, stream, kPerThread,
                          [&] { return original(address, size, stream); });
}

template <bool kPerThread, typename Original>
CUresult allocate_from_pool(Original original, CUdeviceptr* address, size_t size, CUmemoryPool pool,
                            CUstream stream) {
  if (captured(stream, kPerThread)) {
    return graph_memory::captured_allocation(original(address, size, pool, stream));
  }
  return allocate_ordered(pool, address, size, stream, kPerThread,
                          [&] { return original(address, size, pool, stream); });
}

// Frees a pool's memory, or plain memory in stream order.
template <bool kPerThread, typename Original>
CUresult free_async(Original original, CUdeviceptr address, CUstream stream) {
  if (captured(stream, kPerThread)) return original(address, stream);
  CUresult result = CUDA_SUCCESS;
  if (swap::on() && swap::pooled::free(address, {stream, kPerThread}, result)) return result;
  return release_memory([=](CUdeviceptr at) { return original(at, stream); }, address,
                        swap::Free::kLater);
}

// Notes a pool by what it was asked for. False: it is of a kind that nothing is known of.
bool learn_pool(CUmemoryPool pool, const CUmemLocation& location, CUmemAllocationType type);

// Under a quota a pool of an unknown kind is refused: nobody could say what it takes.
template <typename Original>
CUresult pool_create(Original original, CUmemoryPool* pool, const CUmemPoolProps* properties) {
  const CUresult result = original(pool, properties);
  if (result != CUDA_SUCCESS) return result;
  if (!learn_pool(*pool, properties->location, properties->allocType) && unknown_is_refused()) {
    driver().cuMemPoolDestroy(*pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pools::made(*pool);
  if (swap::on()) swap::pooled::learn(*pool, *properties);
  return result;
}

template <typename Original>
CUresult pool_destroy(Original original, CUmemoryPool pool) {
  const int slot = pools::ending(pool);
  const swap::pooled::Ending ending(pool);
  const CUresult result = original(pool);
  if (result == CUDA_SUCCESS) {
    pools::ended(slot);
    swap::pooled::settle();
  } else {
    pools::lives_on(slot);
    ending.lives_on();
  }
  return result;
}

template <typename Original>
CUresult pool_trim(Original original, CUmemoryPool pool, size_t keep) {
  const CUresult result = original(pool, swap::on() ? swap::pooled::trim(pool, keep) : keep);
  pools::settle(pool);
  return result;
}

template <typename Original>
CUresult pool_attribute(Original original, CUmemoryPool pool, CUmemPool_attribute attribute,
                        void* value) {
  const CUresult result = original(pool, attribute, value);
  if (swap::on() && result == CUDA_SUCCESS) swap::pooled::add_ours(pool, attribute, value);
  return result;
}

// The release threshold, and resets of high-water marks.
template <typename Original>
CUresult pool_set_attribute(Original original, CUmemoryPool pool, CUmemPool_attribute attribute,
                            void* value) {
  const CUresult result = original(pool, attribute, value);
  if (swap::on() && result == CUDA_SUCCESS) swap::pooled::reset_high(pool, attribute);
  pools::settle(pool);
  return result;
}

template <typename Original>
CUresult pool_access(Original original, CUmemoryPool pool, const CUmemAccessDesc* access,
                     size_t count) {
  const CUresult result = original(pool, access, count);
  // A driver may take null for no list at all.
  if (!swap::on() || result != CUDA_SUCCESS || access == nullptr) return result;
  for (size_t i = 0; i < count; ++i) swap::pooled::access_given(pool, access[i].location);
  return result;
}

template <typename Original>
CUresult pool_export(Original original, void* out, CUmemoryPool pool,
                     CUmemAllocationHandleType type, unsigned long long flags) {
  const CUresult result = original(out, pool, type, flags);
  if (result == CUDA_SUCCESS) pools::exported(pool);
  return result;
}

// A GPU's default or current pool is asked for.
template <typename Original>
CUresult device_pool(Original original, CUmemoryPool* pool, CUdevice device) {
  const CUresult result = original(pool, device);
  if (result == CUDA_SUCCESS) pools::learn(*pool, device);
  return result;
}

#if CUDA_VERSION >= 13000
template <typename Original>
CUresult location_pool(Original original, CUmemoryPool* pool, CUmemLocation* location,
                       CUmemAllocationType type) {
  const CUresult result = original(pool, location, type);
  if (result == CUDA_SUCCESS) learn_pool(*pool, *location, type);
  return result;
}
#endif

// Streams, events and contexts that the application waits for.
template <gate::Waiting::What kWhat, typename Original, typename... Args>
CUresult synchronise(Original original, Args... args) {
  const gate::Waiting waiting(kWhat);
  const CUresult result = island::told(original(args...));
  pools::settle_all();
  swap::pooled::settle();
  return result;
}

}  // namespace switchyard::shim::rules
