// Host memory that several threads pin and unpin, or copy through pinned memory instead.
//
// Concept. A move by the host waits for its memory to be unpinned before the contexts leave, and to
// be pinned on the way back. Do several threads do that in less time? Or could it stay unpinned,
// while the CPUs copy between it and a little pinned memory?
//
// Threading: one thread calls; it starts the others and waits for them.
#pragma once

#include "bench/ablation/chunks.h"
#include "bench/ablation/slabs.h"

namespace switchyard::bench::ablation {

// pre: all of `model` is on the device.
void measure_threads(int rounds, Chunks& model, Slabs& slabs);

}  // namespace switchyard::bench::ablation
