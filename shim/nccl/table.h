// The table of intercepted calls of NCCL, and the copies of NCCL in this process.
//
// Concept. A call is reached through one of four doors. One is the exported name, which programs
// that are linked to NCCL bind to. The others, at most three, each belong to a copy of NCCL that a
// program has looked up by a handle of its own (dlsym). A door's originals are those of its copy.
// The exported name's copy is the one that the first caller of the name would have got without us.
//
// NCCL is never loaded here, and a copy that was found once is kept.
//
// Threading: any thread.
#pragma once

#include "shim/table.h"

namespace switchyard::shim::nccl {

inline constexpr unsigned kMostCopies = 3;
inline constexpr unsigned kDoors = 1 + kMostCopies;  // the first is the exported names'

// What the door dlsym answers for a name that starts with "nccl" or "pnccl".
struct Pick {
  void* symbol;
  bool decided;  // false: the name is not ours, ask glibc
};
Pick pick(void* handle, const char* name);

// Rows of the table, for tests. `name` null past the end.
struct NamedEntry {
  const char* name;
  void* entry;  // the exported name's
};
NamedEntry table_row(std::size_t index);

}  // namespace switchyard::shim::nccl
