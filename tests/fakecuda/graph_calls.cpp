// Graphs: created, cloned, walked, instantiated, launched.
#include <stdio.h>

#include <algorithm>

#include "graph.h"

using namespace fakecuda;

namespace {

// Gives a list by the driver's rule: null asks for the count; what is over is zero.
CUresult give(const std::vector<GraphNode*>& list, CUgraphNode* out, std::size_t* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  if (out) {
    for (std::size_t i = 0; i < *count; ++i) {
      out[i] = i < list.size() ? reinterpret_cast<CUgraphNode>(list[i]) : nullptr;
    }
    *count = std::min(*count, list.size());
  } else {
    *count = list.size();
  }
  return CUDA_SUCCESS;
}

CUresult give_edges(CUgraph handle, CUgraphNode* before, CUgraphNode* after, std::size_t* count) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!count || !known(from(handle))) return CUDA_ERROR_INVALID_VALUE;
  std::size_t n = 0;
  for (GraphNode* node : from(handle)->nodes) {
    for (GraphNode* source : node->before) {
      if (before && after && n < *count) {
        before[n] = reinterpret_cast<CUgraphNode>(source);
        after[n] = reinterpret_cast<CUgraphNode>(node);
      }
      ++n;
    }
  }
  *count = before && after ? std::min(*count, n) : n;
  return CUDA_SUCCESS;
}

// What `then` says of the graph, the node or the exec behind `handle`; `ok`: so far the call's
// arguments make sense.
template <class Handle, class Then>
CUresult of_known(Handle handle, bool ok, Then then, const char* call = __builtin_FUNCTION()) {
  if (const CUresult status = need_driver(call)) return status;
  std::lock_guard held(ops_lock());
  return ok && known(from(handle)) ? then(from(handle)) : CUDA_ERROR_INVALID_VALUE;
}

template <class Handle>
CUresult destroy(Handle handle, const char* call = __builtin_FUNCTION()) {
  const auto end = [](auto* object) { return forget(object), CUDA_SUCCESS; };
  return of_known(handle, true, end, call);
}

// The node of an exec that was made of `node`.
template <class Then>
CUresult of_node(CUgraphExec exec, CUgraphNode node, bool ok, Then then,
                 const char* call = __builtin_FUNCTION()) {
  const auto find = [&](GraphExec* of) {
    ExecNode* found = of->of(from(node));
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    then(*found);
    return CUDA_SUCCESS;
  };
  return of_known(exec, ok, find, call);
}

CUresult make_exec(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!out || !known(from(graph))) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* exec = instantiate(from(graph));
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  exec->flags = flags;
  *out = reinterpret_cast<CUgraphExec>(exec);
  return CUDA_SUCCESS;
}

CUresult edit_edges(CUgraph graph, const CUgraphNode* before, const CUgraphNode* after,
                    std::size_t count, bool add) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!known(from(graph)) || (count && (!before || !after))) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i) {
    if (!known(from(before[i])) || !known(from(after[i]))) return CUDA_ERROR_INVALID_VALUE;
    auto& list = from(after[i])->before;
    const auto found = std::find(list.begin(), list.end(), from(before[i]));
    if (add == (found != list.end())) return CUDA_ERROR_INVALID_VALUE;
    if (add) {
      list.push_back(from(before[i]));
    } else {
      list.erase(found);
    }
  }
  return CUDA_SUCCESS;
}

CUresult dependencies(CUgraphNode node, CUgraphNode* out, std::size_t* count) {
  return of_known(node, true, [&](GraphNode* of) { return give(of->before, out, count); });
}

CUresult dependents(CUgraphNode node, CUgraphNode* out, std::size_t* count) {
  return of_known(node, true, [&](GraphNode* of) {
    std::vector<GraphNode*> list;
    for (GraphNode* other : of->graph->nodes) {
      const auto& before = other->before;
      if (std::find(before.begin(), before.end(), of) != before.end()) list.push_back(other);
    }
    return give(list, out, count);
  });
}

// Takes the parameters of a graph of the same shape.
CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResult* result) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!known(from(exec)) || !known(from(graph))) return CUDA_ERROR_INVALID_VALUE;
  GraphExec* fresh = instantiate(from(graph));
  auto& old = from(exec)->nodes;
  bool same = fresh && fresh->nodes.size() == old.size();
  for (std::size_t i = 0; same && i < old.size(); ++i) {
    same = fresh->nodes[i].work.type == old[i].work.type && fresh->nodes[i].before == old[i].before;
  }
  if (result) {
    *result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  if (same) {
    for (std::size_t i = 0; i < old.size(); ++i) old[i].work = fresh->nodes[i].work;
  }
  if (fresh) forget(fresh);
  return same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

}  // namespace

extern "C" {

CUresult cuGraphCreate(CUgraph* out, unsigned flags) {
  FAKE_NEED_DRIVER();
  if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard held(ops_lock());
  *out = reinterpret_cast<CUgraph>(new_graph());
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) { return destroy(graph); }

CUresult cuGraphClone(CUgraph* out, CUgraph graph) {
  return of_known(graph, out != nullptr, [&](Graph* of) {
    *out = reinterpret_cast<CUgraph>(clone_graph(of));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphNodeFindInClone(CUgraphNode* out, CUgraphNode original, CUgraph clone) {
  return of_known(clone, out != nullptr, [&](Graph* of) {
    for (GraphNode* node : of->nodes) {
      if (node->origin != from(original)) continue;
      *out = reinterpret_cast<CUgraphNode>(node);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* out, std::size_t* count) {
  return of_known(graph, true, [&](Graph* of) { return give(of->nodes, out, count); });
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* out, std::size_t* count) {
  return of_known(graph, true, [&](Graph* of) {
    std::vector<GraphNode*> roots;
    for (GraphNode* node : of->nodes) {
      if (node->before.empty()) roots.push_back(node);
    }
    return give(roots, out, count);
  });
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* before, CUgraphNode* after,
                         std::size_t* count) {
  return give_edges(graph, before, after, count);
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return of_known(node, type != nullptr,
                  [&](GraphNode* of) { return *type = of->work.type, CUDA_SUCCESS; });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* out, std::size_t* count) {
  return dependencies(node, out, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* out, std::size_t* count) {
  return dependents(node, out, count);
}
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode* before, const CUgraphNode* after,
                                std::size_t count) {
  return edit_edges(graph, before, after, count, true);
}
CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* before,
                                   const CUgraphNode* after, std::size_t count) {
  return edit_edges(graph, before, after, count, false);
}

#if CUDA_VERSION >= 12030
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* before, CUgraphNode* after,
                            CUgraphEdgeData* data, std::size_t* count) {
  const CUresult status = give_edges(graph, before, after, count);
  if (status == CUDA_SUCCESS && data) std::fill(data, data + *count, CUgraphEdgeData{});
  return status;
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                       std::size_t* count) {
  const CUresult status = dependencies(node, out, count);
  if (status == CUDA_SUCCESS && data) std::fill(data, data + *count, CUgraphEdgeData{});
  return status;
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* out, CUgraphEdgeData* data,
                                         std::size_t* count) {
  const CUresult status = dependents(node, out, count);
  if (status == CUDA_SUCCESS && data) std::fill(data, data + *count, CUgraphEdgeData{});
  return status;
}
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* before,
                                   const CUgraphNode* after, const CUgraphEdgeData*,
                                   std::size_t count) {
  return edit_edges(graph, before, after, count, true);
}
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* before,
                                      const CUgraphNode* after, const CUgraphEdgeData*,
                                      std::size_t count) {
  return edit_edges(graph, before, after, count, false);
}
#endif

CUresult cuGraphDestroyNode(CUgraphNode node) { return destroy(node); }

CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return make_exec(out, graph, flags);
}

CUresult cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log,
                               std::size_t bytes) {
  if (error) *error = nullptr;
  if (log && bytes) *log = 0;
  return make_exec(out, graph, 0);
}

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* error, char* log,
                            std::size_t bytes) {
  return cuGraphInstantiate_v2(out, graph, error, log, bytes);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec* out, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  const CUresult status = make_exec(out, graph, params->flags);
  params->hErrNode_out = nullptr;
  params->result_out =
      status == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return status;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) { return destroy(exec); }

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
  return of_known(exec, flags != nullptr,
                  [&](GraphExec* of) { return *flags = of->flags, CUDA_SUCCESS; });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  CUgraphExecUpdateResult result{};
  const CUresult status = update(exec, graph, &result);
  if (info) *info = {result, nullptr, nullptr};
  return status;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* error,
                           CUgraphExecUpdateResult* result) {
  if (error) *error = nullptr;
  return update(exec, graph, result);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream handle) {
  FAKE_NEED_CONTEXT(context);
  std::lock_guard held(ops_lock());
  Stream* stream = nullptr;
  if (!known(from(exec))) return CUDA_ERROR_INVALID_VALUE;
  return find_stream(handle, &stream);
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle) {
  FAKE_NEED_DRIVER();
  std::unique_lock held(ops_lock());
  Stream* stream = nullptr;
  if (!known(from(exec))) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  held.unlock();
  std::lock_guard api(stream->context->api);
  held.lock();
  if (const CUresult status = check_capture(stream)) return status;
  if (stream->capture) return add_to_capture(stream, child_work(from(exec)->source));
  return launch_graph(from(exec), stream, held);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  return of_node(exec, node, true, [&](ExecNode& found) { found.enabled = enabled != 0; });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  return of_node(exec, node, enabled, [&](const ExecNode& found) { *enabled = found.enabled; });
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!path || !known(from(graph))) return CUDA_ERROR_INVALID_VALUE;
  FILE* file = fopen(path, "w");
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  fprintf(file, "digraph graph_ {\n");
  for (GraphNode* node : from(graph)->nodes) {
    for (GraphNode* before : node->before) {
      fprintf(file, "\"%p\" -> \"%p\"\n", static_cast<void*>(before), static_cast<void*>(node));
    }
  }
  fprintf(file, "}\n");
  fclose(file);
  return CUDA_SUCCESS;
}

}  // extern "C"
