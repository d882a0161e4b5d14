// LD_PRELOAD with the library in it: what the image preloads stays.
//
// Threading: reads the file system; a pure function.
#pragma once

#include <stdbool.h>

#define SWITCHYARD_LIBRARY_NAME "libswitchyard.so"
// Where the Debian package has it, and where the guide mounts it.
#define SWITCHYARD_LIBRARY_FOLDER "/usr/lib/switchyard"

// The library beside this program, else in its fixed place. False: there is none; `out` then says
// where it was looked for.
bool find_library(char* out, unsigned size);

// `library` first, then the entries of `value` but for libraries of this name. `library` may be
// null. Null: nothing is left to preload. The caller frees it.
char* preload_with(const char* value, const char* library);
