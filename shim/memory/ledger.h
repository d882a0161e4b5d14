// The ledger: what each live allocation of this process was charged, by its address or handle.
//
// Concept. A hash table of notes. A free takes the note out *before* it calls the driver, and puts
// it back if the driver refuses. Once the driver has freed, another thread may be given the same
// address at once. The end of a context frees memory whose notes are still here. So a note that
// takes the place of another one of memory gives that one's charge back: the driver has freed it.
//
// A note may say why what it stands for can't leave the device: as long as it stands,
// memory/stays.h counts it.
//
// Threading: any thread; one lock, never held while the driver or the monitor is called.
#pragma once

#include <cstdint>

#include "switchyard/abi.h"

namespace switchyard::shim::ledger {

// Key spaces are apart: a device pointer and a handle may be the same number.
enum class NoteKind : std::uint8_t {
  kNone = 0,  // an empty place in the table
  kPointer,   // cuMemAlloc and its kin: the address
  kHandle,    // cuMemCreate: the handle
  kMapping,   // cuMemMap: the address; `owner` is the handle
  kArray,     // the CUarray
  kMipmap,    // the CUmipmappedArray
  kPooled,    // cuMemAllocAsync: the address; `owner` is the pool, which is what is charged
  kOpened,  // cuIpcOpenMemHandle by the driver: the address; another process is charged. Each open
            // of it is a reference
  kKernel,  // a kernel of a library; `owner` is the library
  kGraphExec,  // an executable graph with memory of its own: what its first launch may need
};

struct Charge {
  int lane = -1;
  std::uint64_t bytes = 0;
  std::uint64_t owner = 0;  // what its life hangs on besides a free; 0: the primary context
  // References that are given back one by one, as by cuMemRelease, and of a handle mappings. It
  // lives while either is.
  std::uint32_t handles = 0;
  std::uint32_t mappings = 0;
  Stays why = Stays::kLeaves;  // it stays on the device
  bool ran = false;            // of a graph: what it needs may be in the pool
};

// Notes a charge. False when no memory is left for the note; the caller then stays unaccounted.
bool note(NoteKind kind, std::uint64_t key, const Charge& charge);

// One reference more; notes `first`, with one, where there is no note. False as above.
bool refer(NoteKind kind, std::uint64_t key, Charge first);

// Takes a note out. False when there was none: the driver then answers for the unknown key.
bool take(NoteKind kind, std::uint64_t key, Charge& charge);

// Reads a note.
bool look(NoteKind kind, std::uint64_t key, Charge& charge);

// The lowest key of a kind in [from, end); `end`: there is none. Goes through the whole table.
std::uint64_t next(NoteKind kind, std::uint64_t from, std::uint64_t end);

// Why it stays from here on. Without a note: nothing.
void stays(NoteKind kind, std::uint64_t key, Stays why);

// Adds to its references and mappings. `gone` is true, and the note is out, when neither is left.
// False when there is no such note.
bool adjust(NoteKind kind, std::uint64_t key, int handles, int mappings, Charge& charge,
            bool& gone);
inline bool adjust(std::uint64_t handle, int handles, int mappings, Charge& charge, bool& gone) {
  return adjust(NoteKind::kHandle, handle, handles, mappings, charge, gone);
}

// Takes out every pointer, array, mipmap and opened pointer on `lane` that `owner` owned; what they
// were charged.
std::uint64_t take_owned(int lane, std::uint64_t owner);

// Takes out all of a kind that `owner` owned.
void drop(NoteKind kind, std::uint64_t owner);

// Makes every pointer of a pool a plain one on `lane`; what they hold. The pool's handle is gone,
// and its memory lives as long as they do.
std::uint64_t orphan_pooled(std::uint64_t pool, int lane);

// Notes in the table, for tests.
std::uint64_t size();

// In a forked child: forgets the parent's allocations.
void clear();

}  // namespace switchyard::shim::ledger
