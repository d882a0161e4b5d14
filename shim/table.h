// The table of intercepted calls, as data: name → our entry, original → our entry.
//
// Threading: immutable once the driver is resolved.
#pragma once

#include <cstddef>

namespace switchyard::shim {

// Builds the look-ups. pre: g_driver is filled; called by resolve(), once in a process.
void index_table();

// Our entry for an exact exported name of libcuda.so.1, or null when we don't intercept it.
void* entry_by_name(const char* name);

// Whether `name` is a row, whatever the driver has. Slow (a walk): only for a process without CUDA.
bool is_ours(const char* name);

// Our entry for the address that the real driver gave for one of its calls, or null.
void* entry_by_original(const void* original);

// Rows of the table, for tests. `name` null past the end.
struct Row {
  const char* name;
  void* entry;
  void* original;
};
Row table_row(std::size_t index);

}  // namespace switchyard::shim
