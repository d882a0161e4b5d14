// The NVML of the simulated GPU: a view of the state file.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <vector>

#include "shared_state.h"
#include "switchyard/nvml_abi.h"

using namespace fakecuda;

namespace {

std::atomic<int> initialised{0};

State* state() { return initialised > 0 ? State::get(true) : nullptr; }

// A handle is the GPU's index plus one: no memory behind it.
int gpu_of(nvmlDevice_t device) {
  return static_cast<int>(reinterpret_cast<std::intptr_t>(device)) - 1;
}
bool valid(State* from, nvmlDevice_t device) {
  return gpu_of(device) >= 0 && gpu_of(device) < from->file().gpu_count;
}

struct Usage {
  int pid;
  int process;
  std::uint64_t bytes;
};

std::vector<Usage> usage(State* from, int gpu, std::uint64_t* all) {
  Locked locked(*from);
  from->reap_locked();
  std::vector<Usage> list;
  *all = from->used(gpu);
  for (int i = 0; i < kMaxProcesses; ++i) {
    const ProcessEntry& process = from->file().processes[i];
    if (!process.in_use || process.observer || process.contexts[gpu] == 0) continue;
    list.push_back({from->pid_of(i), i, process.used_bytes[gpu]});
  }
  return list;
}

// The clocks of the compute engine at the previous question, so that a ratio can be told.
struct Sample {
  std::uint64_t wall_ns = 0;
  std::uint64_t busy_ns = 0;
  unsigned percent = 0;
};

unsigned percent_since(Sample& sample, std::uint64_t busy_ns) {
  const std::uint64_t now = monotonic_ns();
  if (now - sample.wall_ns > 100'000'000 || busy_ns < sample.busy_ns) {
    const double wall = static_cast<double>(now - sample.wall_ns);
    const double busy =
        busy_ns < sample.busy_ns ? 0.0 : static_cast<double>(busy_ns - sample.busy_ns);
    sample.percent = sample.wall_ns ? static_cast<unsigned>(std::lround(100.0 * busy / wall)) : 0;
    if (sample.percent > 100) sample.percent = 100;
    sample.wall_ns = now;
    sample.busy_ns = busy_ns;
  }
  return sample.percent;
}

std::mutex samples_lock;
Sample gpu_samples[kMaxGpus];
Sample process_samples[kMaxGpus][kMaxProcesses];

std::uint64_t busy_of(State* from, int gpu, int process) {
  std::uint64_t sum = 0;
  const EngineEntry& engine = from->file().gpus[gpu].engines[kCompute];
  for (int g = 0; g < engine.high_water; ++g) {
    const GroupEntry& group = engine.groups[g];
    if (group.in_use && (process < 0 || group.process == process)) sum += group.busy_ns;
  }
  return sum;
}

nvmlReturn_t copy_text(char* out, unsigned length, const char* text) {
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  if (length <= strlen(text)) return NVML_ERROR_INSUFFICIENT_SIZE;
  memcpy(out, text, strlen(text) + 1);
  return NVML_SUCCESS;
}

}  // namespace

#define NVML_CALL extern "C" __attribute__((visibility("default"))) nvmlReturn_t
#define NEED_STATE(name)       \
  State* const name = state(); \
  if (!name) return NVML_ERROR_UNINITIALIZED
#define NEED_DEVICE(name, device) \
  NEED_STATE(name);               \
  if (!valid(name, device)) return NVML_ERROR_INVALID_ARGUMENT

NVML_CALL nvmlInit_v2() {
  if (!State::get(true)) return NVML_ERROR_DRIVER_NOT_LOADED;
  ++initialised;
  return NVML_SUCCESS;
}
NVML_CALL nvmlInit() { return nvmlInit_v2(); }
NVML_CALL nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }

NVML_CALL nvmlShutdown() {
  if (initialised <= 0) return NVML_ERROR_UNINITIALIZED;
  --initialised;
  return NVML_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(nvmlReturn_t code) {
  switch (code) {
    case NVML_SUCCESS:
      return "Success";
    case NVML_ERROR_UNINITIALIZED:
      return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
      return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
      return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
      return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
      return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
      return "Driver Not Loaded";
    default:
      return "Unknown Error";
  }
}

// Where the real driver has /dev/nvidiaN, which monitors lock. All GPUs of one state share it.
// FAKECUDA_DEVICE_FILE: another one, as in a container with a device file of its own.
NVML_CALL nvmlSimulatedDeviceFile(nvmlDevice_t device, char* out, unsigned length) {
  NEED_DEVICE(from, device);
  const char* other = getenv("FAKECUDA_DEVICE_FILE");
  return copy_text(out, length, other ? other : from->path());
}

// FAKECUDA_DRIVER_VERSION=530.30.02: that driver's name. Nothing else changes.
NVML_CALL nvmlSystemGetDriverVersion(char* out, unsigned length) {
  NEED_STATE(from);
  const char* other = getenv("FAKECUDA_DRIVER_VERSION");
  const std::string version = std::string(other ? other : "580.159.04") + "-simulated";
  return copy_text(out, length, version.c_str());
}

NVML_CALL nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  NEED_STATE(from);
  return copy_text(out, length, "13.580.159.04-simulated");
}

NVML_CALL nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (!version) return NVML_ERROR_INVALID_ARGUMENT;
  *version = 13000;
  return NVML_SUCCESS;
}
NVML_CALL nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

NVML_CALL nvmlDeviceGetCount_v2(unsigned* count) {
  NEED_STATE(from);
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = static_cast<unsigned>(from->file().gpu_count);
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) {
  NEED_STATE(from);
  if (!device || index >= static_cast<unsigned>(from->file().gpu_count)) {
    return NVML_ERROR_INVALID_ARGUMENT;
  }
  *device = reinterpret_cast<nvmlDevice_t>(static_cast<std::intptr_t>(index + 1));
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetHandleByUUID(const char* uuid, nvmlDevice_t* device) {
  NEED_STATE(from);
  if (!uuid || !device) return NVML_ERROR_INVALID_ARGUMENT;
  for (int gpu = 0; gpu < from->file().gpu_count; ++gpu) {
    char text[48];
    uuid_text(gpu, text);
    if (!strcmp(text, uuid))
      return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(gpu), device);
  }
  return NVML_ERROR_NOT_FOUND;
}

NVML_CALL nvmlDeviceGetIndex(nvmlDevice_t device, unsigned* index) {
  NEED_DEVICE(from, device);
  if (!index) return NVML_ERROR_INVALID_ARGUMENT;
  *index = static_cast<unsigned>(gpu_of(device));
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetUUID(nvmlDevice_t device, char* out, unsigned length) {
  NEED_DEVICE(from, device);
  char text[48];
  uuid_text(gpu_of(device), text);
  return copy_text(out, length, text);
}

NVML_CALL nvmlDeviceGetName(nvmlDevice_t device, char* out, unsigned length) {
  NEED_DEVICE(from, device);
  return copy_text(out, length, gpu_name());
}

NVML_CALL nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory) {
  NEED_DEVICE(from, device);
  if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
  std::uint64_t used = 0;
  usage(from, gpu_of(device), &used);
  memory->total = from->file().gpus[gpu_of(device)].total_bytes;
  memory->used = used;
  memory->free = memory->total - used;
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t* memory) {
  if (!memory) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlMemory_t plain{};
  if (const nvmlReturn_t status = nvmlDeviceGetMemoryInfo(device, &plain)) return status;
  memory->total = plain.total;
  memory->reserved = 0;
  memory->free = plain.free;
  memory->used = plain.used;
  return NVML_SUCCESS;
}

namespace {

template <class Info>
nvmlReturn_t processes(nvmlDevice_t device, unsigned* count, Info* out) {
  NEED_DEVICE(from, device);
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  std::uint64_t used = 0;
  const std::vector<Usage> list = usage(from, gpu_of(device), &used);
  const unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (room < list.size() || (!out && !list.empty())) return NVML_ERROR_INSUFFICIENT_SIZE;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Info info{};
    info.pid = static_cast<unsigned>(list[i].pid);
    info.usedGpuMemory = list[i].bytes;
    if constexpr (sizeof(Info) == sizeof(nvmlProcessInfo_t)) {
      info.gpuInstanceId = info.computeInstanceId = 0xffffffff;
    }
    out[i] = info;
  }
  return NVML_SUCCESS;
}

}  // namespace

NVML_CALL nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                  nvmlProcessInfo_t* out) {
  return processes(device, count, out);
}
NVML_CALL nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned* count,
                                                  nvmlProcessInfo_t* out) {
  return processes(device, count, out);
}
NVML_CALL nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned* count,
                                               nvmlProcessInfo_v1_t* out) {
  return processes(device, count, out);
}
NVML_CALL nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned* count,
                                                   nvmlProcessInfo_t*) {
  NEED_DEVICE(from, device);
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  *count = 0;
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t* out,
                                          unsigned* count, unsigned long long) {
  NEED_DEVICE(from, device);
  if (!count) return NVML_ERROR_INVALID_ARGUMENT;
  const int gpu = gpu_of(device);
  std::uint64_t used = 0;
  const std::vector<Usage> list = usage(from, gpu, &used);
  const unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (list.empty()) return NVML_ERROR_NOT_FOUND;
  if (!out || room < list.size()) return NVML_ERROR_INSUFFICIENT_SIZE;
  std::lock_guard guard(samples_lock);
  for (std::size_t i = 0; i < list.size(); ++i) {
    Sample& sample = process_samples[gpu][list[i].process];
    out[i] = {};
    out[i].pid = static_cast<unsigned>(list[i].pid);
    out[i].timeStamp = monotonic_ns() / 1000;
    out[i].smUtil = percent_since(sample, busy_of(from, gpu, list[i].process));
  }
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* out) {
  NEED_DEVICE(from, device);
  if (!out) return NVML_ERROR_INVALID_ARGUMENT;
  std::lock_guard guard(samples_lock);
  out->gpu = percent_since(gpu_samples[gpu_of(device)], busy_of(from, gpu_of(device), -1));
  out->memory = 0;
  return NVML_SUCCESS;
}

// Some 30 degrees and 100 W when idle, and 40 degrees and 500 W more at full work.
NVML_CALL nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                   unsigned* degrees) {
  if (!degrees || sensor != NVML_TEMPERATURE_GPU) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlUtilization_t rates{};
  if (const nvmlReturn_t status = nvmlDeviceGetUtilizationRates(device, &rates)) return status;
  *degrees = 30 + 40 * rates.gpu / 100;
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned* milliwatts) {
  if (!milliwatts) return NVML_ERROR_INVALID_ARGUMENT;
  nvmlUtilization_t rates{};
  if (const nvmlReturn_t status = nvmlDeviceGetUtilizationRates(device, &rates)) return status;
  *milliwatts = 100'000 + 5'000 * rates.gpu;
  return NVML_SUCCESS;
}

// FAKECUDA_COMPUTE_MODE=3: one process alone may use the GPUs. It is said, and not kept.
NVML_CALL nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned* mode) {
  NEED_DEVICE(from, device);
  if (!mode) return NVML_ERROR_INVALID_ARGUMENT;
  const char* other = getenv("FAKECUDA_COMPUTE_MODE");
  *mode = other ? static_cast<unsigned>(atoi(other)) : 0;
  return NVML_SUCCESS;
}

// FAKECUDA_MIG=1: the same for MIG.
NVML_CALL nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* now, unsigned* pending) {
  NEED_DEVICE(from, device);
  if (!now || !pending) return NVML_ERROR_INVALID_ARGUMENT;
  const char* other = getenv("FAKECUDA_MIG");
  *now = *pending = other ? static_cast<unsigned>(atoi(other)) : 0;
  return NVML_SUCCESS;
}

NVML_CALL nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t* pci) {
  NEED_DEVICE(from, device);
  if (!pci) return NVML_ERROR_INVALID_ARGUMENT;
  *pci = {};
  pci->bus = static_cast<unsigned>(gpu_of(device)) + 1;
  pci->pciDeviceId = 0x233510de;
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xff);
  snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus & 0xff);
  return NVML_SUCCESS;
}
