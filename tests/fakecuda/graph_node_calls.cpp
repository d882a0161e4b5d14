// Nodes of graphs: added, and their parameters read and changed, in the graph and in its execs.
#include <algorithm>
#include <type_traits>

#include "arrays.h"
#include "graph.h"
#include "modules.h"

using namespace fakecuda;

namespace {

CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, std::size_t count,
             const Work& work) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!out || !known(from(graph)) || (count && !before)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphNode*> list;
  for (std::size_t i = 0; i < count; ++i) {
    if (!known(from(before[i]))) return CUDA_ERROR_INVALID_VALUE;
    list.push_back(from(before[i]));
  }
  *out = reinterpret_cast<CUgraphNode>(add_node(from(graph), work, std::move(list)));
  return CUDA_SUCCESS;
}

// Replaces a node's work, in the graph (exec null) or in an exec made from it.
CUresult replace(CUgraphExec exec, CUgraphNode node, const Work& work) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  if (!exec) {
    if (!known(from(node)) || from(node)->work.type != work.type) return CUDA_ERROR_INVALID_VALUE;
    from(node)->work = work;
    return CUDA_SUCCESS;
  }
  ExecNode* found = known(from(exec)) ? from(exec)->of(from(node)) : nullptr;
  if (!found || found->work.type != work.type) return CUDA_ERROR_INVALID_VALUE;
  found->work = work;
  return CUDA_SUCCESS;
}

// The same with what `build` makes of a call's parameters.
template <class Build>
CUresult add(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, std::size_t count,
             Build build) requires std::is_invocable_v<Build, Work*> {
  Work work;
  if (const CUresult status = build(&work)) return status;
  return add(out, graph, before, count, work);
}
template <class Build>
CUresult replace(CUgraphNode node, Build build) {
  Work work;
  if (const CUresult status = build(&work)) return status;
  return replace(nullptr, node, work);
}
template <class Build>
CUresult replace_in(CUgraphExec exec, CUgraphNode node, Build build) {
  Work work;
  if (const CUresult status = build(&work)) return status;
  return exec ? replace(exec, node, work) : CUDA_ERROR_INVALID_VALUE;
}

// The node's work, when it is of that type. REQUIRES: ops_lock.
const Work* work_of(CUgraphNode node, CUgraphNodeType type) {
  return known(from(node)) && from(node)->work.type == type ? &from(node)->work : nullptr;
}

template <class Value>
CUresult read(CUgraphNode node, CUgraphNodeType type, Value* out, Value Work::*member) {
  std::lock_guard held(ops_lock());
  const Work* work = work_of(node, type);
  if (!out || !work) return CUDA_ERROR_INVALID_VALUE;
  *out = work->*member;
  return CUDA_SUCCESS;
}

// `kern` is looked at when func is null; the oldest form of the parameters hasn't got it.
template <class Params>
CUresult kernel_node(const Params* p, CUkernel library_kernel, Work* work) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  auto launch = std::make_shared<Launch>();
  launch->kernel =
      p->func ? reinterpret_cast<Kernel*>(p->func) : reinterpret_cast<Kernel*>(library_kernel);
  if (!known_kernel(launch->kernel)) return CUDA_ERROR_INVALID_VALUE;
  const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
  const unsigned block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
  std::copy(grid, grid + 3, launch->grid);
  std::copy(block, block + 3, launch->block);
  launch->shared_bytes = p->sharedMemBytes;
  if (!pack_arguments(*launch, p->kernelParams, p->extra)) return CUDA_ERROR_INVALID_VALUE;
  *work = kernel_work(std::move(launch));
  return CUDA_SUCCESS;
}

CUresult kernel_node_v1(const CUDA_KERNEL_NODE_PARAMS_v1* p, Work* work) {
  return kernel_node(p, nullptr, work);
}

CUresult kernel_node_v2(const CUDA_KERNEL_NODE_PARAMS_v2* p, Work* work) {
  return kernel_node(p, p ? p->kern : nullptr, work);
}

template <class Params>
CUresult read_kernel_node(CUgraphNode node, Params* out) {
  FAKE_NEED_DRIVER();
  std::lock_guard held(ops_lock());
  const Work* work = work_of(node, CU_GRAPH_NODE_TYPE_KERNEL);
  if (!out || !work) return CUDA_ERROR_INVALID_VALUE;
  Launch& launch = *work->launch;
  launch.pointers.clear();
  for (const std::size_t offset : launch.kernel->offsets) {
    launch.pointers.push_back(launch.arguments.data() + offset);
  }
  *out = {};
  out->func = reinterpret_cast<CUfunction>(launch.kernel);
  out->gridDimX = launch.grid[0], out->gridDimY = launch.grid[1], out->gridDimZ = launch.grid[2];
  out->blockDimX = launch.block[0], out->blockDimY = launch.block[1];
  out->blockDimZ = launch.block[2];
  out->sharedMemBytes = launch.shared_bytes;
  out->kernelParams = launch.pointers.data();
  return CUDA_SUCCESS;
}

CUresult copy_node(const CUDA_MEMCPY3D* p, Work* work) {
  return p ? copy_3d(*p, work) : CUDA_ERROR_INVALID_VALUE;
}

CUresult set_node(const CUDA_MEMSET_NODE_PARAMS* p, Work* work) {
  if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) || !set_fits(*p)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *work = set_work(*p);
  return CUDA_SUCCESS;
}

CUresult host_node(const CUDA_HOST_NODE_PARAMS* p, Work* work) {
  if (!p || !p->fn) return CUDA_ERROR_INVALID_VALUE;
  *work = host_work(p->fn, p->userData);
  return CUDA_SUCCESS;
}

CUresult memory_op_node(const CUDA_BATCH_MEM_OP_NODE_PARAMS* p, Work* work) {
  if (!p || !p->paramArray || p->count == 0) return CUDA_ERROR_INVALID_VALUE;
  *work = memory_op_work(p->paramArray, p->count);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                             std::size_t count) {
  Work work;
  work.make = [](Stream*) { return std::vector<OpRef>{}; };
  return add(out, graph, before, count, work);
}

// A kind of node: added, changed in its graph, changed in an exec. Behind `build`: what the
// calls take besides, which says nothing here.
#define FAKE_NODE_CALLS(Kind, suffix, Params, build, ...)                                    \
  CUresult cuGraphAdd##Kind##Node##suffix(CUgraphNode* out, CUgraph graph,                   \
                                          const CUgraphNode* before, std::size_t count,      \
                                          const Params* params __VA_OPT__(, ) __VA_ARGS__) { \
    return add(out, graph, before, count, [=](Work* work) { return build(params, work); });  \
  }                                                                                          \
  CUresult cuGraph##Kind##NodeSetParams##suffix(CUgraphNode node, const Params* params) {    \
    return replace(node, [=](Work* work) { return build(params, work); });                   \
  }                                                                                          \
  CUresult cuGraphExec##Kind##NodeSetParams##suffix(                                         \
      CUgraphExec exec, CUgraphNode node, const Params* params __VA_OPT__(, ) __VA_ARGS__) { \
    return replace_in(exec, node, [=](Work* work) { return build(params, work); });          \
  }
FAKE_NODE_CALLS(Host, , CUDA_HOST_NODE_PARAMS, host_node)
FAKE_NODE_CALLS(BatchMemOp, , CUDA_BATCH_MEM_OP_NODE_PARAMS, memory_op_node)
FAKE_NODE_CALLS(Memcpy, , CUDA_MEMCPY3D, copy_node, CUcontext)
FAKE_NODE_CALLS(Memset, , CUDA_MEMSET_NODE_PARAMS, set_node, CUcontext)
FAKE_NODE_CALLS(Kernel, , CUDA_KERNEL_NODE_PARAMS_v1, kernel_node_v1)
FAKE_NODE_CALLS(Kernel, _v2, CUDA_KERNEL_NODE_PARAMS_v2, kernel_node_v2)
#undef FAKE_NODE_CALLS

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return read_kernel_node(node, out);
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* out) {
  return read_kernel_node(node, out);
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return read(node, CU_GRAPH_NODE_TYPE_MEMCPY, out, &Work::copy);
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return read(node, CU_GRAPH_NODE_TYPE_MEMSET, out, &Work::set);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return read(node, CU_GRAPH_NODE_TYPE_HOST, out, &Work::host);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS* out) {
  std::lock_guard held(ops_lock());
  const Work* work = work_of(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  if (!out || !work) return CUDA_ERROR_INVALID_VALUE;
  *out = {};
  out->count = static_cast<unsigned>(work->memory_ops.size());
  out->paramArray = const_cast<CUstreamBatchMemOpParams*>(work->memory_ops.data());
  return CUDA_SUCCESS;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                  std::size_t count, CUgraph child) {
  Work work;
  {
    std::lock_guard held(ops_lock());
    if (!known(from(child)) || child == graph) return CUDA_ERROR_INVALID_VALUE;
    work = child_work(from(child));
  }
  return add(out, graph, before, count, work);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* out) {
  return read(node, CU_GRAPH_NODE_TYPE_GRAPH, out, &Work::child);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                   std::size_t count, CUevent event) {
  return add(out, graph, before, count, event_record_work(event));
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                 std::size_t count, CUevent event) {
  return add(out, graph, before, count, event_wait_work(event));
}
CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return read(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, out, &Work::event);
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return read(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, out, &Work::event);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* params) {
  FAKE_NEED_DRIVER();
  Work work;
  if (!params) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = alloc_work(params, &work)) return status;
  return add(out, graph, before, count, work);
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  return read(node, CU_GRAPH_NODE_TYPE_MEM_ALLOC, out, &Work::alloc);
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                               std::size_t count, CUdeviceptr address) {
  if (!is_graph_memory(address)) return CUDA_ERROR_INVALID_VALUE;
  return add(out, graph, before, count, free_work(address));
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* out) {
  return read(node, CU_GRAPH_NODE_TYPE_MEM_FREE, out, &Work::freed);
}

}  // extern "C"

#if CUDA_VERSION >= 12020
namespace {

CUresult add_any(CUgraphNode* out, CUgraph graph, const CUgraphNode* before, std::size_t count,
                 CUgraphNodeParams* p) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  CUresult status = CUDA_SUCCESS;
  switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      status = kernel_node(&p->kernel, p->kernel.kern, &work);
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      status = copy_node(&p->memcpy.copyParams, &work);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS set{p->memset.dst,         p->memset.pitch, p->memset.value,
                                        p->memset.elementSize, p->memset.width, p->memset.height};
      status = set_node(&set, &work);
      break;
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host{p->host.fn, p->host.userData};
      status = host_node(&host, &work);
      break;
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return cuGraphAddChildGraphNode(out, graph, before, count, p->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode(out, graph, before, count);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      work = event_record_work(p->eventRecord.event);
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      work = event_wait_work(p->eventWait.event);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
      alloc.poolProps = p->alloc.poolProps;
      alloc.bytesize = p->alloc.bytesize;
      status = cuGraphAddMemAllocNode(out, graph, before, count, &alloc);
      p->alloc.dptr = alloc.dptr;
      return status;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphAddMemFreeNode(out, graph, before, count, p->free.dptr);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      work = memory_op_work(p->memOp.paramArray, p->memOp.count);
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return status ? status : add(out, graph, before, count, work);
}

}  // namespace

extern "C" CUresult cuGraphAddNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                   std::size_t count, CUgraphNodeParams* params) {
  return add_any(out, graph, before, count, params);
}
#if CUDA_VERSION >= 12030
extern "C" CUresult cuGraphAddNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* before,
                                      const CUgraphEdgeData*, std::size_t count,
                                      CUgraphNodeParams* params) {
  return add_any(out, graph, before, count, params);
}
#endif
#endif
