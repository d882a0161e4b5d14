#include "shim/ipc/opened.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "shim/client/client.h"
#include "shim/gate/gate.h"
#include "shim/ipc/exported.h"
#include "shim/ipc/handle.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/owner.h"
#include "shim/memory/relaxed.h"
#include "shim/memory/stays.h"
#include "shim/reset.h"
#include "shim/swap/calls/allocate.h"
#include "shim/swap/memory/flat_map.h"
#include "shim/swap/memory/memory_fd.h"

namespace switchyard::shim::ipc {
namespace {

struct Mapped {
  CUdeviceptr address = 0;
  Handle handle = {};
  std::uint32_t opens = 0;  // not closed yet; 0: it is about to be unmapped
  std::uint32_t turn = 0;   // of the last close that found none left
  int lane = -1;
  std::uint64_t owner = 0;
  CUcontext context = nullptr;
  std::uint64_t id = 0;  // range_table.h
  swap::SyncMemops sync = swap::SyncMemops::kUnset;

  std::uint64_t key() const { return address; }
};

struct State {
  // Two, in this order. `opening` is held while a handle is opened, and so while the monitor is
  // asked. `lock` guards the list of open ones, for a moment. Each question about an address takes
  // that.
  pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  swap::FlatMap<Mapped> mapped;
  std::atomic<std::uint32_t> count{0};  // of `mapped`: who has opened nothing takes no lock
};
constinit State g_state;

// The one around `address`; null: none. pre: `lock` is held.
Mapped* find(CUdeviceptr address) {
  const std::size_t behind = g_state.mapped.up_to(address);
  if (behind == 0) return nullptr;
  Mapped& mapped = g_state.mapped.at(behind - 1);
  return address - mapped.address < mapped.handle.bytes ? &mapped : nullptr;
}

Mapped* find(const wire::Key& key) {
  for (std::size_t i = 0; i < g_state.mapped.count(); ++i) {
    if (g_state.mapped.at(i).handle.key == key) return &g_state.mapped.at(i);
  }
  return nullptr;
}

CUresult import(int fd, CUdeviceptr at, std::uint64_t bytes) {
  CUmemGenericAllocationHandle chunk = 0;
  CUresult result = swap::memory_fd::import(fd, chunk);
  if (result != CUDA_SUCCESS) return result;
  result = driver().cuMemMap(at, bytes, 0, chunk, 0);
  driver().cuMemRelease(chunk);  // the mapping keeps it
  return result;
}

CUresult refusal(bool answered, const Handle& handle) {
  static Once said;
  if (!answered) {
    log_once(said, Level::kWarn,
             "IPC: a handle is of swappable memory, and no monitor is there to get that from: it "
             "can't be opened");
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  log_once(said, Level::kWarn,
           "IPC: the monitor has no memory for the handle %llx: its process has gone or freed it, "
           "or is another user's, or has another monitor",
           static_cast<unsigned long long>(handle.key.words[0]));
  return CUDA_ERROR_INVALID_VALUE;  // as the driver says of a handle that it does not know
}

// Maps all chunks; `end` is where the last one that is mapped ends.
CUresult import_all(const Handle& handle, CUdeviceptr address, CUdeviceptr& end) {
  const std::uint32_t total = handle.count();
  end = address;
  for (std::uint32_t first = 0; first < total;) {
    const swap::memory_fd::NoFork no_fork;
    Descriptors batch;
    wire::Shared answer{};
    const bool answered = share(wire::kOpenShared, {handle.key, first, 0}, batch, answer);
    const std::uint32_t count = batch.count;
    const bool right = answered && answer.verdict == wire::kTaken && answer.total == total &&
                       answer.count == count && count != 0 && count <= total - first;
    CUresult result = right ? CUDA_SUCCESS : refusal(answered, handle);
    for (std::uint32_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
      const std::uint64_t bytes =
          std::min<std::uint64_t>(handle.chunk, address + handle.bytes - end);
      result = import(batch.fd[i], end, bytes);
      if (result == CUDA_SUCCESS) end += bytes;
    }
    batch.close();
    if (result != CUDA_SUCCESS) return result;
    first += count;
  }
  return CUDA_SUCCESS;
}

CUresult give_access(const Handle& handle, CUdeviceptr address) {
  CUdevice device = 0;
  const CUresult result = driver().cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return driver().cuMemSetAccess(address, handle.bytes, &access, 1);
}

// pre: no work can touch it.
void unmap(const Mapped& mapped, CUdeviceptr end) {
  if (end != mapped.address) driver().cuMemUnmap(mapped.address, end - mapped.address);
  driver().cuMemAddressFree(mapped.address, mapped.handle.bytes);
}

// pre: `lock` is held.
void end(const Mapped* mapped) {
  Mapped gone = g_state.mapped.take(static_cast<std::size_t>(mapped - &g_state.mapped.at(0)));
  swap::set_sync(gone.sync, swap::SyncMemops::kUnset);
  g_state.count.fetch_sub(1, std::memory_order_relaxed);
  memory::stays(gone.lane, Stays::kIpcImported, -static_cast<std::int64_t>(gone.handle.bytes));
  unmap(gone, gone.address + gone.handle.bytes);
}

// False: no memory for it.
bool note(const Mapped& mapped) {
  const Locked locked(g_state.lock);
  if (!g_state.mapped.add(mapped)) return false;
  g_state.count.fetch_add(1, std::memory_order_relaxed);
  memory::stays(mapped.lane, Stays::kIpcImported, static_cast<std::int64_t>(mapped.handle.bytes));
  return true;
}

// pre: `opening` is held, and nothing else.
CUresult map(Mapped& mapped) {
  const Handle& handle = mapped.handle;
  CUdeviceptr end = 0;
  CUresult result = driver().cuMemAddressReserve(&mapped.address, handle.bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  result = import_all(handle, mapped.address, end);
  if (result == CUDA_SUCCESS) result = give_access(handle, mapped.address);
  if (result == CUDA_SUCCESS && !note(mapped)) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) unmap(mapped, end);
  return result;
}

// Once more, where it is open already. False: it is not.
bool open_again(CUdeviceptr& address, const Handle& handle, CUresult& result) {
  const Locked locked(g_state.lock);
  Mapped* known = find(handle.key);
  if (known == nullptr) return false;
  result = give_access(known->handle, known->address);  // perhaps of another device
  if (result == CUDA_SUCCESS) ++known->opens;
  address = known->address;
  return true;
}

CUresult open_ours(CUdeviceptr& address, const Handle& handle) {
  if (driver().cuMemImportFromShareableHandle == nullptr ||
      driver().cuMemAddressReserve == nullptr) {
    return kNoSuchCall;
  }
  Mapped fresh;
  CUresult result = driver().cuCtxGetCurrent(&fresh.context);
  if (result != CUDA_SUCCESS) return result;
  if (fresh.context == nullptr || is_own(handle.key)) return CUDA_ERROR_INVALID_CONTEXT;
  const memory::Relaxed relaxed;
  const abi::Lane* lane = current_lane();
  fresh.handle = handle;
  fresh.lane = lane != nullptr ? lane_index(lane) : -1;
  fresh.owner = memory::current_owner();
  fresh.opens = 1;
  fresh.id = swap::new_id();
  const Locked one_at_a_time(g_state.opening);
  if (open_again(address, handle, result)) return result;
  result = map(fresh);
  if (result == CUDA_SUCCESS) address = fresh.address;
  return result;
}

}  // namespace

bool open(CUdeviceptr* address, const CUipcMemHandle& given, unsigned flags, CUresult& result) {
  Handle handle{};
  const Read found = read(given, handle);
  if (found == Read::kDrivers) return false;
  const bool sound = address != nullptr && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;
  result = sound && found == Read::kOurs ? open_ours(*address, handle) : CUDA_ERROR_INVALID_VALUE;
  return true;
}

bool close(CUdeviceptr address, CUresult& result) {
  if (g_state.count.load(std::memory_order_relaxed) == 0) return false;
  CUcontext context = nullptr;
  std::uint32_t turn = 0;
  {
    const Locked locked(g_state.lock);
    Mapped* mapped = find(address);
    if (mapped == nullptr) return false;
    result =
        mapped->address == address && mapped->opens != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS || --mapped->opens != 0) return true;
    turn = ++mapped->turn;
    context = mapped->context;
  }
  {
    const gate::Waiting waiting(gate::Waiting::kContext);
    result = swap::wait_unless_captured(context);
  }
  const Locked locked(g_state.lock);
  Mapped* mapped = find(address);
  // Opened again meanwhile, or gone with its context: there is nothing left to do.
  const bool over =
      mapped == nullptr || mapped->address != address || mapped->turn != turn || mapped->opens != 0;
  if (over) {
    result = CUDA_SUCCESS;
  } else if (result == CUDA_SUCCESS) {
    end(mapped);
  } else {
    mapped->opens = 1;
  }
  return true;
}

bool opened(CUdeviceptr address, Bounds& bounds) {
  if (g_state.count.load(std::memory_order_relaxed) == 0) return false;
  const Locked locked(g_state.lock);
  const Mapped* mapped = find(address);
  if (mapped == nullptr) return false;
  bounds = {mapped->address, mapped->handle.asked, mapped->handle.bytes,
            mapped->context, mapped->id,           mapped->sync};
  return true;
}

bool set_sync_memops(CUdeviceptr address, bool on) {
  if (g_state.count.load(std::memory_order_relaxed) == 0) return false;
  const Locked locked(g_state.lock);
  Mapped* mapped = find(address);
  if (mapped == nullptr) return false;
  swap::set_sync(mapped->sync, on ? swap::SyncMemops::kOn : swap::SyncMemops::kOff);
  return true;
}

void close_owned(int lane, std::uint64_t owner) {
  if (g_state.count.load(std::memory_order_relaxed) == 0) return;
  const Locked locked(g_state.lock);
  for (std::size_t i = g_state.mapped.count(); i-- > 0;) {
    const Mapped& mapped = g_state.mapped.at(i);
    if (mapped.lane == lane && mapped.owner == owner) end(&mapped);
  }
}

// The parent's mappings are not ours.
SWITCHYARD_RENEW(kState, g_state);

}  // namespace switchyard::shim::ipc
