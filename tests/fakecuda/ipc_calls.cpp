// IPC handles of plain device memory: who made it, and where in which file it is.
//
// The opener maps the maker's memfd through /proc; the memory stays charged to the maker. As
// measured: what is open already is not mapped again but counted.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "apart.h"
#include "memory.h"

using namespace fakecuda;

namespace {

constexpr std::uint64_t kIpcMagic = 0x66616b65'69706331;

struct IpcHandle {
  std::uint64_t magic;
  std::int32_t pid;
  std::int32_t fd;
  std::uint64_t offset;  // of the block in the file
  std::uint64_t bytes;   // of the block
  std::uint64_t within;  // of the allocation in the block
  std::uint64_t asked;   // bytes of the allocation
  std::int32_t gpu;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

struct Opened {
  CUipcMemHandle handle;
  Context* context;
  unsigned opens;
};

std::mutex g_lock;
std::map<CUdeviceptr, Opened>& opened() {
  static auto* only = new std::map<CUdeviceptr, Opened>;
  return *only;
}

bool is_mapped(CUdeviceptr address) {
  Range range;
  return Ranges::all().find(address, &range) && range.kind == RangeKind::kIpc &&
         range.start == address;
}

// One more opening of what is open already; 0: it isn't. pre: g_lock is held.
CUdeviceptr open_again(const CUipcMemHandle& handle, Context* context) {
  for (auto& [address, known] : opened()) {
    // It may have ended with its context.
    const bool same = memcmp(known.handle.reserved, handle.reserved, sizeof handle.reserved) == 0;
    if (!same || known.context != context || !is_mapped(address)) continue;
    ++known.opens;
    return address;
  }
  return 0;
}

}  // namespace

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr address) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  if (!out || !Ranges::all().find(address, &range)) return CUDA_ERROR_INVALID_VALUE;
  IpcHandle handle;
  memset(&handle, 0, sizeof handle);  // its padding, too: handles are compared
  handle.magic = kIpcMagic;
  handle.pid = getpid();
  handle.gpu = driver()->state->gpu_of(range.gpu);
  handle.asked = range.bytes;
  if (range.kind == RangeKind::kSmall) {
    const BackingRef block = block_of(range.start, &handle.within);
    if (!block) return CUDA_ERROR_INVALID_VALUE;
    range.backing = block;
  } else if (range.kind != RangeKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  handle.fd = range.backing->fd;
  handle.offset = range.backing->offset;
  handle.bytes = range.backing->bytes;
  memset(out, 0, sizeof *out);
  memcpy(out, &handle, sizeof handle);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle given, unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  IpcHandle handle;
  memcpy(&handle, &given, sizeof handle);
  if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.magic != kIpcMagic) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (handle.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // as the driver: not one's own
  std::lock_guard guard(g_lock);
  if (const CUdeviceptr known = open_again(given, context)) {
    *out = known;
    return CUDA_SUCCESS;
  }
  const int device = driver()->state->device_of(handle.gpu);
  if (device < 0) return CUDA_ERROR_INVALID_DEVICE;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  auto backing = std::make_shared<Backing>();
  backing->fd = apart(open(path, O_RDWR | O_CLOEXEC));
  if (backing->fd < 0) return CUDA_ERROR_MAP_FAILED;
  backing->owns_fd = true;
  backing->gpu = device;
  backing->offset = handle.offset;
  backing->bytes = handle.bytes;
  void* at = map_backing(backing, nullptr, 0, handle.bytes, PROT_READ | PROT_WRITE);
  if (!at) return CUDA_ERROR_MAP_FAILED;
  Range range;
  range.start = reinterpret_cast<CUdeviceptr>(at) + handle.within;
  range.bytes = handle.asked;
  range.kind = RangeKind::kIpc;
  range.context = context;
  range.gpu = device;
  range.backing = backing;
  range.within = handle.within;
  Ranges::all().add(range);
  opened()[range.start] = {given, context, 1};
  *out = range.start;
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_NEED_CONTEXT(context);
  Range range;
  if (!Ranges::all().find(address, &range) || range.kind != RangeKind::kIpc ||
      range.start != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  {
    std::lock_guard guard(g_lock);
    const auto known = opened().find(address);
    if (known != opened().end() && --known->second.opens != 0) return CUDA_SUCCESS;
    if (known != opened().end()) opened().erase(known);
  }
  wait_context(range.context);
  if (Ranges::all().remove(address, &range)) release(range);
  return CUDA_SUCCESS;
}

}  // extern "C"
