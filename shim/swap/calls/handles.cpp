#include "shim/swap/calls/handles.h"

#include "shim/client/process.h"
#include "shim/log.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/mover.h"
#include "shim/swap/transfer/consolidate.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::handles {
namespace {

using vmm_allocations::Span;

// More than any GPU has: the driver shall refuse it.
constexpr std::uint64_t kMost = 1ull << 46;

// As the driver refuses what isn't the whole.
CUresult refusal(const VmmAllocation& allocation, CUdeviceptr address, std::uint64_t size,
                 std::uint64_t offset, unsigned long long flags) {
  const bool sound = flags == 0 && size != 0 && offset <= allocation.bytes &&
                     size <= allocation.bytes - offset &&
                     (address | size | offset) % kSmallestChunk == 0;
  if (!sound) return CUDA_ERROR_INVALID_VALUE;
  return size == allocation.bytes ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

bool all_there(const Span& span) {
  for (std::size_t i = span.first; i < span.last; ++i) {
    if (!vmm_allocations::is_there(*vmm_allocations::mapping_at(i).allocation)) return false;
  }
  return true;
}

// Whether something is away that can still be reached after its unmapping.
bool loses(const Span& span) {
  for (std::size_t i = span.first; i < span.last; ++i) {
    const VmmAllocation& allocation = *vmm_allocations::mapping_at(i).allocation;
    if (allocation.references != 0 && !vmm_allocations::is_there(allocation)) return true;
  }
  return false;
}

// The driver's own mappings lie between the places, and the answer is the driver's.
CUresult unmap_between(const Span& span, CUdeviceptr address, CUdeviceptr end) {
  CUresult result = CUDA_SUCCESS;
  for (std::size_t i = span.first; i <= span.last && result == CUDA_SUCCESS; ++i) {
    const CUdeviceptr next = i < span.last ? vmm_allocations::mapping_at(i).address : end;
    if (next > address) result = driver().cuMemUnmap(address, next - address);
    if (i < span.last) address = next + vmm_allocations::mapping_at(i).allocation->bytes;
  }
  return result;
}

CUresult unmap_span(const Span& span, CUdeviceptr address, std::uint64_t size) {
  const bool whole = all_there(span);
  // The driver knows nothing at some of these addresses, so it isn't asked about all in one.
  CUresult result =
      whole ? driver().cuMemUnmap(address, size) : unmap_between(span, address, address + size);
  for (std::size_t i = span.last; i-- > span.first && result == CUDA_SUCCESS;) {
    const Mapping& place = vmm_allocations::mapping_at(i);
    if (!whole)
      result =
          vmm_allocations::unmap_chunks(*place.allocation, place.address, place.allocation->count);
    if (result == CUDA_SUCCESS) vmm_allocations::end_mapping(i);
  }
  return result;
}

// False: not without waiting. pre: a RangesLock lives.
bool try_unmap(const Span& span, CUdeviceptr address, std::uint64_t size, bool admitted,
               CUresult& result) {
  if (!span.whole) {
    result = CUDA_ERROR_INVALID_VALUE;
    return true;
  }
  if (!admitted && loses(span)) return false;
  result = unmap_span(span, address, size);
  return true;
}

void note_access(Mapping& place, const CUmemAccessDesc& access) {
  const CUmemLocation& at = access.location;
  const bool device = at.type == CU_MEM_LOCATION_TYPE_DEVICE;
  const bool counted = device && at.id >= 0 && at.id < static_cast<int>(kOtherLocations);
  const std::uint64_t bit = 1ull << (counted ? static_cast<unsigned>(at.id) : kOtherLocations);
  if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) place.allocation->reached = true;
  place.readers &= ~bit;
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READ) place.readers |= bit;
  if (device && at.id == place.allocation->asked.location.id) {
    place.own_access = access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return;
  }
  if (access.flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) place.others |= bit;
  // The devices that share the last bit aren't told apart.
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE && counted) place.others &= ~bit;
}

// One more reference of what is mapped next in [address, end); `address` goes behind it. It is to
// be as it was asked for, RDMA included. False: nothing is.
bool retain_next(CUdeviceptr& address, CUdeviceptr end, Handle& number) {
  const RangesLock held;
  const Span span = vmm_allocations::span_of(address, end - address);
  if (span.empty()) return false;
  const Mapping& place = vmm_allocations::mapping_at(span.first);
  VmmAllocation& allocation = *place.allocation;
  ++allocation.references;
  // Others may know memory that stays already, so it remains as it is.
  const bool cleared = allocation.rdma == Rdma::kCleared && allocation.stays == Stays::kLeaves;
  if (cleared && allocation.asked.allocFlags.gpuDirectRDMACapable != 0) {
    allocation.rdma = Rdma::kWanted;
  }
  number = allocation.number;
  address = place.address + allocation.bytes;
  return true;
}

// Without the mover. False: it is needed, that of `lane`.
bool try_make_whole(Handle handle, unsigned& lane, CUresult& result) {
  const WorkGuard entry;
  const RangesLock held;
  VmmAllocation* allocation = vmm_allocations::find(handle);
  if (allocation != nullptr) lane = allocation->lane;
  // Nobody can be at work in what nobody reaches.
  if (allocation != nullptr && !consolidation::is_whole(*allocation) && allocation->reached)
    return false;
  result = allocation != nullptr ? consolidation::make(*allocation) : CUDA_ERROR_INVALID_VALUE;
  return true;
}

const char* hindrance(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "the host or the GPU has no room; try again, or start switchyardd with a larger "
             "--host-pool";
    case CUDA_ERROR_NOT_READY:
      return "the process's work did not end in time; export it while the GPU is idle";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "a stream is being captured; export it before";
    case CUDA_ERROR_INVALID_CONTEXT:
      return "no context is left to copy it by";
    default:
      return "the driver refused";
  }
}

void stay(VmmAllocation& allocation, Stays why) {
  allocation.stays = why;
  vmm_allocations::settle(allocation);
}

}  // namespace

bool takes(const Handle* handle, std::uint64_t bytes, const CUmemAllocationProp* properties,
           unsigned long long flags) {
  return on() && handle != nullptr && properties != nullptr && flags == 0 && bytes != 0 &&
         bytes <= kMost && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
         properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         lane_of_device(properties->location.id) != nullptr &&
         (properties->allocFlags.usage & CU_MEM_CREATE_USAGE_TILE_POOL) == 0;
}

CUresult create(Handle* handle, std::uint64_t bytes, const CUmemAllocationProp& properties) {
  mover::start(static_cast<unsigned>(properties.location.id));
  VmmAllocation* allocation = vmm_allocations::make(bytes, properties);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = vmm_allocations::fill(*allocation);
  if (result == CUDA_SUCCESS) {
    const RangesLock held;
    if (vmm_allocations::add(*allocation)) {
      *handle = allocation->number;
      return CUDA_SUCCESS;
    }
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  vmm_allocations::destroy(allocation);
  return result;
}

CUresult release(Handle handle) {
  const RangesLock held;
  VmmAllocation* allocation = vmm_allocations::find(handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --allocation->references;
  return vmm_allocations::end_if_unused(*allocation);
}

CUresult map(CUdeviceptr address, std::uint64_t size, std::uint64_t offset, Handle handle,
             unsigned long long flags) {
  const RangesLock held;
  VmmAllocation* allocation = vmm_allocations::find(handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = refusal(*allocation, address, size, offset, flags);
  // Only where no context was left to bring it back by is it away here.
  if (result == CUDA_SUCCESS && allocation->range != 0 && !vmm_allocations::is_there(*allocation)) {
    result = CUDA_ERROR_INVALID_CONTEXT;
  }
  if (result == CUDA_SUCCESS) result = vmm_allocations::fill(*allocation);
  if (result == CUDA_SUCCESS) result = vmm_allocations::map_chunks(*allocation, address);
  if (result != CUDA_SUCCESS || vmm_allocations::add_mapping(*allocation, address)) return result;
  vmm_allocations::unmap_chunks(*allocation, address, allocation->count);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

bool unmap(CUdeviceptr address, std::uint64_t size, CUresult& result) {
  {
    const RangesLock held;
    const Span span = vmm_allocations::span_of(address, size);
    if (span.empty()) return false;
    if (try_unmap(span, address, size, false, result)) return true;
  }
  const WorkGuard entry;
  const RangesLock held;
  const Span span = vmm_allocations::span_of(address, size);
  return !span.empty() && try_unmap(span, address, size, true, result);
}

bool set_access(CUdeviceptr address, std::uint64_t size, const CUmemAccessDesc* access,
                std::size_t count, CUresult& result) {
  const RangesLock held;
  const Span span = vmm_allocations::span_of(address, size);
  if (span.empty()) return false;
  result =
      span.whole ? driver().cuMemSetAccess(address, size, access, count) : CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = span.first; i < span.last && result == CUDA_SUCCESS; ++i) {
    Mapping& place = vmm_allocations::mapping_at(i);
    for (std::size_t a = 0; a < count; ++a) note_access(place, access[a]);
    vmm_allocations::settle(*place.allocation);
  }
  return true;
}

bool retain(CUdeviceptr address, Handle& handle) {
  const RangesLock held;
  const Mapping* place = vmm_allocations::mapping_of(address);
  if (place == nullptr) return false;
  ++place->allocation->references;
  handle = place->allocation->number;
  return true;
}

bool mapping_of(CUdeviceptr address, CUdeviceptr* base, std::size_t* bytes) {
  const RangesLock held;
  const Mapping* place = vmm_allocations::mapping_of(address);
  if (place == nullptr) return false;
  if (base != nullptr) *base = place->address;
  if (bytes != nullptr) *bytes = place->allocation->bytes;
  return true;
}

bool types_at(CUdeviceptr address, unsigned& types) {
  const RangesLock held;
  const Mapping* place = vmm_allocations::mapping_of(address);
  if (place != nullptr) types = static_cast<unsigned>(place->allocation->got.requestedHandleTypes);
  return place != nullptr;
}

bool ids_at(CUdeviceptr address, Ids& ids) {
  const RangesLock held;
  const Mapping* place = vmm_allocations::mapping_of(address);
  if (place != nullptr) ids = {place->id, place->allocation->number};
  return place != nullptr;
}

bool any_in(CUdeviceptr address, std::uint64_t size) {
  const RangesLock held;
  return !vmm_allocations::span_of(address, size).empty();
}

CUresult properties_of(Handle handle, CUmemAllocationProp* properties) {
  const RangesLock held;
  const VmmAllocation* allocation = vmm_allocations::find(handle);
  if (allocation == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *properties = allocation->got;
  return CUDA_SUCCESS;
}

CUresult real(Handle handle, Handle& driver_handle) {
  const RangesLock held;
  const VmmAllocation* allocation = vmm_allocations::find(handle);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  driver_handle = allocation->chunks[0].handle;
  return CUDA_SUCCESS;
}

CUresult make_whole(Handle handle) {
  CUresult result = CUDA_SUCCESS;
  unsigned lane = 0;
  if (try_make_whole(handle, lane, result)) return result;
  result = consolidation_request::ask(handle, lane);
  if (result == CUDA_SUCCESS) return result;
  static Once said;
  log_once(said, Level::kWarn,
           "memory that is to be exported or bound could not be made one piece of our own: "
           "%s (driver %d)",
           hindrance(result), static_cast<int>(result));
  return result;
}

CUresult make_whole(CUdeviceptr address, std::uint64_t size) {
  CUresult result = CUDA_SUCCESS;
  for (const CUdeviceptr end = address + size; address < end && result == CUDA_SUCCESS;) {
    Handle number = 0;
    if (!retain_next(address, end, number)) break;
    result = make_whole(number);
    release(number);
  }
  return result;
}

bool is_whole(Handle handle) {
  const RangesLock held;
  const VmmAllocation* allocation = vmm_allocations::find(handle);
  return allocation == nullptr || consolidation::is_whole(*allocation);
}

bool is_whole(CUdeviceptr address, std::uint64_t size) {
  const RangesLock held;
  const Span span = vmm_allocations::span_of(address, size);
  bool all = true;
  for (std::size_t i = span.first; i < span.last; ++i) {
    all = all && consolidation::is_whole(*vmm_allocations::mapping_at(i).allocation);
  }
  return all;
}

void stays(Handle handle, Stays why) {
  const RangesLock held;
  if (VmmAllocation* allocation = vmm_allocations::find(handle)) stay(*allocation, why);
}

void stays(CUdeviceptr address, std::uint64_t size, Stays why) {
  const RangesLock held;
  const Span span = vmm_allocations::span_of(address, size);
  for (std::size_t i = span.first; i < span.last; ++i)
    stay(*vmm_allocations::mapping_at(i).allocation, why);
}

}  // namespace switchyard::shim::swap::handles
