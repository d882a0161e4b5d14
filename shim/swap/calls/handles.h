// Handles: the calls of virtual memory management, over allocations (vmm_allocation.h) instead of
// the driver's own memory.
//
// Concept. The application's own memory can be swapped out like any other. So the application holds
// a number of ours, and each call that takes or gives a handle translates. Memory that the driver
// made for others (imported, multicast, of the host) stays the driver's, and so do the driver's
// refusals.
//
// Calls that need the memory to be there are made inside a WorkGuard (work_guard.h): it can't move
// meanwhile. Three sorts of call need none: a release, a question, and an unmapping after which the
// contents can't be reached. So a job that ends while its memory is away doesn't wait for it.
//
// Threading: any thread. They hold the ranges while they call the driver, and wait for a move.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/memory/vmm_allocation.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::handles {

// Whether a handle is a number of ours. Without swappable memory none is.
inline bool ours(Handle handle) { return vmm_allocations::is_number(handle); }

// Whether memory that is asked for so becomes an allocation: plain memory of a device that we
// govern.
bool takes(const Handle* handle, std::uint64_t bytes, const CUmemAllocationProp* properties,
           unsigned long long flags);

// As cuMemCreate. pre: takes(), inside a WorkGuard.
CUresult create(Handle* handle, std::uint64_t bytes, const CUmemAllocationProp& properties);
CUresult release(Handle handle);
// pre: inside a WorkGuard.
CUresult map(CUdeviceptr address, std::uint64_t size, std::uint64_t offset, Handle handle,
             unsigned long long flags);

// Where nothing of ours is mapped, each of these answers false and leaves `result` alone.

// As cuMemUnmap. May wait, where contents are to be kept: pre: nothing of ours is held.
bool unmap(CUdeviceptr address, std::uint64_t size, CUresult& result);
// As cuMemSetAccess. pre: inside a WorkGuard.
bool set_access(CUdeviceptr address, std::uint64_t size, const CUmemAccessDesc* access,
                std::size_t count, CUresult& result);

// One more reference of what is mapped at `address`.
bool retain(CUdeviceptr address, Handle& handle);
// The bounds of the mapping that `address` lies in; either pointer may be null.
bool mapping_of(CUdeviceptr address, CUdeviceptr* base, std::size_t* bytes);
// By what types it can be exported: the driver knows only what stands behind it now.
bool types_at(CUdeviceptr address, unsigned& types);
// The numbers that tell the mapping, and the memory behind it, from all others: the driver sees
// chunks.
struct Ids {
  std::uint64_t mapping = 0;
  std::uint64_t memory = 0;
};
bool ids_at(CUdeviceptr address, Ids& ids);
bool any_in(CUdeviceptr address, std::uint64_t size);

CUresult properties_of(Handle handle, CUmemAllocationProp* properties);

// --- what others shall reach ---

// One handle of the driver's stands behind it from here on (consolidate.h). The process's work is
// held and waited for meanwhile, within bounds. pre: outside of any WorkGuard, and nothing of ours
// is held.
CUresult make_whole(Handle handle);
// The same for all that is mapped there.
CUresult make_whole(CUdeviceptr address, std::uint64_t size);
// Whether it is. pre: inside a WorkGuard: outside of one it may leave, and come back in memory that
// another process made (handover.h).
bool is_whole(Handle handle);
bool is_whole(CUdeviceptr address, std::uint64_t size);

// `call` inside a WorkGuard, with what is_whole() asks about whole, as make() makes it.
template <typename Make, typename IsWhole, typename Call>
CUresult with_whole(Make make, IsWhole is_whole, Call call) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    if (const CUresult refused = make()) return refused;
    const WorkGuard entry;
    if (is_whole()) return call();
  }
  return CUDA_ERROR_NOT_READY;
}

// The driver's handle of it: the first, if it has not been made whole, for a call that the driver
// refuses anyway. pre: inside a WorkGuard, until the call's end.
CUresult real(Handle handle, Handle& driver_handle);
// From now on others know the memory, so it is where it is for good. The last reason counts.
void stays(Handle handle, Stays why);
void stays(CUdeviceptr address, std::uint64_t size, Stays why);

}  // namespace switchyard::shim::swap::handles
