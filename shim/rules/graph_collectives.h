// Rules for graphs as objects: the collectives of one may become those of another (nccl/graphs.h).
//
// Threading: any thread.
#pragma once

#include "shim/driver.h"
#include "shim/nccl/graphs.h"

namespace switchyard::shim::rules {

template <typename Original>
CUresult graph_clone(Original original, CUgraph* clone, CUgraph graph) {
  const CUresult result = original(clone, graph);
  if (result == CUDA_SUCCESS) nccl::graphs::copy(graph, *clone);
  return result;
}

template <typename Original>
CUresult add_child_graph(Original original, CUgraphNode* node, CUgraph graph,
                         const CUgraphNode* before, size_t count, CUgraph child) {
  const CUresult result = original(node, graph, before, count, child);
  if (result == CUDA_SUCCESS) nccl::graphs::copy(child, graph);
  return result;
}

// Its handle may be another's as soon as it has gone.
template <typename Original>
CUresult graph_object_destroy(Original original, CUgraph graph) {
  nccl::graphs::gone(graph);
  return original(graph);
}

}  // namespace switchyard::shim::rules
