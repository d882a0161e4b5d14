// Peers: which of the process's GPUs reach memory that stands in for cuMemAlloc.
//
// Concept. Memory of cuMemAlloc can be copied to any GPU of the process, and their kernels reach it
// once peer access is enabled. Mapped memory is reached only by GPUs that were given access. So
// each GPU on which the process has made a context is given access to all ranges, wherever their
// memory is. The application's own mappings have the access that the application gave.
//
// Threading: any thread.
#pragma once

#include <cstdint>

namespace switchyard::shim::swap::peers {

// Whether each of the process's first `gpus` GPUs can reach the memory of each other.
bool all_reach(unsigned gpus);

// A context of the GPU was made. pre: no RangesLock lives.
void context_made(unsigned lane);

// The GPUs on which contexts were made, as bits.
std::uint32_t lanes();

// In a forked child: the parent's contexts are not there.
void clear();

}  // namespace switchyard::shim::swap::peers
