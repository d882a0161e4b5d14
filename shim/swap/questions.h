// Rules for questions about an address: cuMemGetAddressRange and cuPointerGetAttribute(s), and for
// handles of what is behind one.
//
// Concept. The driver sees a swappable allocation as mappings of 32 MiB in a reservation, without a
// context. So it answers first, while the memory is there, and what an application may compare with
// its own books is put right: the bounds of its allocation and the context. What the application
// mapped itself (handles.h) has the bounds of its mapping, and the handle types that it asked for.
// All other answers are the driver's.
//
// A handle keeps the memory that it was made for, wherever the address leads later. So there is
// none of a swappable allocation: as the driver has none of cuMemAlloc's own. What the application
// mapped itself has one, and stays on the device from then on.
//
// Threading: any thread. May wait until memory is back.
#pragma once

#include <cstddef>

#include "shim/log.h"
#include "shim/memory/vmm.h"
#include "shim/swap/admission.h"
#include "shim/swap/allocate.h"
#include "shim/swap/handles.h"

namespace switchyard::shim::swap {

// Whether memory may be away from `address` that the driver shall be asked about.
inline bool may_be_away(CUdeviceptr address) {
  return on() && (context_of(address) != nullptr || handles::mapping_of(address, nullptr, nullptr));
}

// Puts right what the driver said of `address`.
inline void correct(CUpointer_attribute attribute, void* answer, CUdeviceptr address) {
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  if (handles::mapping_of(address, &base, &bytes)) {
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) {
      *static_cast<CUdeviceptr*>(answer) = base;
    }
    if (attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE) *static_cast<std::size_t*>(answer) = bytes;
    if (attribute == CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
      handles::types_at(address, *static_cast<unsigned*>(answer));
    }
    return;
  }
  const CUcontext context = context_of(address);
  if (context == nullptr || !address_range(&base, &bytes, address)) return;
  if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) *static_cast<CUcontext*>(answer) = context;
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) *static_cast<CUdeviceptr*>(answer) = base;
  if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE) *static_cast<std::size_t*>(answer) = bytes;
}

}  // namespace switchyard::shim::swap

namespace switchyard::shim::rules {

// Both widths. What we know we know without the driver, and without the memory.
template <typename Original, typename Pointer, typename Size>
CUresult address_range(Original original, Pointer* base, Size* bytes, Pointer address) {
  CUdeviceptr known_base = 0;
  std::size_t known_bytes = 0;
  if (!swap::on() || !(swap::address_range(&known_base, &known_bytes, address) ||
                       swap::handles::mapping_of(address, &known_base, &known_bytes))) {
    return original(base, bytes, address);
  }
  if (base != nullptr) *base = static_cast<Pointer>(known_base);
  if (bytes != nullptr) *bytes = static_cast<Size>(known_bytes);
  return CUDA_SUCCESS;
}

template <typename Original>
CUresult retain_handle(Original original, CUmemGenericAllocationHandle* handle, void* address) {
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  if (swap::on() && swap::context_of(at) != nullptr) return CUDA_ERROR_INVALID_VALUE;
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
  if (swap::on()) {
    if (const CUresult refused = swap::handles::make_whole(address, size)) return refused;
  }
  const swap::Entry entry(swap::on());
  const CUresult result = original(handle, address, size, args...);
  if (swap::on() && result == CUDA_SUCCESS) swap::handles::stays(address, size);
  return result;
}

template <typename Original>
CUresult pointer_attribute(Original original, void* answer, CUpointer_attribute attribute,
                           CUdeviceptr address) {
  const bool ours = swap::may_be_away(address);
  const swap::Entry entry(ours);
  const CUresult result = original(answer, attribute, address);
  if (ours && result == CUDA_SUCCESS) swap::correct(attribute, answer, address);
  return result;
}

template <typename Original>
CUresult pointer_attributes(Original original, unsigned count, CUpointer_attribute* attributes,
                            void** answers, CUdeviceptr address) {
  const bool ours = swap::may_be_away(address);
  const swap::Entry entry(ours);
  const CUresult result = original(count, attributes, answers, address);
  for (unsigned i = 0; ours && result == CUDA_SUCCESS && i < count; ++i) {
    swap::correct(attributes[i], answers[i], address);
  }
  return result;
}

}  // namespace switchyard::shim::rules
