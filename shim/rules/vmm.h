// Rules for virtual memory management: cuMemCreate, Map, Unmap, Release, Retain, Import, and what
// else takes a handle.
//
// Concept. Physical memory is charged at cuMemCreate, to the GPU of its location; memory of the
// host is not charged. It lives while a handle refers to it or an address maps it, so the charge
// ends with the last of both. Retaining and importing what we made ourselves add references, never
// a charge; what another process exported is charged there.
//
// In a swappable process handles are numbers of swap/calls/handles.h, which makes the memory; it is
// charged and noted like any other. A call that needs it to be there is made inside a WorkGuard.
//
// Threading: any thread.
#pragma once

#include "shim/client/process.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"
#include "shim/no_copy.h"
#include "shim/rules/refused.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/calls/handles.h"
#include "shim/swap/calls/pooled.h"
#include "shim/work_guard.h"

namespace switchyard::shim::rules {

// The lane that memory at a location is charged to; null for the host's.
inline abi::Lane* lane_of(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? lane_of_device(location.id) : nullptr;
}

// What makes the memory: the driver, or we.
template <typename Original>
CUresult make_memory(Original original, CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  if (!swap::handles::takes(handle, size, properties, flags)) {
    return original(handle, size, properties, flags);
  }
  const swap::WorkGuard entry;
  return swap::handles::create(handle, size, *properties);
}

template <typename Original>
CUresult create_memory(Original original, CUmemGenericAllocationHandle* handle, size_t size,
                       const CUmemAllocationProp* properties, unsigned long long flags) {
  abi::Lane* lane = properties != nullptr ? lane_of(properties->location) : nullptr;
  if (account::reserve(lane, size, pools::reclaim) != CUDA_SUCCESS) {
    const bool surely_right = handle != nullptr && flags == 0 && size % swap::kSmallestChunk == 0 &&
                              properties->type == CU_MEM_ALLOCATION_TYPE_PINNED;
    const size_t rest = size % swap::kSmallestChunk;  // what makes it wrong, if anything
    CUmemGenericAllocationHandle least = 0;
    return refused_unless_wrong(
        !surely_right,
        [&] {
          return original(handle != nullptr ? &least : nullptr,
                          rest != 0 ? rest : swap::kSmallestChunk, properties, flags);
        },
        [&] { driver().cuMemRelease(least); });
  }
  const CUresult result = swap::pooled::with_room(
      [&] { return make_memory(original, handle, size, properties, flags); });
  if (result != CUDA_SUCCESS) {
    account::release(lane, size);
  } else if (lane != nullptr &&
             !ledger::note(ledger::NoteKind::kHandle, *handle,
                           {.lane = lane_index(lane), .bytes = size, .handles = 1})) {
    account::release(lane, size);
  }
  return result;
}

// Takes references or mappings from a handle around the call that gives them back.
template <typename Call>
CUresult drop_reference(std::uint64_t handle, int handles, int mappings, Call call) {
  ledger::Charge charge;
  bool gone = false;
  const bool known = ledger::adjust(handle, -handles, -mappings, charge, gone);
  const CUresult result = call();
  if (!known) return result;
  if (result == CUDA_SUCCESS) {
    if (gone) account::release(lane_of_device(charge.lane), charge.bytes);
  } else if (gone) {
    charge.handles = static_cast<std::uint32_t>(handles);
    charge.mappings = static_cast<std::uint32_t>(mappings);
    ledger::note(ledger::NoteKind::kHandle, handle, charge);
  } else {
    ledger::adjust(handle, handles, mappings, charge, gone);
  }
  return result;
}

template <typename Original>
CUresult release_handle(Original original, CUmemGenericAllocationHandle handle) {
  return drop_reference(handle, 1, 0, [&] {
    return swap::handles::ours(handle) ? swap::handles::release(handle) : original(handle);
  });
}

// The call gave a handle. False: one that we don't know.
inline bool gained(CUmemGenericAllocationHandle handle) {
  ledger::Charge charge;
  bool gone = false;
  return ledger::adjust(handle, 1, 0, charge, gone);
}

// Retain: perhaps a handle that we know.
template <typename Original, typename... Args>
CUresult gain_handle(Original original, CUmemGenericAllocationHandle* handle, Args... args) {
  const CUresult result = original(handle, args...);
  if (result == CUDA_SUCCESS) gained(*handle);
  return result;
}

// Notes what another process made, without bytes: how many they are tells each mapping.
void note_imported(CUmemGenericAllocationHandle handle);

template <typename Original, typename... Args>
CUresult import_handle(Original original, CUmemGenericAllocationHandle* handle, Args... args) {
  const CUresult result = original(handle, args...);
  if (result == CUDA_SUCCESS && !gained(*handle)) note_imported(*handle);
  return result;
}

template <typename Original>
CUresult map_memory(Original original, CUdeviceptr address, size_t size, size_t offset,
                    CUmemGenericAllocationHandle handle, unsigned long long flags) {
  ledger::Charge charge;
  bool gone = false;
  const bool known = ledger::adjust(handle, 0, 1, charge, gone);
  const swap::WorkGuard entry(swap::on());
  const CUresult result = swap::handles::ours(handle)
                              ? swap::handles::map(address, size, offset, handle, flags)
                              : original(address, size, offset, handle, flags);
  if (!known) return result;
  if (result != CUDA_SUCCESS) {
    ledger::adjust(handle, 0, -1, charge, gone);
  } else if (!ledger::note(ledger::NoteKind::kMapping, address,
                           {.lane = charge.lane,
                            .bytes = size,
                            .owner = handle,
                            // A charge counts by its handle.
                            .why = charge.bytes == 0 ? charge.why : Stays::kLeaves})) {
    ledger::adjust(handle, 0, -1, charge, gone);
  }
  return result;
}

// Takes the mappings in [address, address + size) out of the ledger, with what their end frees. One
// call may end several that lie side by side. Before the call: as soon as the driver has unmapped,
// both the addresses and a handle's number may be another thread's.
class Unmapping : NoCopy {
 public:
  Unmapping(std::uint64_t address, std::uint64_t size);
  // Puts all back, if the driver refused, or gives the charges back.
  void end(CUresult result);

 private:
  struct Piece {
    std::uint64_t address = 0;
    ledger::Charge mapping;
    ledger::Charge memory;
    bool known = false;  // the memory is
    bool gone = false;   // with this mapping
  };
  bool take(std::uint64_t address, Piece& piece);
  bool keep(const Piece& piece);
  static void put_back(const Piece& piece);

  Piece* pieces_ = nullptr;
  std::size_t count_ = 0, places_ = 0;
};

template <typename Original>
CUresult unmap_memory(Original original, CUdeviceptr address, size_t size) {
  CUresult result = CUDA_SUCCESS;
  Unmapping unmapping(address, size);
  if (!swap::on() || !swap::handles::unmap(address, size, result)) {
    result = original(address, size);
  }
  unmapping.end(result);
  return result;
}

template <typename Original>
CUresult set_access(Original original, CUdeviceptr address, size_t size,
                    const CUmemAccessDesc* access, size_t count) {
  const swap::WorkGuard entry(swap::on());
  CUresult result = CUDA_SUCCESS;
  if (swap::on() && access != nullptr &&
      swap::handles::set_access(address, size, access, count, result)) {
    return result;
  }
  return original(address, size, access, count);
}

// The driver would let addresses go whose memory is away.
template <typename Original>
CUresult free_addresses(Original original, CUdeviceptr address, size_t size) {
  if (swap::on() && swap::handles::any_in(address, size)) return CUDA_ERROR_INVALID_VALUE;
  return original(address, size);
}

template <typename Original>
CUresult handle_properties(Original original, CUmemAllocationProp* properties,
                           CUmemGenericAllocationHandle handle) {
  return swap::handles::ours(handle) ? swap::handles::properties_of(handle, properties)
                                     : original(properties, handle);
}

// Lets others at the memory by `call` with the driver's handle; from then on it stays where it is.
// `whole`: unless the driver refuses it anyway.
template <typename Call>
CUresult lend(CUmemGenericAllocationHandle handle, bool whole, Stays why, Call call) {
  if (!swap::handles::ours(handle)) {
    const CUresult result = call(handle);
    // It may outlive us: the monitor gives its room to nobody before it is free (stays.h).
    if (result == CUDA_SUCCESS) ledger::stays(ledger::NoteKind::kHandle, handle, why);
    return result;
  }
  const auto make = [&] { return whole ? swap::handles::make_whole(handle) : CUDA_SUCCESS; };
  const auto is_whole = [&] { return !whole || swap::handles::is_whole(handle); };
  return swap::handles::with_whole(make, is_whole, [&] {
    CUmemGenericAllocationHandle real = 0;
    CUresult result = swap::handles::real(handle, real);
    if (result == CUDA_SUCCESS) result = call(real);
    if (result == CUDA_SUCCESS) swap::handles::stays(handle, why);
    return result;
  });
}

// The same for what is mapped there, by its address.
template <typename Call>
CUresult lend(CUdeviceptr address, std::size_t size, Stays why, Call call) {
  if (!swap::on()) return call();
  const auto make = [&] { return swap::handles::make_whole(address, size); };
  const auto is_whole = [&] { return swap::handles::is_whole(address, size); };
  return swap::handles::with_whole(make, is_whole, [&] {
    const CUresult result = call();
    if (result == CUDA_SUCCESS) swap::handles::stays(address, size, why);
    return result;
  });
}

template <typename Original>
CUresult export_handle(Original original, void* out, CUmemGenericAllocationHandle handle,
                       CUmemAllocationHandleType type, unsigned long long flags) {
  CUmemAllocationProp is{};
  const bool whole = swap::handles::ours(handle) &&
                     swap::handles::properties_of(handle, &is) == CUDA_SUCCESS &&
                     (static_cast<unsigned>(is.requestedHandleTypes) & type) != 0;
  // The driver's handle behind it may be of more types than were asked for.
  if (swap::handles::ours(handle) && !whole) return CUDA_ERROR_INVALID_VALUE;
  return lend(handle, whole, Stays::kIpcExported,
              [&](auto real) { return original(out, real, type, flags); });
}

template <typename Original, typename... Args>
CUresult bind_memory(Original original, CUmemGenericAllocationHandle multicast, size_t at,
                     CUmemGenericAllocationHandle handle, Args... args) {
  return lend(handle, true, Stays::kMulticast,
              [&](auto real) { return original(multicast, at, real, args...); });
}

template <typename Original, typename... Args>
CUresult bind_address(Original original, CUmemGenericAllocationHandle multicast, size_t at,
                      CUdeviceptr address, size_t size, Args... args) {
  // As the driver says of cuMemAlloc's own.
  if (swap::on() && swap::context_of(address) != nullptr) return CUDA_ERROR_INVALID_VALUE;
  return lend(address, size, Stays::kMulticast,
              [&] { return original(multicast, at, address, size, args...); });
}

// Work of a stream, over a list whose handles are ours to translate.
CUresult map_array(CUresult (*original)(CUarrayMapInfo*, unsigned, CUstream), CUarrayMapInfo* list,
                   unsigned count, CUstream stream);

}  // namespace switchyard::shim::rules
