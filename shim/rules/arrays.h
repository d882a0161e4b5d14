// Rules for arrays and mipmapped arrays: charged in bytes, computed from their descriptor.
//
// Concept. The driver tells an array's size only for sparse and deferred ones. These hold no memory
// of their own: mapped memory is charged at cuMemCreate. So bytes are counted from format, channels
// and extent; what the driver's tiling adds shows as overhead in NVML.
//
// Threading: any thread.
#pragma once

#include "shim/client/process.h"
#include "shim/gate/gate.h"
#include "shim/memory/account.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"
#include "shim/rules/linear.h"
#include "shim/rules/refused.h"

namespace switchyard::shim::memory {

inline constexpr std::uint64_t kMostArrayBytes = 1ull << 46;

// Bytes of an array with `levels` mip levels; 0 for one without memory of its own.
std::uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape, unsigned levels);

// Every version of the descriptors as one.
template <typename Descriptor>
CUDA_ARRAY3D_DESCRIPTOR shape_of(const Descriptor& descriptor) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  shape.Width = descriptor.Width;
  shape.Height = descriptor.Height;
  shape.Format = descriptor.Format;
  shape.NumChannels = descriptor.NumChannels;
  if constexpr (requires { descriptor.Depth; }) {
    shape.Depth = descriptor.Depth;
    shape.Flags = descriptor.Flags;
  }
  return shape;
}

// Whether no driver refuses it for its descriptor.
bool is_plain_array(const CUDA_ARRAY3D_DESCRIPTOR& shape);

// `shape` with all extents but one (0: width, 1: height, 2: depth) as small as its kind may be.
CUDA_ARRAY3D_DESCRIPTOR narrowed(const CUDA_ARRAY3D_DESCRIPTOR& shape, int kept);

// Puts extents into any version of the descriptor.
template <typename Descriptor>
void set_extents(Descriptor& descriptor, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  descriptor.Width = static_cast<decltype(descriptor.Width)>(shape.Width);
  descriptor.Height = static_cast<decltype(descriptor.Height)>(shape.Height);
  if constexpr (requires { descriptor.Depth; }) {
    descriptor.Depth = static_cast<decltype(descriptor.Depth)>(shape.Depth);
  }
}

}  // namespace switchyard::shim::memory

namespace switchyard::shim::rules {

// pre: the account refused. Each extent may be one too large for the driver, so each is tried.
template <typename Original, typename Handle, typename Descriptor, typename... Levels>
CUresult array_refused(Original original, Handle* array, const Descriptor& descriptor,
                       Levels... levels) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = memory::shape_of(descriptor);
  const bool right = array != nullptr && sizeof...(Levels) == 0 && memory::is_plain_array(shape);
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (int kept = 0; kept < 3 && result == CUDA_ERROR_OUT_OF_MEMORY; ++kept) {
    Descriptor narrow = descriptor;
    memory::set_extents(narrow, memory::narrowed(shape, kept));
    Handle least = nullptr;
    result = refused_unless_wrong(
        !right || capture_may_forbid(),
        [&] { return original(array != nullptr ? &least : nullptr, &narrow, levels...); },
        [&] {
          if constexpr (__is_same(Handle, CUarray)) {
            driver().cuArrayDestroy(least);
          } else {
            driver().cuMipmappedArrayDestroy(least);
          }
        });
  }
  return result;
}

// cuArrayCreate, cuArray3DCreate of either version, and cuMipmappedArrayCreate with its levels.
template <typename Original, typename Handle, typename Descriptor, typename... Levels>
CUresult array_create(Original original, Handle* array, const Descriptor* descriptor,
                      Levels... levels) {
  constexpr bool kMipmapped = sizeof...(Levels) != 0;
  unsigned count = 1;
  if constexpr (kMipmapped) count = (levels, ...);
  // A null descriptor is the driver's to refuse.
  abi::Lane* lane = descriptor != nullptr ? current_lane() : nullptr;
  const std::uint64_t bytes =
      lane != nullptr ? memory::array_bytes(memory::shape_of(*descriptor), count) : 0;
  // More than any GPU has: the driver refuses it, and says why.
  if (bytes > memory::kMostArrayBytes) return original(array, descriptor, levels...);
  if (account::reserve(lane, bytes, pools::reclaim) != CUDA_SUCCESS) {
    return array_refused(original, array, *descriptor, levels...);
  }
  const CUresult result =
      swap::pooled::with_room([&] { return original(array, descriptor, levels...); });
  if (result != CUDA_SUCCESS) {
    account::release(lane, bytes);
  } else {
    note_owned(lane, kMipmapped ? ledger::NoteKind::kMipmap : ledger::NoteKind::kArray,
               reinterpret_cast<std::uintptr_t>(*array), bytes, Stays::kArrays);
  }
  return result;
}

// A level of a mipmap and a plane of an array were never noted: they own nothing.
template <typename Original, typename Handle>
CUresult array_destroy(Original original, Handle array) {
  const auto kind =
      __is_same(Handle, CUarray) ? ledger::NoteKind::kArray : ledger::NoteKind::kMipmap;
  const auto key = reinterpret_cast<std::uintptr_t>(array);
  ledger::Charge charge;
  const gate::Waiting waiting(gate::Waiting::kContext);
  const bool known = ledger::take(kind, key, charge);
  const CUresult result = original(array);
  if (!known) return result;
  if (result == CUDA_SUCCESS) {
    account::release(lane_of_device(charge.lane), charge.bytes);
  } else {
    ledger::note(kind, key, charge);
  }
  return result;
}

}  // namespace switchyard::shim::rules
