#include "shim/swap/memory/parking.h"

#include <atomic>

#include "shim/log.h"
#include "shim/reset.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap::parking {
namespace {

struct State {
  std::atomic<std::uint64_t> bytes[abi::kMaxGpus] = {};
  std::atomic<unsigned> on[abi::kMaxGpus] = {};
};
constinit State g_state;

CUmemLocation gpu(unsigned lane) { return {CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(lane)}}; }

// What is made of it so far is given back. The driver's first complaint.
CUresult undo(const Piece& piece, bool mapped) {
  CUresult result = mapped ? driver().cuMemUnmap(piece.at, piece.bytes) : CUDA_SUCCESS;
  if (piece.handle != 0) {
    const CUresult released = driver().cuMemRelease(piece.handle);
    if (result == CUDA_SUCCESS) result = released;
  }
  const CUresult freed = driver().cuMemAddressFree(piece.at, piece.bytes);
  return result == CUDA_SUCCESS ? freed : result;
}

}  // namespace

Parked parked(unsigned lane) { return {g_state.on[lane].load(), g_state.bytes[lane].load()}; }

void count(unsigned lane, unsigned on, std::uint64_t bytes) {
  g_state.on[lane].store(on);
  g_state.bytes[lane].fetch_add(bytes);
}

void uncount(unsigned lane, std::uint64_t bytes) { g_state.bytes[lane].fetch_sub(bytes); }

CUresult take(unsigned lane, std::uint64_t bytes, Piece& piece) {
  Piece fresh{.bytes = bytes, .lane = lane};
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = gpu(g_state.on[lane].load());
  const CUmemAccessDesc access{gpu(lane), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult result = driver().cuMemAddressReserve(&fresh.at, bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) {
    uncount(lane, bytes);
    return result;
  }
  bool mapped = false;
  result = driver().cuMemCreate(&fresh.handle, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) fresh.handle = 0;
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemMap(fresh.at, bytes, 0, fresh.handle, 0);
    mapped = result == CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) result = driver().cuMemSetAccess(fresh.at, bytes, &access, 1);
  if (result == CUDA_SUCCESS) {
    piece = fresh;
    return result;
  }
  undo(fresh, mapped);
  uncount(lane, bytes);
  return result;
}

void give_back(Piece& piece) {
  if (!piece) return;
  const CUresult result = undo(piece, true);
  if (result != CUDA_SUCCESS) {
    log_line(Level::kError, "swap: %llu bytes on GPU %u could not be given back: driver %d",
             static_cast<unsigned long long>(piece.bytes), g_state.on[piece.lane].load(),
             static_cast<int>(result));
  }
  uncount(piece.lane, piece.bytes);
  piece = {};
}

void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::parking
