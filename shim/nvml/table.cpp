#include "shim/nvml/table.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/settings.h"
#include "shim/dl.h"
#include "shim/memory/info.h"
#include "shim/nvml/abi.h"

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

bool uuid_of(Device device, std::uint8_t (&uuid)[16]) {
  const auto ask = find<Return (*)(Device, char*, unsigned)>("nvmlDeviceGetUUID");
  char text[kUuidBytes] = {};
  return ask != nullptr && ask(device, text, sizeof(text)) == kSuccess && parse_uuid(text, uuid);
}

abi::Lane* lane_of(Device device) {
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

// While the monitor is away the job goes on with its last limits, which the page has still. What
// cuMemGetInfo shows is the same.
bool has_limits() {
  return observe() || page().head.magic.load(std::memory_order_acquire) == abi::kMagic;
}

void set_reserved(Memory&) {}
// The driver's own reserve is not the job's: total = free + used.
void set_reserved(MemoryV2& info) { info.reserved = 0; }

template <typename Info>
Return memory_info(const char* name, Device device, Info* info) {
  const auto original = find<Return (*)(Device, Info*)>(name);
  if (original == nullptr) return kFunctionNotFound;
  const Return result = original(device, info);
  if (result != kSuccess || info == nullptr || disabled() || !has_limits()) return result;
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

#define NVML_CALL(name, Info)                                                            \
  extern "C" __attribute__((visibility("default"))) switchyard::shim::nvml::Return name( \
      switchyard::shim::nvml::Device device, switchyard::shim::nvml::Info* info) {       \
    return switchyard::shim::nvml::memory_info(#name, device, info);                     \
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
  const auto count_gpus = find<Return (*)(unsigned*)>("nvmlDeviceGetCount_v2");
  const auto at_index = find<Return (*)(unsigned, Device*)>("nvmlDeviceGetHandleByIndex_v2");
  unsigned count = 0;
  if (count_gpus == nullptr || at_index == nullptr || count_gpus(&count) != kSuccess) return 0;
  std::uint32_t listed = 0;
  for (unsigned i = 0; i < count && listed < abi::kMaxGpus; ++i) {
    Device device = nullptr;
    std::uint8_t bytes[16];
    // One that this process may not see is left out.
    if (at_index(i, &device) != kSuccess || !uuid_of(device, bytes)) continue;
    std::memcpy(uuid[listed++], bytes, sizeof(bytes));
  }
  return listed;
}

bool parse_uuid(const char* text, std::uint8_t (&uuid)[16]) {
  if (std::strncmp(text, "GPU-", 4) != 0 && std::strncmp(text, "MIG-", 4) != 0) return false;
  unsigned digits = 0;
  for (text += 4; *text != '\0'; ++text) {
    if (*text == '-') continue;
    const char c = static_cast<char>(*text | 0x20);
    const bool letter = c >= 'a' && c <= 'f';
    if (digits == 32 || (!letter && (*text < '0' || *text > '9'))) return false;
    const unsigned value =
        letter ? static_cast<unsigned>(c - 'a') + 10 : static_cast<unsigned>(*text - '0');
    uuid[digits / 2] =
        static_cast<std::uint8_t>(digits % 2 == 0 ? value << 4 : uuid[digits / 2] | value);
    ++digits;
  }
  return digits == 32;
}

}  // namespace switchyard::shim::nvml
