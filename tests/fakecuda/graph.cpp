#include "graph.h"

#include <algorithm>

namespace fakecuda {
namespace {

struct Registry {
  std::set<Graph*> graphs;
  std::set<GraphNode*> nodes;
  std::set<GraphExec*> execs;
};

Registry& registry() {
  static Registry* only = new Registry;
  return *only;
}

// Appends the graph's nodes to the exec in an order its edges allow. `entry`: what its roots
// follow. Returns its leaves; false in *ok when the edges make a ring.
std::vector<std::size_t> flatten(const Graph* graph, const std::vector<std::size_t>& entry,
                                 GraphExec* exec, bool* ok) {
  std::map<const GraphNode*, std::vector<std::size_t>> ends;  // of the nodes placed so far
  std::set<const GraphNode*> leaves(graph->nodes.begin(), graph->nodes.end());
  while (ends.size() < graph->nodes.size()) {
    bool placed = false;
    for (GraphNode* node : graph->nodes) {
      const bool ready = std::all_of(node->before.begin(), node->before.end(),
                                     [&](GraphNode* before) { return ends.count(before); });
      if (ends.count(node) || !ready) continue;
      std::vector<std::size_t> follows = node->before.empty() ? entry : std::vector<std::size_t>{};
      for (GraphNode* before : node->before) {
        follows.insert(follows.end(), ends[before].begin(), ends[before].end());
        leaves.erase(before);
      }
      if (node->work.child) {
        // The node itself stands before its graph, so that it can be enabled and found.
        exec->nodes.push_back({Work{}, follows, node, true});
        exec->nodes.back().work.make = [](Stream*) { return std::vector<OpRef>{}; };
        const auto* inner = reinterpret_cast<const Graph*>(node->work.child);
        ends[node] = flatten(inner, {exec->nodes.size() - 1}, exec, ok);
      } else {
        exec->nodes.push_back({node->work, follows, node, true});
        ends[node] = {exec->nodes.size() - 1};
      }
      placed = true;
    }
    if (!placed) return *ok = false, std::vector<std::size_t>{};
  }
  std::vector<std::size_t> out;
  for (const GraphNode* leaf : leaves) {
    out.insert(out.end(), ends[leaf].begin(), ends[leaf].end());
  }
  return out.empty() ? entry : out;
}

}  // namespace

ExecNode* GraphExec::of(GraphNode* origin) {
  for (ExecNode& node : nodes) {
    if (node.origin == origin) return &node;
  }
  return nullptr;
}

bool known(Graph* graph) { return registry().graphs.count(graph) != 0; }
bool known(GraphNode* node) { return registry().nodes.count(node) != 0; }
bool known(GraphExec* exec) { return registry().execs.count(exec) != 0; }

Graph* new_graph() { return *registry().graphs.insert(kept(new Graph)).first; }

GraphNode* add_node(Graph* graph, const Work& work, std::vector<GraphNode*> before) {
  auto* node = kept(new GraphNode{graph, work, std::move(before), nullptr});
  graph->nodes.push_back(node);
  registry().nodes.insert(node);
  return node;
}

Graph* clone_graph(const Graph* graph) {
  Graph* copy = new_graph();
  std::map<const GraphNode*, GraphNode*> twins;
  for (const GraphNode* node : graph->nodes) {
    GraphNode* twin = add_node(copy, node->work, {});
    twin->origin = const_cast<GraphNode*>(node);
    if (node->work.child) twin->work = child_work(reinterpret_cast<Graph*>(node->work.child));
    twins[node] = twin;
  }
  for (const GraphNode* node : graph->nodes) {
    for (const GraphNode* before : node->before) twins[node]->before.push_back(twins[before]);
  }
  return copy;
}

void forget(GraphNode* node) {
  for (GraphNode* other : node->graph->nodes) std::erase(other->before, node);
  std::erase(node->graph->nodes, node);
  registry().nodes.erase(node);
}

void forget(Graph* graph) {
  for (GraphNode* node : graph->nodes) {
    registry().nodes.erase(node);
    if (node->work.child) forget(reinterpret_cast<Graph*>(node->work.child));
  }
  registry().graphs.erase(graph);
}

void forget(GraphExec* exec) {
  registry().execs.erase(exec);
  exec->nodes.clear();
  forget(exec->source);
}

GraphExec* instantiate(Graph* graph) {
  auto* exec = new GraphExec;
  bool ok = true;
  flatten(graph, {}, exec, &ok);
  if (!ok) return delete exec, nullptr;
  remember(exec);
  exec->source = clone_graph(graph);
  registry().execs.insert(exec);
  return exec;
}

CUresult launch_graph(GraphExec* exec, Stream* stream, std::unique_lock<std::mutex>& held) {
  for (const ExecNode& node : exec->nodes) {
    if (node.work.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    const CUdeviceptr address = node.work.alloc.dptr;
    const bool frees = std::any_of(exec->nodes.begin(), exec->nodes.end(), [&](const auto& other) {
      return other.work.type == CU_GRAPH_NODE_TYPE_MEM_FREE && other.work.freed == address;
    });
    if (const CUresult status = back_graph_memory(address, frees)) return status;
  }
  wait_for_room(stream, held);
  auto first = std::make_shared<Op>(), last = std::make_shared<Op>();
  follow_stream(stream, first);
  depend(first, exec->last);
  ++last->blockers;  // it must not begin before all nodes are in place
  submit(first);
  std::vector<OpRef> ends;
  for (const ExecNode& node : exec->nodes) {
    auto begin = std::make_shared<Op>();  // the node's own: after all that it depends on
    depend(begin, first);
    for (const std::size_t before : node.before) depend(begin, ends[before]);
    OpRef end = begin;
    std::vector<OpRef> ops;
    if (node.enabled) ops = node.work.make(stream);
    for (const OpRef& op : ops) {
      depend(op, end);
      end = op;
    }
    depend(last, end);
    submit(begin);  // the rest follows by itself
    ends.push_back(end);
  }
  last->queued = stream->queued;
  stream->last = exec->last = last;
  depend(last, first);
  --last->blockers;
  submit(last);
  return CUDA_SUCCESS;
}

Work child_work(Graph* graph) {
  Graph* copy = clone_graph(graph);
  copy->child = true;
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_GRAPH;
  work.child = reinterpret_cast<CUgraph>(copy);
  return work;
}

// `then` makes of an op what the event wants, at each launch.
template <class Then>
static Work event_work(CUgraphNodeType type, CUevent handle, Then then) {
  Work work;
  work.type = type;
  work.event = handle;
  work.make = [handle, then](Stream*) {
    Event* event = nullptr;
    auto op = std::make_shared<Op>();
    if (find_event(handle, &event) == CUDA_SUCCESS) then(*event, op);
    return std::vector<OpRef>{op};
  };
  return work;
}

Work event_record_work(CUevent handle) {
  return event_work(CU_GRAPH_NODE_TYPE_EVENT_RECORD, handle, [](Event& event, const OpRef& op) {
    event.op = op;
    event.recorded = true;
    event.capture = nullptr;
  });
}

Work event_wait_work(CUevent handle) {
  return event_work(CU_GRAPH_NODE_TYPE_WAIT_EVENT, handle,
                    [](Event& event, const OpRef& op) { depend(op, event.op); });
}

}  // namespace fakecuda
