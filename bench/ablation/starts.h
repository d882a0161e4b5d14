// A request that finds its process warm but swapped out, or that starts a process of its own.
//
// Concept. The new process is this program once more. It opens the driver, makes a context, loads
// the kernels, copies the model in from a file in memory and computes. There is no framework, which
// would take seconds more. The process that held the GPU until then may have to end first: stop and
// start.
//
// Threading: one thread.
#pragma once

#include <cstddef>

#include "bench/ablation/moves.h"
#include "bench/ablation/work.h"

namespace switchyard::bench::ablation {

// Milliseconds until the result of a request is there.
double warm_ms(Chunks& away, const Copy& copy, const Work& work);

// A file in memory with a model of so many bytes; -1: none can be made.
int model_file(std::size_t bytes);

struct StopAndStart {
  double stop_ms = 0;   // until the one before has ended altogether
  double start_ms = 0;  // until the new one has its result
};
StopAndStart stop_and_start(int file, std::size_t bytes);

// What the new process does: tells the other by a byte on standard output, and stays.
int be_new_process(int file, std::size_t bytes);

}  // namespace switchyard::bench::ablation
