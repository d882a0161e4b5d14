#include "shim/swap/memory/range_table.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "shim/gate/errors.h"
#include "shim/log.h"
#include "shim/own_fd.h"
#include "shim/reset.h"
#include "shim/size_text.h"
#include "shim/swap/memory/flat_map.h"
#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/memory/peers.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap {
namespace {

struct State {
  FlatMap<Range> ranges;
  std::uint64_t taken_out = 0;
  // A thread that waits for all of it comes before further movers.
  pthread_rwlock_t lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  Later* later = nullptr;               // of the RangesLock that lives
  std::atomic<std::uint32_t> syncs{0};  // allocations whose SYNC_MEMOPS is on
  std::atomic<std::uint64_t> last_id{kIdTag << 48};
};
constinit State g_state;

// So that other processes can open it (ipc/exported.h), as they can what cuMemAlloc gives. It costs
// nothing until it is exported.
CUmemAllocationHandleType handle_types(int device) {
  const auto ask = driver().cuDeviceGetAttribute;
  const auto which = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
  int capable = 0;
  const bool can = driver().cuMemExportToShareableHandle != nullptr && ask != nullptr &&
                   ask(&capable, which, device) == CUDA_SUCCESS && capable != 0;
  return can ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE;
}

}  // namespace

RangesLock::RangesLock() { ::pthread_rwlock_wrlock(&g_state.lock); }
RangesLock::~RangesLock() {
  Later* later = g_state.later;
  g_state.later = nullptr;
  ::pthread_rwlock_unlock(&g_state.lock);
  while (later != nullptr) {
    Later* const next = later->next;
    later->act(later);
    later = next;
  }
}

ChunksLock::ChunksLock() { ::pthread_rwlock_rdlock(&g_state.lock); }
ChunksLock::~ChunksLock() { ::pthread_rwlock_unlock(&g_state.lock); }

void act_later(Later* later) {
  later->next = g_state.later;
  g_state.later = later;
}

std::uint64_t new_id() { return g_state.last_id.fetch_add(1, std::memory_order_relaxed) + 1; }

void set_sync(SyncMemops& of, SyncMemops to) {
  if (of == SyncMemops::kOn) g_state.syncs.fetch_sub(1, std::memory_order_relaxed);
  if (to == SyncMemops::kOn) g_state.syncs.fetch_add(1, std::memory_order_relaxed);
  of = to;
}

bool any_syncs() { return g_state.syncs.load(std::memory_order_relaxed) != 0; }

std::size_t count() { return g_state.ranges.count(); }
Range& at(std::size_t index) { return g_state.ranges.at(index); }

Range* find(CUdeviceptr address) {
  const std::size_t behind = g_state.ranges.up_to(address);
  if (behind == 0) return nullptr;
  Range& range = g_state.ranges.at(behind - 1);
  return address - range.address < range.bytes ? &range : nullptr;
}

bool add(const Range& range) { return g_state.ranges.add(range); }

std::uint64_t taken_out() { return g_state.taken_out; }

Range take(std::size_t index) {
  ++g_state.taken_out;
  Range range = g_state.ranges.take(index);
  set_sync(range.sync, SyncMemops::kUnset);
  CUdeviceptr address = range.address;
  for (unsigned c = 0; c < range.count; ++c) {
    Chunk& chunk = range.chunks[c];
    if (chunk.preimported != 0) drop_preimported(chunk, address);
    address += chunk.bytes;
  }
  return range;
}

Chunk* chunk_at(CUdeviceptr address) {
  const Range* range = find(address);
  if (range == nullptr) return nullptr;
  CUdeviceptr at = range->address;
  for (unsigned c = 0; c < range->count && at <= address; ++c) {
    if (at == address) return &range->chunks[c];
    at += range->chunks[c].bytes;
  }
  return nullptr;
}

std::uint64_t resident_bytes(const Range& range) {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < range.count; ++i) {
    if (range.chunks[i].handle != 0) bytes += range.chunks[i].bytes;
  }
  return bytes;
}

CUmemAllocationProp plain_memory(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = handle_types(device);
  // Not for RDMA: nvidia-peermem and GDRCopy register memory without a CUDA call, so nothing would
  // tell that a chunk must stay. A registration that fails is better than a NIC that writes into
  // memory which has left.
  properties.allocFlags.gpuDirectRDMACapable = 0;
  return properties;
}

CUresult bring(Chunk& chunk, CUdeviceptr address, const CUmemAllocationProp& properties) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = driver().cuMemCreate(&handle, chunk.bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemMap(address, chunk.bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) {
    driver().cuMemRelease(handle);
    return result;
  }
  chunk.handle = handle;
  return CUDA_SUCCESS;
}

CUresult put_back(Chunk& chunk, CUdeviceptr address, const Access& access) {
  CUmemGenericAllocationHandle handle = 0;
  CUresult result = parking::import(chunk.parked, handle);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemMap(address, chunk.bytes, 0, handle, 0);
  const bool mapped = result == CUDA_SUCCESS;
  if (mapped) result = permit(address, chunk.bytes, access);
  if (result == CUDA_SUCCESS) {
    chunk.handle = handle;
    chunk.descriptor = parking::hand_over(chunk.parked);
    return result;
  }
  if (mapped) driver().cuMemUnmap(address, chunk.bytes);
  driver().cuMemRelease(handle);
  return result;
}

Access access_of(const Range& range) {
  return {range.properties.location, range.use != Use::kMapped};
}

CUresult permit(CUdeviceptr address, std::uint64_t bytes, const Access& access) {
  CUmemAccessDesc given[1 + abi::kMaxGpus];
  std::size_t count = 0;
  given[count++] = {access.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const std::uint32_t peers = access.peers ? peers::lanes() : 0;
  for (int lane = 0; lane < static_cast<int>(abi::kMaxGpus); ++lane) {
    if ((peers >> lane & 1) == 0 || lane == access.location.id) continue;
    given[count++] = {{CU_MEM_LOCATION_TYPE_DEVICE, lane}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  }
  const CUresult result = driver().cuMemSetAccess(address, bytes, given, count);
  if (result == CUDA_SUCCESS || count == 1) return result;
  // Its own GPU is the one that most work needs.
  static Once said;
  log_once(said, Level::kError, "swap: other GPUs get no access to the memory at %llx: driver %d",
           static_cast<unsigned long long>(address), static_cast<int>(result));
  return driver().cuMemSetAccess(address, bytes, given, 1);
}

CUresult send_away(Chunk& chunk, CUdeviceptr address) {
  const CUresult unmapped = driver().cuMemUnmap(address, chunk.bytes);
  const CUresult released = unmapped == CUDA_SUCCESS ? release(chunk) : CUDA_SUCCESS;
  if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS) {
    // Where the driver has shut down because the process ends, nothing is lost.
    const bool ends = no_context(unmapped) || no_context(released);
    const Level level = ends ? Level::kInfo : Level::kError;
    log_line(level, "swap: %s at %llx could not be given back: driver %d, %d",
             size_text(chunk.bytes).text, static_cast<unsigned long long>(address),
             static_cast<int>(unmapped), static_cast<int>(released));
  }
  return unmapped;
}

bool preimport(Chunk& chunk, CUdeviceptr address, CUmemGenericAllocationHandle memory,
               int descriptor) {
  if (driver().cuMemMap(address, chunk.bytes, 0, memory, 0) != CUDA_SUCCESS) return false;
  chunk.preimported = memory;
  chunk.descriptor = descriptor;
  return true;
}

void accept_preimported(Chunk& chunk) {
  chunk.handle = chunk.preimported;
  chunk.preimported = 0;
}

void drop_preimported(Chunk& chunk, CUdeviceptr address) {
  accept_preimported(chunk);
  if (send_away(chunk, address) == CUDA_SUCCESS) return;
  // It never was the chunk's: what comes there fails, and says so.
  chunk.preimported = chunk.handle;
  chunk.handle = 0;
}

CUresult release(Chunk& chunk) {
  const CUresult released = driver().cuMemRelease(chunk.handle);
  chunk.handle = 0;
  if (chunk.descriptor != 0) memory_fd::close(chunk.descriptor);
  chunk.descriptor = 0;
  return released;
}

CUresult export_chunk(const Chunk& chunk, int& fd) {
  if (chunk.descriptor != 0) {
    fd = memory_fd::copy(chunk.descriptor);
    return fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
  }
  const CUresult result = driver().cuMemExportToShareableHandle(
      &fd, chunk.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) return result;
  // The driver has no flag for it. So a program started between the two calls inherits the
  // descriptor if vfork, posix_spawn or a bare clone starts it. No fork handler runs for these
  // (memory_fd.h). It keeps the memory from being freed until that program ends.
  if (::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0) return CUDA_SUCCESS;
  close_file(fd);
  return CUDA_ERROR_OPERATING_SYSTEM;
}

bool anything_away(unsigned lane) {
  for (std::size_t i = 0; i < g_state.ranges.count(); ++i) {
    const Range& range = g_state.ranges.at(i);
    if (range.lane != lane) continue;
    for (unsigned c = 0; c < range.count; ++c) {
      if (range.chunks[c].handle == 0 || range.chunks[c].contents_pending) return true;
    }
  }
  return false;
}

void drop_copies(Chunk& chunk) {
  pinned_pool::give_back(chunk.host);
  parking::give_back(chunk.parked);
}

std::uint64_t kept_bytes(unsigned lane) {
  std::uint64_t bytes = 0;
  each_kept(lane, [&](Chunk& chunk) {
    bytes += chunk.host.bytes;
    return false;
  });
  return bytes;
}

pinned_pool::HostPiece find_piece(unsigned lane, std::uint64_t bytes) {
  const auto give_up = [](Chunk& chunk) {
    pinned_pool::give_back(chunk.host);
    return true;
  };
  pinned_pool::HostPiece piece = pinned_pool::take(lane, bytes);
  while (!piece && each_kept(lane, give_up)) piece = pinned_pool::take(lane, bytes);
  return piece;
}

// Another thread of the parent may have held the lock at the fork, with the table half changed. So
// both start anew, and the parent's table is left where it is.
SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::swap
