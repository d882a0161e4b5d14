// Rules for questions about an address: cuMemGetAddressRange and cuPointerGetAttribute(s), and for
// handles of what is behind one.
//
// Concept. The driver sees a swappable allocation as mappings of 32 MiB in a reservation, without a
// context. It sees memory opened of another process likewise (ipc/opened.h). So it answers first,
// while the memory is there. Then we put right each answer that an application may compare with its
// own books. These are the bounds of its allocation, its context or its pool, and whom it can be
// given to. Its identifying numbers, too, last while chunks come and go. The application's own
// mapping (handles.h) has its bounds, such numbers, and the handle types that it asked for. All
// other answers are the driver's.
//
// SYNC_MEMOPS of a mapping can't be set. For swappable memory the library does what it means. Once
// it is set of any, each copy or set whose call has no stream is waited for (rules/launch.h).
//
// A handle keeps the memory that it was made for, wherever the address leads later. So there is
// none of a swappable allocation: as the driver has none of cuMemAlloc's own. Memory that the
// application mapped itself has one, and stays on the device from then on.
//
// Threading: any thread. May wait until memory is back.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/ipc/exported.h"
#include "shim/ipc/opened.h"
#include "shim/log.h"
#include "shim/rules/launch.h"
#include "shim/rules/vmm.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/calls/handles.h"
#include "shim/swap/calls/pooled.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap {

// Whether memory may be away from `address` that the driver shall be asked about.
inline bool may_be_away(CUdeviceptr address) {
  return on() && (context_of(address) != nullptr || handles::mapping_of(address, nullptr, nullptr));
}

// What an application knows of an allocation, its own or one that it opened.
inline bool bounds_of(CUdeviceptr address, Bounds& bounds) {
  return ipc::opened(address, bounds) || (on() && bounds_at(address, bounds));
}

// Headers before 12.1 lack CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID.
inline constexpr unsigned kMemoryBlockId = 20;

// Puts right what the driver said of what the application mapped itself. False: it is none.
inline bool correct_mapped(CUpointer_attribute attribute, void* answer, CUdeviceptr address) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  handles::Ids ids;
  if (!on() || !handles::mapping_of(address, &base, &bytes) || !handles::ids_at(address, ids)) {
    return false;
  }
  switch (static_cast<unsigned>(attribute)) {
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(answer) = base;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<std::size_t*>(answer) = bytes;
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      handles::types_at(address, *static_cast<unsigned*>(answer));
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<std::uint64_t*>(answer) = ids.mapping;
      break;
    case kMemoryBlockId:
      *static_cast<std::uint64_t*>(answer) = ids.memory;
      break;
    default:
      break;
  }
  return true;
}

// Puts right what the driver said of `address`.
inline void correct(CUpointer_attribute attribute, void* answer, CUdeviceptr address) {
  Bounds known;
  if (correct_mapped(attribute, answer, address) || !bounds_of(address, known)) return;
  CUmemoryPool pool = nullptr;
  const bool pooled = pooled::pool_of(address, pool);  // so it is of no context, to the driver, too
  switch (static_cast<unsigned>(attribute)) {
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<CUmemoryPool*>(answer) = pool;
      break;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      if (!pooled) *static_cast<CUcontext*>(answer) = known.context;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      *static_cast<CUdeviceptr*>(answer) = known.base;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      *static_cast<std::size_t*>(answer) = known.backed;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case kMemoryBlockId:
      *static_cast<std::uint64_t*>(answer) = known.id;
      break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      if (known.sync == SyncMemops::kUnset) break;
      *static_cast<unsigned*>(answer) = known.sync == SyncMemops::kOn ? 1 : 0;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(answer) = known.bytes;
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<std::uint32_t*>(answer) = ipc::can_export(address) ? 1 : 0;
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      // As of cuMemAlloc's own. The driver has written the upper half, if there is one.
      *static_cast<std::uint32_t*>(answer) = CU_MEM_HANDLE_TYPE_NONE;
      break;
    default:
      break;
  }
}

}  // namespace switchyard::shim::swap

namespace switchyard::shim::rules {

// Both widths. We know our own ranges without the driver, and without the memory.
template <typename Original, typename Pointer, typename Size>
CUresult address_range(Original original, Pointer* base, Size* bytes, Pointer address) {
  swap::Bounds known;
  if (!swap::bounds_of(address, known) &&
      !(swap::on() && swap::handles::mapping_of(address, &known.base, &known.bytes))) {
    return original(base, bytes, address);
  }
  if (base != nullptr) *base = static_cast<Pointer>(known.base);
  if (bytes != nullptr) *bytes = static_cast<Size>(known.bytes);
  return CUDA_SUCCESS;
}

template <typename Original>
CUresult retain_handle(Original original, CUmemGenericAllocationHandle* handle, void* address) {
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  if (swap::Bounds known; swap::bounds_of(at, known)) return CUDA_ERROR_INVALID_VALUE;
  const auto retain = [&](CUmemGenericAllocationHandle* out, void* of) {
    const bool ours = swap::on() && out != nullptr && swap::handles::retain(at, *out);
    return ours ? CUDA_SUCCESS : original(out, of);
  };
  return gain_handle(retain, handle, address);
}

// What other devices reach the memory by.
template <typename Original, typename... Args>
CUresult range_handle(Original original, void* handle, CUdeviceptr address, size_t size,
                      Args... args) {
  if (swap::on() && swap::context_of(address) != nullptr) {
    static Once said;
    log_once(said, Level::kWarn, "memory at %llx is swappable: other devices get no handle of it",
             static_cast<unsigned long long>(address));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return lend(address, size, Stays::kIpcExported,
              [&] { return original(handle, address, size, args...); });
}

template <typename Original>
CUresult pointer_attribute(Original original, void* answer, CUpointer_attribute attribute,
                           CUdeviceptr address) {
  if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE && swap::on() && answer != nullptr &&
      swap::pooled::pool_of(address, *static_cast<CUmemoryPool*>(answer))) {
    return CUDA_SUCCESS;  // what a driver says of a mapping's pool isn't told
  }
  const bool away = swap::may_be_away(address);
  const swap::WorkGuard entry(away);
  const CUresult result = original(answer, attribute, address);
  if (result == CUDA_SUCCESS) swap::correct(attribute, answer, address);
  return result;
}

template <typename Original>
CUresult pointer_attributes(Original original, unsigned count, CUpointer_attribute* attributes,
                            void** answers, CUdeviceptr address) {
  const bool away = swap::may_be_away(address);
  const swap::WorkGuard entry(away);
  const CUresult result = original(count, attributes, answers, address);
  for (unsigned i = 0; result == CUDA_SUCCESS && i < count; ++i) {
    if (answers[i] != nullptr) swap::correct(attributes[i], answers[i], address);
  }
  return result;
}

// The only attribute that can be set. A null value is the driver's to refuse.
template <typename Original>
CUresult pointer_set_attribute(Original original, const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && value != nullptr) {
    const bool on = *static_cast<const unsigned*>(value) != 0;
    if (ipc::set_sync_memops(address, on)) return CUDA_SUCCESS;
    if (swap::on() && swap::set_sync_memops(address, on)) return CUDA_SUCCESS;
  }
  return touch(original, value, attribute, address);
}

// As the driver says of memory that it made itself: none of this kind.
template <typename Original>
CUresult memory_access(Original original, unsigned long long* flags, const CUmemLocation* location,
                       CUdeviceptr address) {
  const CUresult result = touch(original, flags, location, address);
  swap::Bounds known;
  if (result == CUDA_SUCCESS && swap::bounds_of(address, known)) *flags = 0;
  return result;
}

}  // namespace switchyard::shim::rules
