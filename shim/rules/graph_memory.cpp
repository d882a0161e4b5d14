#include "shim/rules/graph_memory.h"

#include <stdlib.h>

#include "shim/client/process.h"
#include "shim/reset.h"

namespace switchyard::shim::graph_memory {

std::atomic<bool> g_nodes{false};
std::atomic<std::uint32_t> g_executables{0};

namespace {

constexpr int kDeepest = 16;  // child graphs inside child graphs

std::uint64_t key_of(CUgraphExec executable) {
  return reinterpret_cast<std::uintptr_t>(executable);
}

void add_need(CUgraph graph, Need& need, int depth);

void add_node_need(CUgraphNode node, Need& need, int depth) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return;
  if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    if (driver().cuGraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS) return;
    if (parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
    need.device = parameters.poolProps.location.id;
    need.bytes += parameters.bytesize;
  } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    if (driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
      add_need(child, need, depth + 1);
    }
  }
}

void add_need(CUgraph graph, Need& need, int depth) {
  size_t count = 0;
  if (depth > kDeepest || driver().cuGraphGetNodes == nullptr ||
      driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) {
    return;
  }
  auto* nodes = static_cast<CUgraphNode*>(::calloc(count, sizeof(CUgraphNode)));
  if (nodes == nullptr) return;
  if (driver().cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
    for (size_t i = 0; i < count; ++i) add_node_need(nodes[i], need, depth);
  }
  ::free(nodes);
}

}  // namespace

Need need_of(CUgraph graph) {
  Need need;
  if (driver().cuGraphNodeGetType == nullptr || driver().cuGraphMemAllocNodeGetParams == nullptr ||
      driver().cuGraphChildGraphNodeGetGraph == nullptr) {
    return need;
  }
  add_need(graph, need, 0);
  return need;
}

void instantiated(CUgraphExec executable, const Need& need) {
  if (ledger::note(ledger::Kind::kGraphExec, key_of(executable),
                   {.lane = need.device, .bytes = need.bytes})) {
    g_executables.fetch_add(1, std::memory_order_relaxed);
  }
}

void destroyed(CUgraphExec executable) {
  ledger::Charge charge;
  if (g_executables.load(std::memory_order_relaxed) != 0 &&
      ledger::take(ledger::Kind::kGraphExec, key_of(executable), charge)) {
    g_executables.fetch_sub(1, std::memory_order_relaxed);
  }
}

CUresult before_run(CUgraphExec executable, Run& run) {
  ledger::Charge charge;
  run.allocates = ledger::look(ledger::Kind::kGraphExec, key_of(executable), charge);
  run.device = charge.lane;
  // Only the first run brings new memory; later ones find it in the pool.
  if (!run.allocates || charge.bytes == 0) return CUDA_SUCCESS;
  return pools::begin_graph(charge.lane, charge.bytes, run.growth);
}

CUresult after_run(CUgraphExec executable, const Run& run, CUresult result) {
  if (!run.allocates) return result;
  if (run.growth.slot < 0) {
    pools::settle_graphs(run.device);
    return result;
  }
  pools::end(run.growth);
  if (result == CUDA_SUCCESS) {
    ledger::note(ledger::Kind::kGraphExec, key_of(executable), {.lane = run.device, .bytes = 0});
  }
  return result;
}

namespace {
void forget() {
  g_nodes.store(false);
  g_executables.store(0);
}
}  // namespace
SWITCHYARD_RESET(kState, forget);

}  // namespace switchyard::shim::graph_memory
