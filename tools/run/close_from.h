// What a process must not keep that outlives its caller, or starts another program: descriptors of
// the caller. A lock or a pipe among them would be held for as long.
//
// Threading: call it from the only thread, also between fork() and exec(): it makes system calls
// alone.
#pragma once

namespace switchyard::tools {

// Closes all descriptors from `first` on but `kept` and `kept_too`.
void close_from(int first, int kept = -1, int kept_too = -1);

}  // namespace switchyard::tools
