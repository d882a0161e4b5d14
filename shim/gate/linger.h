// Lingering: the GPU stays with a client for a moment after its burst.
//
// Concept. When all streams of a client run dry, the hardware hands the GPU to the neighbour at
// once. If the next request comes a few microseconds later, it waits until the neighbour is
// switched out again. That takes about 0.35 ms beside heavy kernels, the largest part of a
// service's loss beside a training (docs/measurements.md). So before the CPU waits for a burst,
// some 130 writes of one word are put behind it. A few go into its stream and most into a stream of
// ours. While the GPU's host engine works them off, about a microsecond each, the channel group is
// not idle and keeps the GPU. It is what an anticipating disk scheduler does: a short wait for the
// next request instead of a long way back.
//
//     the burst's stream   burst | its event | fence | bridge
//     ours                                     fence | number | writes ...............
//
// The number of the burst's batch (numbers.h) stands in our stream, because there it costs nothing.
// Behind a graph it would add some 20 us to every request.
//
// A kernel that spins does not have this effect (tried): it is the host engine that must be busy.
// Waits for the whole context would wait for these writes too, so they don't linger.
//
// Only while the monitor asks for it (abi::kLinger): a high job beside one that yields.
//
// Threading: any thread.
#pragma once

#include <cstdint>

namespace switchyard::shim::linger {

// pre: the calling thread is about to wait for work on the GPU of `lane`, and holds no lock.
void behind_latest(unsigned lane);

// The context has ended, and our stream with it.
void context_gone(unsigned lane, std::uint64_t owner);

}  // namespace switchyard::shim::linger
