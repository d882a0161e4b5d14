// Why a process can't act, whatever it is told.
//
// Threading: plain values.
#pragma once

#include <cstdint>

namespace switchyard::monitor {

enum class Standstill : std::uint8_t {
  kNone,
  kStopped,  // by a signal
  kTraced,   // all of its threads, by a debugger
  kDumping,
  kFrozen,
  kDisk,  // all of its threads
};

// For JSON and STATE; null: it can act.
constexpr const char* key_of(Standstill why) {
  return why == Standstill::kStopped   ? "signal"
         : why == Standstill::kTraced  ? "debugger"
         : why == Standstill::kDumping ? "core dump"
         : why == Standstill::kFrozen  ? "frozen"
         : why == Standstill::kDisk    ? "disk"
                                       : nullptr;
}
// "its process 4711 ..."
constexpr const char* text_of(Standstill why) {
  return why == Standstill::kStopped   ? "is stopped by a signal"
         : why == Standstill::kTraced  ? "is stopped by a debugger"
         : why == Standstill::kDumping ? "writes a core dump"
         : why == Standstill::kFrozen  ? "is in a frozen cgroup"
         : why == Standstill::kDisk    ? "waits for a disk with all of its threads"
                                       : "can act";
}

}  // namespace switchyard::monitor
