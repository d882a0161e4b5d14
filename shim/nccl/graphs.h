// Collectives in graphs: what is captured runs at each launch of the executable graph.
//
// Concept. While a stream is captured, its operations are noted for the graph that it is captured
// into. An executable graph takes over what its graph has, and each launch of it adds that to the
// communicators' counts. A process without such graphs pays one load per launch of a graph.
//
// Threading: any thread. A launch takes no lock. Notes are found by a hash of the handle. Only
// launches of the graph itself read them, and these end before it is destroyed. All else takes one
// lock.
#pragma once

#include <atomic>
#include <cstddef>

#include "shim/driver.h"
#include "shim/nccl/cut.h"

namespace switchyard::shim::nccl::graphs {

// How many graphs with collectives there are, executable or not.
extern std::atomic<std::uint32_t> g_noted;
inline bool any() { return g_noted.load(std::memory_order_relaxed) != 0; }

// The graph that the stream is captured into; null: it isn't. The null stream: the thread's own.
CUgraph captured_into(CUstream stream);

// An operation that went into a capture.
void note(CUgraph graph, int slot, const CountStep& step);
// The graph holds what another one does, too: a clone, or one with a child graph.
void copy(CUgraph from, CUgraph to);
void copy(CUgraphExec from, CUgraph to);
void instantiated(CUgraph from, CUgraphExec to);
// Before it is destroyed: its handle may be another's at once.
void gone(CUgraph graph);
void gone(CUgraphExec executable);

// Whether a launch of it adds to the counts.
bool counts(CUgraphExec executable);
// Whether a launch of it stops at a cut: not if it only sends and receives (cut.h).
bool stops(CUgraphExec executable);
void count(CUgraphExec executable);
void take_back(CUgraphExec executable);

// Places of the table that a lookup does not end at, for tests.
std::size_t size();

// Launches by `call`, which may hold the thread no more.
template <typename Call>
CUresult run(CUgraphExec executable, Call call) {
  if (!any() || t_nccl.inside != 0 || !counts(executable)) [[likely]]
    return call();
  const Launch launch(stops(executable));
  count(executable);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) take_back(executable);
  return result;
}

}  // namespace switchyard::shim::nccl::graphs
