// The dynamic linker's own dlsym, past every interposer, ours included.
//
// Threading: any thread at any time; idempotent.
#pragma once

namespace switchyard::shim {

using Dlsym = void* (*)(void* handle, const char* name);

// glibc's dlsym. Found by dlvsym, which nobody interposes; null only on a libc without it.
Dlsym real_dlsym();

}  // namespace switchyard::shim
