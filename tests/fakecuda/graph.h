// Graphs: work with edges, built call by call or by capturing streams, and what launches them.
//
// Concept. A Graph owns nodes; a GraphExec is a copy of them in an order that its edges allow, with
// child graphs flattened into it. A launch puts one op (or chain of ops) per node between a first
// and a last op on the stream. GraphMemory is what an allocation node's address stands for: address
// space from the node's birth, memory from the first launch on until it is trimmed.
//
// Threading: all of it under ops_lock, except GraphMemory's own lock.
#pragma once

#include "memory.h"
#include "work.h"

namespace fakecuda {

struct Graph;

struct GraphNode {
  Graph* graph = nullptr;
  Work work;
  std::vector<GraphNode*> before;  // what it depends on
  GraphNode* origin = nullptr;     // in the graph of which this is a clone
};

struct Graph {
  std::vector<GraphNode*> nodes;
  bool child = false;  // owned by a node
};

struct ExecNode {
  Work work;
  std::vector<std::size_t> before;
  GraphNode* origin = nullptr;
  bool enabled = true;
};

struct GraphExec {
  std::vector<ExecNode> nodes;
  unsigned long long flags = 0;
  Graph* source = nullptr;  // what a launch into a capture adds
  OpRef last;               // launches of one exec follow each other
  ExecNode* of(GraphNode* origin);
};

// What the driver's handles stand for.
inline Graph* from(CUgraph handle) { return reinterpret_cast<Graph*>(handle); }
inline GraphNode* from(CUgraphNode handle) { return reinterpret_cast<GraphNode*>(handle); }
inline GraphExec* from(CUgraphExec handle) { return reinterpret_cast<GraphExec*>(handle); }

bool known(Graph* graph);
bool known(GraphNode* node);
bool known(GraphExec* exec);
Graph* new_graph();
GraphNode* add_node(Graph* graph, const Work& work, std::vector<GraphNode*> before);
Graph* clone_graph(const Graph* graph);
void forget(Graph* graph);
void forget(GraphNode* node);
void forget(GraphExec* exec);
GraphExec* instantiate(Graph* graph);  // null: the edges make a ring

// Puts a launch of the exec on the stream. REQUIRES: `held` holds ops_lock.
CUresult launch_graph(GraphExec* exec, Stream* stream, std::unique_lock<std::mutex>& held);
Work child_work(Graph* graph);

Work event_record_work(CUevent event);
Work event_wait_work(CUevent event);

// Memory of allocation nodes (graph_memory.cpp).
CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS* params, Work* work);  // sets params->dptr
Work free_work(CUdeviceptr address);
bool is_graph_memory(CUdeviceptr address);
// Before a launch. `frees`: the launched graph frees it itself, so that each launch has an end.
CUresult back_graph_memory(CUdeviceptr address, bool frees);
void free_graph_memory(CUdeviceptr address);

}  // namespace fakecuda
