#include "shim/swap/memory/peers.h"

#include <atomic>

#include "shim/log.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"
#include "shim/swap/memory/range_table.h"

namespace switchyard::shim::swap::peers {
namespace {

struct State {
  std::atomic<std::uint32_t> lanes{0};
};
constinit State g_state;

bool reaches(unsigned from, unsigned to) {
  int can = 0;
  const auto ask = driver().cuDeviceCanAccessPeer;
  return ask != nullptr &&
         ask(&can, static_cast<CUdevice>(from), static_cast<CUdevice>(to)) == CUDA_SUCCESS &&
         can != 0;
}

void give(unsigned lane, CUdeviceptr address, std::uint64_t bytes) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, static_cast<int>(lane)},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const CUresult given = driver().cuMemSetAccess(address, bytes, &access, 1);
  if (given == CUDA_SUCCESS) return;
  static Once said;
  log_once(said, Level::kError, "GPU %u gets no access to the memory at %llx: driver %d", lane,
           static_cast<unsigned long long>(address), static_cast<int>(given));
}

// Gives access to all of a range that is mapped. Memory that is away gets its access when it comes.
void give(unsigned lane, const Range& range) {
  CUdeviceptr at = range.address;
  for (unsigned i = 0; i < range.count; ++i) {
    const Chunk& chunk = range.chunks[i];
    if (chunk.handle != 0 || chunk.preimported != 0) give(lane, at, chunk.bytes);
    at += chunk.bytes;
  }
}

}  // namespace

bool all_reach(unsigned gpus) {
  for (unsigned from = 0; from < gpus; ++from) {
    for (unsigned to = 0; to < gpus; ++to) {
      if (from == to || reaches(from, to)) continue;
      log_line(Level::kWarn,
               "GPU %u cannot access the memory of GPU %u: no memory of a process that sees both "
               "is swappable",
               from, to);
      return false;
    }
  }
  return true;
}

void context_made(unsigned lane) {
  const std::uint32_t bit = 1u << lane;
  const memory::Relaxed relaxed;
  // The second of two waits here until the first has given all.
  const RangesLock held;
  // The bit first, and then the table: a range that is added later has the access already.
  if ((g_state.lanes.fetch_or(bit, std::memory_order_seq_cst) & bit) != 0) return;
  for (std::size_t i = 0; i < count(); ++i) {
    if (at(i).lane != lane && access_of(at(i)).peers) give(lane, at(i));
  }
}

std::uint32_t lanes() { return g_state.lanes.load(std::memory_order_acquire); }

void clear() { renew(g_state); }
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::peers
