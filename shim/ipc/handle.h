// What we write into a CUipcMemHandle for memory of our own.
//
// Concept. An application takes the handle for 64 bytes that it carries to another process; the
// driver's own begin otherwise. The memory itself goes by way of the monitor, under the key: the
// handle only tells how to lay it out.
//
// Threading: pure. The bytes may come from anybody: read() checks them.
#pragma once

#include <string.h>

#include <cstdint>

#include "shim/driver.h"
#include "shim/swap/memory/range_table.h"
#include "switchyard/wire.h"

namespace switchyard::shim::ipc {

inline constexpr std::uint64_t kHandleMagic = 0x3143504944595753;  // "SWYDIPC1"
// More than any GPU has.
inline constexpr std::uint64_t kMostBytes = 1ull << 46;

struct Handle {
  std::uint64_t magic;
  wire::Key key;
  std::uint64_t asked;  // what the application allocated
  std::uint64_t bytes;  // the sum of its chunks
  std::uint64_t chunk;  // the bytes of each but the last, which has the rest
  std::uint64_t reserved[2];

  std::uint32_t count() const { return static_cast<std::uint32_t>((bytes + chunk - 1) / chunk); }
};
static_assert(sizeof(Handle) == sizeof(CUipcMemHandle));

enum class Read { kOurs, kBad, kDrivers };

inline Read read(const CUipcMemHandle& given, Handle& handle) {
  ::memcpy(&handle, &given, sizeof(handle));
  if (handle.magic != kHandleMagic) return Read::kDrivers;
  const bool sound = handle.asked != 0 && handle.asked <= handle.bytes &&
                     handle.bytes <= kMostBytes && handle.chunk != 0 &&
                     handle.chunk <= kMostBytes &&
                     (handle.bytes | handle.chunk) % swap::kSmallestChunk == 0;
  return sound ? Read::kOurs : Read::kBad;
}

}  // namespace switchyard::shim::ipc
