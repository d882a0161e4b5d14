// Records: what this process has launched lately (switchyard/abi.h), for the monitor's statistics.
//
// Concept. A ring in the page, which the monitor empties several times a second. Collectives are
// always recorded. Of launches the monitor picks classes that are rare enough for the ring, so most
// launches cost a hash and a look at one bit. Only what is recorded costs a look at the clock.
//
// Threading: any thread; no lock. A writer that is overtaken by a whole ring spoils one record, and
// the monitor reads a record's number before and after it.
#pragma once

#include <cstdint>

#include "shim/client/process.h"

namespace switchyard::shim::records {

void note(std::uint32_t what, std::uint64_t bytes);
// Into the ring of timings: when it began by the GPU's clock, and how long it took.
void timing(std::uint32_t what, std::uint64_t began_us, std::uint64_t took_ns);

// The products don't wait for each other, so this takes about three nanoseconds.
inline std::uint32_t hash_of(const void* function, unsigned x, unsigned y, unsigned z) {
  const std::uint64_t sum = reinterpret_cast<std::uintptr_t>(function) * 0x9E3779B97F4A7C15u +
                            x * 0xBF58476D1CE4E5B9u + y * 0x94D049BB133111EBu +
                            z * 0xD6E8FEB86659FD93u;
  return static_cast<std::uint32_t>((sum ^ sum >> 29) * 0x9E3779B97F4A7C15u >> 32);
}

// A kernel with its grid, or a graph. pre: the monitor asks for it (abi::kRecordLaunches).
inline void launch(const void* function, unsigned x, unsigned y, unsigned z) {
  const std::uint32_t what = hash_of(function, x, y, z) | abi::kLaunchRecord;
  const unsigned kind = what % abi::kLaunchClasses;
  const std::uint64_t wanted =
      page().process.recorded_classes[kind / 64].load(std::memory_order_relaxed);
  if ((wanted >> kind % 64 & 1) != 0) note(what, 0);
}

}  // namespace switchyard::shim::records
