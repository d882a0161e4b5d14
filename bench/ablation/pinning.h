// Memory that comes back from host memory that is not pinned, in the library's way and in others.
//
// Concept. A checkpoint of the process would unpin all host memory and pin it again, so the library
// unpins its slabs before. On the way back each is pinned where a copy needs it. How much memory of
// the device is made before the copies into it begin differs from way to way.
//
// Threading: one thread.
#pragma once

#include <cstddef>

namespace switchyard::bench::ablation {

// pre: `bytes` is a multiple of 256 MiB. As main(): the exit status.
int measure_pinning(int rounds, std::size_t bytes);

}  // namespace switchyard::bench::ablation
