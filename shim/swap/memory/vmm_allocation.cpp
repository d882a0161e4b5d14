#include "shim/swap/memory/vmm_allocation.h"

#include <stdlib.h>

#include <algorithm>

#include "shim/log.h"
#include "shim/memory/stays.h"
#include "shim/reset.h"
#include "shim/swap/memory/flat_map.h"
#include "shim/swap/mover.h"

namespace switchyard::shim::swap::vmm_allocations {
namespace {

struct Numbered {
  VmmAllocation* allocation = nullptr;
  std::uint64_t key() const { return allocation->number; }
};

struct State {
  FlatMap<Numbered> allocations;
  FlatMap<Mapping> places;
};
constinit State g_state;

// Why it can't leave as things are.
Stays why_it_stays(const VmmAllocation& allocation) {
  if (allocation.stays != Stays::kLeaves) return allocation.stays;
  if (allocation.places > 1) return Stays::kMultiplyMapped;
  const Mapping* place = allocation.places != 0 ? mapping_of(allocation.sum) : nullptr;
  if (place == nullptr) return Stays::kNotMapped;
  if (place->others != 0) return Stays::kPeerMapped;
  return place->own_access ? Stays::kLeaves : Stays::kNotMapped;
}

void tell(VmmAllocation& allocation, Stays why) {
  if (why == allocation.told) return;
  const auto lane = static_cast<int>(allocation.lane);
  const auto bytes = static_cast<std::int64_t>(allocation.bytes);
  memory::stays(lane, allocation.told, -bytes);
  memory::stays(lane, why, bytes);
  allocation.told = why;
}

void become_range(VmmAllocation& allocation) {
  Range range;
  range.address = allocation.sum;
  range.asked = range.bytes = allocation.bytes;
  range.lane = allocation.lane;
  range.use = Use::kMapped;
  range.chunks = allocation.chunks;
  range.count = allocation.count;
  range.properties = kind_of(allocation);  // and no context: it outlives the one that is current
  if (!swap::add(range)) return;
  allocation.range = range.address;
  mover::allocated(allocation.lane, allocation.bytes);
  // Where it could not be made whole, some of it may be away.
  if (!is_there(allocation))
    mover::freed(allocation.lane, 0, allocation.bytes - resident_bytes(range));
}

void be_no_range(VmmAllocation& allocation) {
  if (allocation.references != 0 && !is_there(allocation)) {
    static Once said;
    log_once(said, Level::kWarn,
             "memory was unmapped at %llx while it was away and no context was left to bring it "
             "back: its contents are gone",
             static_cast<unsigned long long>(allocation.range));
  }
  const Range* range = swap::find(allocation.range);
  const std::uint64_t resident = resident_bytes(*range);
  swap::take(static_cast<std::size_t>(range - &swap::at(0)));
  allocation.range = 0;
  for (unsigned i = 0; i < allocation.count; ++i) {
    Chunk& chunk = allocation.chunks[i];
    drop_copies(chunk);
    chunk.digest = {};
    chunk.zero = chunk.contents_pending = false;
  }
  mover::freed(allocation.lane, allocation.bytes, resident);
}

// The place around `address`, or the next one behind it.
std::size_t first_meeting(CUdeviceptr address) {
  const std::size_t behind = g_state.places.up_to(address);
  if (behind == 0) return 0;
  const Mapping& before = g_state.places.at(behind - 1);
  return address - before.address < before.allocation->bytes ? behind - 1 : behind;
}

}  // namespace

VmmAllocation* make(std::uint64_t bytes, const CUmemAllocationProp& properties) {
  const std::uint64_t count = (bytes + kChunk - 1) / kChunk;
  auto* allocation = static_cast<VmmAllocation*>(::malloc(sizeof(VmmAllocation)));
  auto* chunks = static_cast<Chunk*>(::calloc(count, sizeof(Chunk)));
  if (allocation == nullptr || chunks == nullptr) {
    ::free(allocation);
    ::free(chunks);
    return nullptr;
  }
  for (std::uint64_t i = 0; i < count; ++i) chunks[i].bytes = std::min(kChunk, bytes - i * kChunk);
  *allocation = VmmAllocation{.bytes = bytes,
                              .lane = static_cast<unsigned>(properties.location.id),
                              .asked = properties,
                              .got = properties,
                              .chunks = chunks,
                              .count = static_cast<unsigned>(count)};
  return allocation;
}

CUresult fill(VmmAllocation& allocation) {
  CUresult result = CUDA_SUCCESS;
  const bool as_asked = allocation.chunks[0].handle == 0;
  const CUmemAllocationProp kind = kind_of(allocation);
  CUmemAllocationProp first = allocation.asked;
  if (allocation.rdma != Rdma::kAsAsked) first.allocFlags.gpuDirectRDMACapable = 0;
  for (unsigned i = 0; i < allocation.count && result == CUDA_SUCCESS; ++i) {
    Chunk& chunk = allocation.chunks[i];
    if (chunk.handle != 0) continue;
    result = driver().cuMemCreate(&chunk.handle, chunk.bytes, i == 0 ? &first : &kind, 0);
    if (result != CUDA_SUCCESS) chunk.handle = 0;
  }
  if (result == CUDA_SUCCESS && as_asked) learn_kind(allocation);
  return result;
}

void learn_kind(VmmAllocation& allocation) {
  const auto ask = driver().cuMemGetAllocationPropertiesFromHandle;
  if (ask != nullptr) ask(&allocation.got, allocation.chunks[0].handle);
}

CUresult destroy(VmmAllocation* allocation) {
  CUresult first = CUDA_SUCCESS;
  for (unsigned i = 0; i < allocation->count; ++i) {
    Chunk& chunk = allocation->chunks[i];
    const CUresult result = chunk.handle != 0 ? release(chunk) : CUDA_SUCCESS;
    if (first == CUDA_SUCCESS) first = result;
    drop_copies(chunk);
  }
  ::free(allocation->chunks);
  ::free(allocation);
  return first;
}

bool is_there(const VmmAllocation& allocation) {
  for (unsigned i = 0; i < allocation.count; ++i) {
    if (allocation.chunks[i].handle == 0 || allocation.chunks[i].contents_pending) return false;
  }
  return true;
}

CUmemAllocationProp kind_of(const VmmAllocation& allocation) {
  CUmemAllocationProp kind = allocation.asked;
  // It can be handed over (handover.h), whatever was asked for; nobody else is given a part of it.
  const auto asked = allocation.count == 1 ? kind.requestedHandleTypes : CU_MEM_HANDLE_TYPE_NONE;
  kind.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(
      asked | plain_memory(kind.location.id).requestedHandleTypes);
  kind.allocFlags.gpuDirectRDMACapable = 0;
  return kind;
}

CUresult map_chunks(const VmmAllocation& allocation, CUdeviceptr address) {
  CUdeviceptr at = address;
  for (unsigned i = 0; i < allocation.count; ++i) {
    const Chunk& chunk = allocation.chunks[i];
    const CUresult result = driver().cuMemMap(at, chunk.bytes, 0, chunk.handle, 0);
    if (result != CUDA_SUCCESS) {
      unmap_chunks(allocation, address, i);
      return result;
    }
    at += chunk.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult unmap_chunks(const VmmAllocation& allocation, CUdeviceptr address, unsigned count) {
  CUresult first = CUDA_SUCCESS;
  for (unsigned i = 0; i < count; ++i) {
    const Chunk& chunk = allocation.chunks[i];
    const CUresult result =
        chunk.handle != 0 ? driver().cuMemUnmap(address, chunk.bytes) : CUDA_SUCCESS;
    if (first == CUDA_SUCCESS) first = result;
    address += chunk.bytes;
  }
  return first;
}

bool add(VmmAllocation& allocation) {
  allocation.number = new_id();  // never given twice: a stale number is known for one
  if (!g_state.allocations.add({&allocation})) return false;
  settle(allocation);
  return true;
}

VmmAllocation* find(Handle number) {
  const std::size_t behind = g_state.allocations.up_to(number);
  if (behind == 0) return nullptr;
  VmmAllocation* allocation = g_state.allocations.at(behind - 1).allocation;
  return allocation->number == number && allocation->references != 0 ? allocation : nullptr;
}

Mapping* mapping_of(CUdeviceptr address) {
  const std::size_t index = first_meeting(address);
  if (index == g_state.places.count() || g_state.places.at(index).address > address) return nullptr;
  return &g_state.places.at(index);
}

Span span_of(CUdeviceptr address, std::uint64_t size) {
  Span span;
  const CUdeviceptr end = address + size;
  span.first = span.last = first_meeting(address);
  while (span.last < g_state.places.count() && g_state.places.at(span.last).address < end) {
    const Mapping& place = g_state.places.at(span.last++);
    if (place.address < address || place.address + place.allocation->bytes > end)
      span.whole = false;
  }
  return span;
}

Mapping& mapping_at(std::size_t index) { return g_state.places.at(index); }

bool add_mapping(VmmAllocation& allocation, CUdeviceptr address) {
  if (!g_state.places.add({.address = address, .allocation = &allocation, .id = new_id()})) {
    return false;
  }
  ++allocation.places;
  allocation.sum += address;
  settle(allocation);
  return true;
}

void end_mapping(std::size_t index) {
  const Mapping gone = g_state.places.take(index);
  VmmAllocation& allocation = *gone.allocation;
  --allocation.places;
  allocation.sum -= gone.address;
  settle(allocation);
  end_if_unused(allocation);
}

void settle(VmmAllocation& allocation) {
  const Stays why = why_it_stays(allocation);
  tell(allocation, why);
  const bool leaves = why == Stays::kLeaves;
  if (leaves == (allocation.range != 0)) return;
  if (leaves) {
    become_range(allocation);
  } else {
    be_no_range(allocation);
  }
}

CUresult end_if_unused(VmmAllocation& allocation) {
  if (allocation.references != 0 || allocation.places != 0) return CUDA_SUCCESS;
  g_state.allocations.take(g_state.allocations.up_to(allocation.number) - 1);
  tell(allocation, Stays::kLeaves);
  return destroy(&allocation);
}

void clear() {
  g_state.allocations.forget();
  g_state.places.forget();
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::vmm_allocations
