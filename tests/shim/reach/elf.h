// What a loaded library itself exports, read from its symbol table: past dlsym and whoever
// interposes it.
//
// Threading: pure reads of what the loader mapped.
#pragma once

namespace reach {

// The address of `name` in the library of `handle`, or null.
void* own_symbol(void* handle, const char* name);

// The library that an address belongs to, "" when none.
const char* library_of(const void* address);

}  // namespace reach
