#include "shim/nvml/table.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/dl.h"
#include "shim/memory/info.h"
#include "switchyard/nvml_abi.h"
#include "switchyard/uuid.h"

namespace switchyard::shim::nvml {
namespace {

constexpr char kSoname[] = "libnvidia-ml.so.1";

// NVML's own handle, or null while the process does not have it; never loads it.
void* library() {
  static std::atomic<void*> cached{nullptr};
  void* handle = cached.load(std::memory_order_acquire);
  if (handle == nullptr) {
    // The reference is kept: our entries may be called until the process ends.
    handle = ::dlopen(kSoname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle != nullptr) cached.store(handle, std::memory_order_release);
  }
  return handle;
}

template <typename Function>
Function find(const char* name) {
  void* handle = library();
  if (handle == nullptr || real_dlsym() == nullptr) return nullptr;
  return reinterpret_cast<Function>(real_dlsym()(handle, name));
}

bool uuid_of(nvmlDevice_t device, std::uint8_t (&uuid)[16]) {
  const auto ask = find<nvmlReturn_t (*)(nvmlDevice_t, char*, unsigned)>("nvmlDeviceGetUUID");
  char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = {};
  return ask != nullptr && ask(device, text, sizeof(text)) == NVML_SUCCESS &&
         parse_uuid(text, uuid);
}

abi::Lane* lane_of(nvmlDevice_t device) {
  std::uint8_t uuid[16];
  if (!uuid_of(device, uuid)) return nullptr;
  for (abi::Lane& lane : page().lanes) {
    if (lane.in_use.load(std::memory_order_acquire) == 1 &&
        std::memcmp(lane.uuid, uuid, sizeof(uuid)) == 0) {
      return &lane;
    }
  }
  return nullptr;
}

// An observer has no service thread that would notice a monitor that went away: ask once more.
void refresh_observed(abi::Lane& lane) {
  if (memory::refresh(lane) || !observing()) return;
  lose_monitor("it did not answer an observer");
  if (observe()) memory::refresh(lane);
}

// While the monitor is away the job goes on with its last limits, which the page has still.
// cuMemGetInfo shows the same limits.
bool has_limits() {
  return observe() || page().head.magic.load(std::memory_order_acquire) == abi::kMagic;
}

void set_reserved(nvmlMemory_t&) {}
// The driver's own reserve is not the job's: total = free + used.
void set_reserved(nvmlMemory_v2_t& info) { info.reserved = 0; }

template <typename Info>
nvmlReturn_t memory_info(const char* name, nvmlDevice_t device, Info* info) {
  const auto original = find<nvmlReturn_t (*)(nvmlDevice_t, Info*)>(name);
  if (original == nullptr) return NVML_ERROR_FUNCTION_NOT_FOUND;
  const nvmlReturn_t result = original(device, info);
  if (result != NVML_SUCCESS || info == nullptr || disabled() || !has_limits()) return result;
  abi::Lane* lane = lane_of(device);
  if (lane == nullptr) return result;
  refresh_observed(*lane);
  if (lane->quota_bytes.load(std::memory_order_relaxed) == 0) return result;
  const memory::Shown shown = memory::shown(*lane, {info->free, info->total});
  info->total = shown.total;
  info->free = shown.free;
  info->used = shown.total - shown.free;
  set_reserved(*info);
  return result;
}

}  // namespace
}  // namespace switchyard::shim::nvml

#define NVML_CALL(name, Info)                                                              \
  extern "C" __attribute__((visibility("default"))) nvmlReturn_t name(nvmlDevice_t device, \
                                                                      Info* info) {        \
    return switchyard::shim::nvml::memory_info(#name, device, info);                       \
  }
#include "shim/nvml/nvml.def"
#undef NVML_CALL

namespace switchyard::shim::nvml {
namespace {

struct Line {
  const char* name;
  void* entry;
};

const Line kLines[] = {
#define NVML_CALL(name, Info) {#name, reinterpret_cast<void*>(&::name)},
#include "shim/nvml/nvml.def"
#undef NVML_CALL
};

}  // namespace

Pick pick(void* handle, const char* name) {
  for (const Line& line : kLines) {
    if (std::strcmp(line.name, name) != 0) continue;
    if (library() != nullptr) {
      const bool there = find<void*>(name) != nullptr;
      return {there ? line.entry : nullptr, there};
    }
    // No NVML in this process: our own export must not look like one, so look behind us.
    if (handle == RTLD_DEFAULT || handle == RTLD_NEXT) {
      return {real_dlsym()(RTLD_NEXT, name), true};
    }
    break;
  }
  return {nullptr, false};
}

std::uint32_t list_gpus(std::uint8_t (*uuid)[16]) {
  const auto count_gpus = find<nvmlReturn_t (*)(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto at_index =
      find<nvmlReturn_t (*)(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2");
  unsigned count = 0;
  if (count_gpus == nullptr || at_index == nullptr || count_gpus(&count) != NVML_SUCCESS) return 0;
  std::uint32_t listed = 0;
  for (unsigned i = 0; i < count && listed < abi::kMaxGpus; ++i) {
    nvmlDevice_t device = nullptr;
    std::uint8_t bytes[16];
    // One that this process may not see is left out.
    if (at_index(i, &device) != NVML_SUCCESS || !uuid_of(device, bytes)) continue;
    std::memcpy(uuid[listed++], bytes, sizeof(bytes));
  }
  return listed;
}

}  // namespace switchyard::shim::nvml
