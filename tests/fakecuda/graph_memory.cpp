// Memory of a graph's allocation nodes.
#include <sys/mman.h>

#include <algorithm>

#include "graph.h"

namespace fakecuda {
namespace {

struct Piece {
  int gpu = 0;
  std::size_t bytes = 0;
  BackingRef backing;  // null: address space only
  unsigned uses = 0;   // by launches that are queued, or have not freed it
};

struct Totals {
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

struct Store {
  std::mutex lock;
  std::map<CUdeviceptr, Piece> pieces;
  Totals totals[kMaxGpus];
};

Store& store() {
  static Store* only = new Store;
  return *only;
}

void count(Totals& totals, std::int64_t used, std::int64_t reserved) {
  totals.used += static_cast<std::uint64_t>(used);
  totals.reserved += static_cast<std::uint64_t>(reserved);
  totals.used_high = std::max(totals.used_high, totals.used);
  totals.reserved_high = std::max(totals.reserved_high, totals.reserved);
}

}  // namespace

CUresult alloc_work(CUDA_MEM_ALLOC_NODE_PARAMS* params, Work* work) {
  if (params->bytesize == 0 || params->bytesize > std::size_t{1} << 46) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Piece piece;
  piece.gpu = params->poolProps.location.id;
  if (piece.gpu < 0 || piece.gpu >= gpu_count()) return CUDA_ERROR_INVALID_VALUE;
  piece.bytes = round_up(params->bytesize, kGranularity);
  void* at = reserve_addresses(piece.bytes, kGranularity);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  params->dptr = reinterpret_cast<CUdeviceptr>(at);
  work->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  work->alloc = *params;
  work->make = [](Stream*) { return std::vector<OpRef>{}; };
  Range range;
  range.start = params->dptr;
  range.bytes = params->bytesize;
  range.kind = RangeKind::kGraph;
  range.gpu = piece.gpu;
  range.context = current();
  range.access = access_for_all(PROT_NONE);
  Ranges::all().add(range);
  std::lock_guard guard(store().lock);
  store().pieces[params->dptr] = std::move(piece);
  return CUDA_SUCCESS;
}

Work free_work(CUdeviceptr address) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  work.freed = address;
  work.make = [address](Stream*) {
    auto op = std::make_shared<Op>();
    op->effect = [address] { free_graph_memory(address); };
    return std::vector<OpRef>{op};
  };
  return work;
}

bool is_graph_memory(CUdeviceptr address) {
  std::lock_guard guard(store().lock);
  return store().pieces.count(address) != 0;
}

CUresult back_graph_memory(CUdeviceptr address, bool frees) {
  std::lock_guard guard(store().lock);
  const auto found = store().pieces.find(address);
  if (found == store().pieces.end()) return CUDA_ERROR_INVALID_VALUE;
  Piece& piece = found->second;
  Totals& totals = store().totals[piece.gpu];
  if (!piece.backing) {
    piece.backing = make_backing(piece.gpu, piece.bytes, false);
    if (!piece.backing) return CUDA_ERROR_OUT_OF_MEMORY;
    map_backing(piece.backing, reinterpret_cast<void*>(address), 0, piece.bytes,
                PROT_READ | PROT_WRITE);
    Ranges::all().set_access(address, 1, access_for_all(PROT_READ | PROT_WRITE));
    count(totals, 0, static_cast<std::int64_t>(piece.bytes));
  }
  if (piece.uses == 0) count(totals, static_cast<std::int64_t>(piece.bytes), 0);
  piece.uses = frees ? piece.uses + 1 : 1;
  return CUDA_SUCCESS;
}

void free_graph_memory(CUdeviceptr address) {
  std::lock_guard guard(store().lock);
  const auto found = store().pieces.find(address);
  if (found == store().pieces.end() || found->second.uses == 0) return;
  if (--found->second.uses != 0) return;  // a launch that is queued behind has it
  count(store().totals[found->second.gpu], -static_cast<std::int64_t>(found->second.bytes), 0);
}

}  // namespace fakecuda

using namespace fakecuda;

extern "C" {

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  FAKE_NEED_DRIVER();
  if (device < 0 || device >= gpu_count()) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(store().lock);
  for (auto& [address, piece] : store().pieces) {
    if (piece.gpu != device || piece.uses != 0 || !piece.backing) continue;
    Ranges::all().set_access(address, 1, access_for_all(PROT_NONE));
    make_untouchable(reinterpret_cast<void*>(address), piece.bytes);
    piece.backing = nullptr;
    count(store().totals[device], 0, -static_cast<std::int64_t>(piece.bytes));
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void* out) {
  FAKE_NEED_DRIVER();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= gpu_count()) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(store().lock);
  const Totals& totals = store().totals[device];
  auto* value = static_cast<cuuint64_t*>(out);
  switch (which) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
      return *value = totals.used, CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      return *value = totals.used_high, CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      return *value = totals.reserved, CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      return *value = totals.reserved_high, CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void* in) {
  FAKE_NEED_DRIVER();
  if (!in || *static_cast<cuuint64_t*>(in) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= gpu_count()) return CUDA_ERROR_INVALID_DEVICE;
  std::lock_guard guard(store().lock);
  Totals& totals = store().totals[device];
  if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
    totals.used_high = totals.used;
  } else if (which == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
    totals.reserved_high = totals.reserved;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
