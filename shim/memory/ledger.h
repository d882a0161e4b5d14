// The ledger: what each live allocation of this process was charged, by its address or handle.
//
// Threading: any thread; one lock, never held while the driver or the monitor is called.
#pragma once

#include <cstdint>

namespace switchyard::shim::ledger {

// Key spaces are apart: a device pointer and a handle may be the same number.
enum class Kind : std::uint8_t { kPointer, kHandle, kArray, kMipmap, kPool };

struct Charge {
  int lane;
  std::uint64_t bytes;
};

// Notes a charge. False when no memory is left for the note; the caller then stays unaccounted.
bool note(Kind kind, std::uint64_t key, Charge charge);

// Takes a note out. False when there was none: the driver then answers for the unknown key.
bool take(Kind kind, std::uint64_t key, Charge& charge);

// In a forked child: forgets the parent's allocations.
void clear();

}  // namespace switchyard::shim::ledger
