#include "shim/swap/memory/parking.h"

#include <stdlib.h>

#include <atomic>

#include "shim/log.h"
#include "shim/reset.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap::parking {
namespace {

struct State {
  std::atomic<std::uint64_t> bytes[abi::kMaxGpus] = {};
  std::atomic<unsigned> on[abi::kMaxGpus] = {};
  Slab* empty[abi::kMaxGpus] = {};  // for sweep()
};
constinit State g_state;

CUmemLocation gpu(unsigned lane) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = static_cast<int>(lane);
  return location;
}

}  // namespace

struct Slab {
  CUdeviceptr at = 0;
  std::uint64_t bytes = 0;
  CUmemGenericAllocationHandle handle = 0;
  bool mapped = false;
  unsigned lane = 0;    // whose memory is in it
  unsigned pieces = 0;  // that are taken
  Slab* next = nullptr;
};

namespace {

CUresult make(Slab& slab) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = gpu(g_state.on[slab.lane].load());
  const CUmemAccessDesc access{gpu(slab.lane), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult result = driver().cuMemAddressReserve(&slab.at, slab.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) slab.at = 0;
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemCreate(&slab.handle, slab.bytes, &properties, 0);
    if (result != CUDA_SUCCESS) slab.handle = 0;
  }
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemMap(slab.at, slab.bytes, 0, slab.handle, 0);
    slab.mapped = result == CUDA_SUCCESS;
  }
  if (result != CUDA_SUCCESS) return result;
  return driver().cuMemSetAccess(slab.at, slab.bytes, &access, 1);
}

// What is made of it so far is given back. The driver's first complaint.
CUresult undo(const Slab& slab) {
  CUresult result = slab.mapped ? driver().cuMemUnmap(slab.at, slab.bytes) : CUDA_SUCCESS;
  const auto note = [&](CUresult next) { result = result == CUDA_SUCCESS ? next : result; };
  if (slab.handle != 0) note(driver().cuMemRelease(slab.handle));
  if (slab.at != 0) note(driver().cuMemAddressFree(slab.at, slab.bytes));
  return result;
}

// The slab that has no piece any more, if this was the last.
Slab* emptied(Piece& piece) {
  Slab* const slab = piece.slab;
  piece = {};
  return slab != nullptr && --slab->pieces == 0 ? slab : nullptr;
}

void end(Slab* slab) {
  const CUresult result = undo(*slab);
  if (result != CUDA_SUCCESS) {
    log_line(Level::kError, "swap: %llu bytes on GPU %u could not be given back: driver %d",
             static_cast<unsigned long long>(slab->bytes), g_state.on[slab->lane].load(),
             static_cast<int>(result));
  }
  uncount(slab->lane, slab->bytes);
  ::free(slab);
}

}  // namespace

Parked parked(unsigned lane) { return {g_state.on[lane].load(), g_state.bytes[lane].load()}; }

void count(unsigned lane, unsigned on, std::uint64_t bytes) {
  g_state.on[lane].store(on);
  g_state.bytes[lane].fetch_add(bytes);
}

void uncount(unsigned lane, std::uint64_t bytes) { g_state.bytes[lane].fetch_sub(bytes); }

CUresult take(unsigned lane, Piece* pieces, unsigned count) {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < count; ++i) bytes += pieces[i].bytes;
  auto* slab = static_cast<Slab*>(::calloc(1, sizeof(Slab)));
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (slab != nullptr) {
    *slab = {.bytes = bytes, .lane = lane, .pieces = count};
    result = make(*slab);
    if (result != CUDA_SUCCESS) undo(*slab);
  }
  if (result != CUDA_SUCCESS) {
    ::free(slab);
    uncount(lane, bytes);
    for (unsigned i = 0; i < count; ++i) pieces[i] = {};
    return result;
  }
  CUdeviceptr at = slab->at;
  for (unsigned i = 0; i < count; ++i) {
    pieces[i].at = at;
    pieces[i].slab = slab;
    at += pieces[i].bytes;
  }
  return CUDA_SUCCESS;
}

void give_back(Piece& piece) {
  Slab* const slab = emptied(piece);
  if (slab != nullptr) end(slab);
}

void give_back_later(Piece& piece) {
  Slab* const slab = emptied(piece);
  if (slab == nullptr) return;
  slab->next = g_state.empty[slab->lane];
  g_state.empty[slab->lane] = slab;
}

bool sweep(unsigned lane) {
  Slab* slab = g_state.empty[lane];
  const bool any = slab != nullptr;
  g_state.empty[lane] = nullptr;
  while (slab != nullptr) {
    Slab* const next = slab->next;
    end(slab);
    slab = next;
  }
  return any;
}

void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::parking
