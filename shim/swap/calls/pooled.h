// Pooled memory: stream-ordered allocations that can leave the device.
//
// Concept. In a swappable process an allocation of 2 MiB or more from a pool of its device becomes
// a range (range_table.h). It is there at once, earlier than stream order promises. A free puts an
// event into the stream, and the range into its pool's *cache*:
//
//     allocate ──► live ── free in stream order ──► cached, behind an event ──► given back
//                   ▲                                 │
//                   └── the same size, and the same stream or the event has come ──┘
//
// Some memory stays the driver's: the pool itself, smaller allocations and captured ones (a graph's
// memory). So do pools that others may know: exportable ones, ones with a maximal size, and those
// that another device has been given access to. To the application both parts are one pool: its
// attributes are sums, its threshold and its trims count both. (High marks are sums, too: at most
// too high, by what the two parts did not have at the same time.)
//
// Cached memory is charged, as all that a pool reserves. Each range carries its own charge from its
// making to its end. It belongs to its pool and to no context, as the driver's own does.
//
// A cached range's contents are nobody's: a move gives it back instead of copying it.
//
// A process that has made a green context allocates by the driver from then on (stream_event.h).
//
// Threading: any thread; what is known of pools is guarded by RangesLock (range_table.h). The
// driver is asked whether an event has come only while nothing is captured (work_guard.h: Askable).
#pragma once

#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/memory/pool_cache.h"
#include "shim/swap/memory/retry_on_oom.h"
#include "shim/swap/memory/stream_event.h"

namespace switchyard::shim::swap::pooled {

// The application has made a pool.
void learn(CUmemoryPool pool, const CUmemPoolProps& properties);
// Somebody is given access to it. Unless that is its own GPU, no more of it moves. The process's
// other GPUs reach earlier allocations anyway (memory/peers.h); nothing else does.
void access_given(CUmemoryPool pool, const CUmemLocation& to);

// Whether an allocation of `bytes` from `pool` would be swappable. pre: its stream isn't captured.
bool takes(CUmemoryPool pool, std::uint64_t bytes);
// Charged. pre: takes(), and nothing of ours is held: it may wait for a move.
CUresult allocate(CUdeviceptr* address, std::uint64_t bytes, CUmemoryPool pool, Order order);
// As cuMemFreeAsync. False: no pooled memory of ours is there, and `result` is untouched.
bool free(CUdeviceptr address, Order order, CUresult& result);

// The pool of what is at an address. False: none of ours.
bool pool_of(CUdeviceptr address, CUmemoryPool& pool);

// At a call that synchronises, where the driver's pools shrink: so do ours.
void shrink();
inline void settle() {
  if (cache::any()) shrink();
}

// Gives back all that is cached, and waits for it where the calling thread may wait. False: there
// was nothing. pre: nothing of ours is held.
bool reclaim();

// Calls, once more where memory lacked that was only cached, and again where room is on its way.
template <typename Call>
CUresult with_room(Call call) {
  CUresult result = call();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && reclaim()) result = call();
  return result == CUDA_ERROR_OUT_OF_MEMORY ? retry_on_oom(call) : result;
}

// Of cuMemPoolTrimTo: what the driver's part may keep, once ours has shrunk.
std::uint64_t trim(CUmemoryPool pool, std::uint64_t keep);

// Adds ours to what the driver says; a high mark was reset.
void add_ours(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
void reset_high(CUmemoryPool pool, CUmemPool_attribute attribute);

// Around the end of a pool: its memory lives on until it is freed, and isn't cached any more.
class Ending {
 public:
  explicit Ending(CUmemoryPool pool);
  // It hasn't ended after all.
  void lives_on() const;

 private:
  cache::Known known_;
};

// The context of `owner` (memory/owner.h) is about to end, perhaps: no event in it is used again.
void context_ends(std::uint64_t owner);

}  // namespace switchyard::shim::swap::pooled
