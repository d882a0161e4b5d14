#include "shim/rules/graph_memory.h"

#include <stdlib.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/no_copy.h"
#include "shim/reset.h"

namespace switchyard::shim::graph_memory {

std::atomic<bool> g_nodes{false};
std::atomic<std::uint32_t> g_executables{0};

namespace {

constexpr int kDeepest = 16;  // child graphs inside child graphs

std::uint64_t key_of(CUgraphExec executable) {
  return reinterpret_cast<std::uintptr_t>(executable);
}

// The nodes of a graph, child graphs included, in the order in which they were added.
class Walk : NoCopy {
 public:
  ~Walk() { ::free(pieces_); }

  void graph(CUgraph graph, int depth) {
    size_t count = 0;
    if (depth > kDeepest || driver().cuGraphGetNodes == nullptr ||
        driver().cuGraphGetNodes(graph, nullptr, &count) != CUDA_SUCCESS || count == 0) {
      return;
    }
    auto* nodes = static_cast<CUgraphNode*>(::calloc(count, sizeof(CUgraphNode)));
    if (nodes == nullptr) return;
    if (driver().cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS) {
      for (size_t i = 0; i < count; ++i) node(nodes[i], depth);
    }
    ::free(nodes);
  }

  const Need& need() const { return need_; }

 private:
  struct Piece {
    CUdeviceptr address;
    std::uint64_t bytes;
  };

  void node(CUgraphNode node, int depth) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (driver().cuGraphNodeGetType(node, &type) != CUDA_SUCCESS) return;
    if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      allocates(node);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      frees(node);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      if (driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        graph(child, depth + 1);
      }
    }
  }

  void allocates(CUgraphNode node) {
    CUDA_MEM_ALLOC_NODE_PARAMS parameters{};
    if (driver().cuGraphMemAllocNodeGetParams(node, &parameters) != CUDA_SUCCESS) return;
    // Without a place on a GPU it is the host's, or managed, and may come to the current one.
    const bool managed = static_cast<unsigned>(parameters.poolProps.allocType) == 2;
    const bool placed = parameters.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    const abi::Lane* lane = current_lane();
    if (!placed && (!managed || lane == nullptr)) return;
    need_.device = placed ? parameters.poolProps.location.id : lane_index(lane);
    live_ += parameters.bytesize;
    need_.bytes = std::max(need_.bytes, live_);
    keep({parameters.dptr, parameters.bytesize});
  }

  // Without memory for it the piece counts as one that nobody frees.
  void keep(const Piece& piece) {
    if (count_ == room_) {
      const std::size_t more = std::max<std::size_t>(16, 2 * room_);
      auto* pieces = static_cast<Piece*>(::realloc(pieces_, more * sizeof(Piece)));
      if (pieces == nullptr) return;
      pieces_ = pieces;
      room_ = more;
    }
    pieces_[count_++] = piece;
  }

  void frees(CUgraphNode node) {
    CUdeviceptr address = 0;
    if (driver().cuGraphMemFreeNodeGetParams == nullptr ||
        driver().cuGraphMemFreeNodeGetParams(node, &address) != CUDA_SUCCESS) {
      return;
    }
    // The last allocation is mostly freed first.
    for (std::size_t i = count_; i-- != 0;) {
      if (pieces_[i].address != address) continue;
      live_ -= pieces_[i].bytes;
      pieces_[i] = pieces_[--count_];
      return;
    }
  }

  Need need_;
  std::uint64_t live_ = 0;
  Piece* pieces_ = nullptr;  // that live
  std::size_t count_ = 0;
  std::size_t room_ = 0;
};

}  // namespace

Need need_of(CUgraph graph) {
  if (driver().cuGraphNodeGetType == nullptr || driver().cuGraphMemAllocNodeGetParams == nullptr ||
      driver().cuGraphChildGraphNodeGetGraph == nullptr) {
    return {};
  }
  Walk walk;
  walk.graph(graph, 0);
  return walk.need();
}

void instantiated(CUgraphExec executable, const Need& need) {
  if (ledger::note(ledger::NoteKind::kGraphExec, key_of(executable),
                   {.lane = need.device, .bytes = need.bytes})) {
    g_executables.fetch_add(1, std::memory_order_relaxed);
  }
}

void destroyed(CUgraphExec executable) {
  ledger::Charge charge;
  if (g_executables.load(std::memory_order_relaxed) != 0 &&
      ledger::take(ledger::NoteKind::kGraphExec, key_of(executable), charge)) {
    g_executables.fetch_sub(1, std::memory_order_relaxed);
  }
}

CUresult before_run(CUgraphExec executable, Run& run) {
  ledger::Charge charge;
  run.allocates = ledger::look(ledger::NoteKind::kGraphExec, key_of(executable), charge);
  run.device = charge.lane;
  run.first = !charge.ran;
  if (!run.allocates) return CUDA_SUCCESS;
  // Only the first run brings new memory; later ones find it in the pool, unless it was trimmed.
  return charge.ran ? pools::begin_graph_again(charge.lane, charge.bytes, run.growth)
                    : pools::begin_graph(charge.lane, charge.bytes, run.growth);
}

CUresult after_run(CUgraphExec executable, const Run& run, CUresult result) {
  if (!run.allocates) return result;
  if (run.growth.slot < 0) {
    pools::settle_graphs(run.device);
    return result;
  }
  pools::end(run.growth);
  ledger::Charge charge;
  if (run.first && result == CUDA_SUCCESS &&
      ledger::look(ledger::NoteKind::kGraphExec, key_of(executable), charge)) {
    charge.ran = true;
    ledger::note(ledger::NoteKind::kGraphExec, key_of(executable), charge);
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
