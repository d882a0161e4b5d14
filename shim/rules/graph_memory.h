// Rules for graphs that allocate: nodes made by cuGraphAddMemAllocNode, or by stream-ordered
// allocations in a capture.
//
// Concept. The driver keeps the memory of all graphs of a GPU in one pool (pools.h). A graph's
// possible need is reserved when it is instantiated and before it is launched or uploaded, so a
// quota refuses it there. After every launch the pool is settled. A process that has no such graph
// pays one load.
//
// Threading: any thread.
#pragma once

#include <atomic>
#include <tuple>

#include "shim/driver.h"
#include "shim/memory/context_memory.h"
#include "shim/memory/ledger.h"
#include "shim/memory/pools.h"
#include "shim/rules/graph_collectives.h"
#include "shim/work_guard.h"

namespace switchyard::shim::graph_memory {

// Whether this process has ever made a node that allocates; whether it has executable graphs that
// do.
extern std::atomic<bool> g_nodes;
extern std::atomic<std::uint32_t> g_executables;

// Passes the result of a call that made such a node.
inline CUresult captured_allocation(CUresult result) {
  if (result == CUDA_SUCCESS) g_nodes.store(true, std::memory_order_relaxed);
  return result;
}

// The most that a graph has allocated at once, by the order in which its nodes were added, child
// graphs included. It counts for one GPU: the last that is named. The driver lets memory whose
// lifetimes do not overlap share what is behind it (CUDA Programming Guide, graph memory nodes).
struct Need {
  int device = -1;
  std::uint64_t bytes = 0;
};
Need need_of(CUgraph graph);

void instantiated(CUgraphExec executable, const Need& need);
void destroyed(CUgraphExec executable);

// Before and after an executable graph that allocates is launched or uploaded.
struct Run {
  bool allocates = false;
  bool first = false;
  int device = -1;
  pools::Growth growth;
};
CUresult before_run(CUgraphExec executable, Run& run);
CUresult after_run(CUgraphExec executable, const Run& run, CUresult result);

// Launches or uploads by `call`.
template <typename Call>
CUresult run(CUgraphExec executable, Call call) {
  if (g_executables.load(std::memory_order_relaxed) == 0) [[likely]]
    return call();
  Run run;
  if (const CUresult refused = before_run(executable, run)) return refused;
  return after_run(executable, run, call());
}

}  // namespace switchyard::shim::graph_memory

namespace switchyard::shim::rules {

template <typename Original, typename... Args>
CUresult add_allocating_node(Original original, Args... args) {
  return graph_memory::captured_allocation(original(args...));
}

#if CUDA_VERSION >= 12020
// The parameters are the last argument of either version.
template <typename Original, typename... Args>
CUresult add_node(Original original, CUgraphNode* node, CUgraph graph, Args... args) {
  const CUgraphNodeParams* parameters = std::get<sizeof...(Args) - 1>(std::tie(args...));
  const void* kernel = nullptr;
  if (parameters != nullptr && parameters->type == CU_GRAPH_NODE_TYPE_KERNEL) {
    kernel = parameters->kernel.func != nullptr ? static_cast<const void*>(parameters->kernel.func)
                                                : parameters->kernel.kern;
  }
  const auto add = [&] {
    const swap::WorkGuard entry(swap::on());
    return original(node, graph, args...);
  };
  const CUresult result =
      context_memory::known(kernel) ? add() : context_memory::launch(kernel, add);
  if (result == CUDA_SUCCESS && parameters->type == CU_GRAPH_NODE_TYPE_GRAPH) {
    nccl::graphs::copy(parameters->graph.graph, graph);
  }
  // A child graph may bring nodes that allocate.
  const bool allocates = result == CUDA_SUCCESS && parameters->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return allocates ? graph_memory::captured_allocation(result) : result;
}
#endif

template <typename Original, typename... Args>
CUresult instantiate(Original original, CUgraphExec* executable, CUgraph graph, Args... args) {
  if (!graph_memory::g_nodes.load(std::memory_order_relaxed)) [[likely]] {
    const swap::WorkGuard entry(swap::on());
    return original(executable, graph, args...);
  }
  const graph_memory::Need need = graph_memory::need_of(graph);
  if (need.bytes == 0) {
    const swap::WorkGuard entry(swap::on());
    return original(executable, graph, args...);
  }
  pools::Growth growth;
  if (const CUresult refused = pools::begin_graph(need.device, need.bytes, growth)) return refused;
  CUresult result = CUDA_SUCCESS;
  {
    const swap::WorkGuard entry(swap::on());
    result = original(executable, graph, args...);
  }
  pools::end(growth);
  if (result == CUDA_SUCCESS) graph_memory::instantiated(*executable, need);
  return result;
}

// Every version starts with the executable graph and the graph.
template <typename Original, typename... Args>
CUresult graph_instantiate(Original original, CUgraphExec* executable, CUgraph graph,
                           Args... args) {
  const CUresult result = instantiate(original, executable, graph, args...);
  if (result == CUDA_SUCCESS) nccl::graphs::instantiated(graph, *executable);
  return result;
}

template <typename Original>
CUresult graph_upload(Original original, CUgraphExec executable, CUstream stream) {
  return graph_memory::run(executable, [&] { return original(executable, stream); });
}

template <typename Original>
CUresult graph_destroy(Original original, CUgraphExec executable) {
  graph_memory::destroyed(executable);
  nccl::graphs::gone(executable);
  const CUresult result = original(executable);
  pools::settle_all();
  return result;
}

// The memory that graphs don't use is given back, or their attributes are set.
template <typename Original, typename... Args>
CUresult graphs_change(Original original, CUdevice device, Args... args) {
  const CUresult result = original(device, args...);
  pools::settle_graphs(device);
  return result;
}

}  // namespace switchyard::shim::rules
