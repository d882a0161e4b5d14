#include "tools/base/nvml_report.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "switchyard/nvml_abi.h"
#include "switchyard/printable.h"

namespace switchyard::tools {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

struct Calls {
  int (*init)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, nvmlDevice_t*) = nullptr;
  int (*uuid)(nvmlDevice_t, char*, unsigned) = nullptr;
  int (*name)(nvmlDevice_t, char*, unsigned) = nullptr;
  int (*memory)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  int (*processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*) = nullptr;  // not all have it
  int (*compute_mode)(nvmlDevice_t, unsigned*) = nullptr;                   // the same
  int (*mig_mode)(nvmlDevice_t, unsigned*, unsigned*) = nullptr;            // the same

  bool load(void* library) {
    find(library, "nvmlDeviceGetComputeMode", compute_mode);
    find(library, "nvmlDeviceGetMigMode", mig_mode);
    find(library, "nvmlDeviceGetComputeRunningProcesses_v3", processes) ||
        find(library, "nvmlDeviceGetComputeRunningProcesses_v2", processes);
    return find(library, "nvmlInit_v2", init) &&
           find(library, "nvmlSystemGetDriverVersion", driver_version) &&
           find(library, "nvmlDeviceGetCount_v2", count) &&
           find(library, "nvmlDeviceGetHandleByIndex_v2", by_index) &&
           find(library, "nvmlDeviceGetUUID", uuid) && find(library, "nvmlDeviceGetName", name) &&
           find(library, "nvmlDeviceGetMemoryInfo", memory);
  }
};

constexpr unsigned kMostProcesses = 1024;
constexpr unsigned long long kUnknownBytes = ~0ull;  // where the driver hides it

NvmlGpu describe(const Calls& nvml, unsigned index, nvmlDevice_t device) {
  NvmlGpu gpu;
  gpu.index = index;
  char text[128] = "";
  if (nvml.uuid(device, text, sizeof(text)) == 0) gpu.uuid = printable(text);
  if (nvml.name(device, text, sizeof(text)) == 0) gpu.name = printable(text);
  nvmlMemory_t memory{};
  if (nvml.memory(device, &memory) == 0) {
    gpu.total_bytes = memory.total;
    gpu.used_bytes = memory.used;
  }
  if (nvml.compute_mode != nullptr) nvml.compute_mode(device, &gpu.compute_mode);
  unsigned divided = 0, pending = 0;
  gpu.mig =
      nvml.mig_mode != nullptr && nvml.mig_mode(device, &divided, &pending) == 0 && divided != 0;
  std::vector<nvmlProcessInfo_t> found(kMostProcesses);
  unsigned count = kMostProcesses;
  if (nvml.processes == nullptr || nvml.processes(device, &count, found.data()) != 0) return gpu;
  for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) {
    const unsigned long long bytes = found[i].usedGpuMemory;
    gpu.processes.push_back({found[i].pid, bytes == kUnknownBytes ? 0 : bytes});
  }
  return gpu;
}

}  // namespace

NvmlReport ask_nvml() {
  NvmlReport report;
  ::setenv("SWITCHYARD_DISABLE", "1", 1);  // the machine's own figures, also inside a job
  void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = ::dlerror();
    report.problem = fmt::format("libnvidia-ml.so.1 cannot be loaded ({})", why ? why : "unknown");
    return report;
  }
  Calls nvml;
  if (!nvml.load(library)) {
    report.problem = "libnvidia-ml.so.1 lacks calls that every driver since 2012 has";
    return report;
  }
  unsigned count = 0;
  int result = nvml.init();
  if (result == 0) result = nvml.count(&count);
  if (result != 0) {
    report.problem = fmt::format("NVML says error {}", result);
    return report;
  }
  char version[80] = "";
  if (nvml.driver_version(version, sizeof(version)) == 0) report.driver_version = version;
  for (unsigned i = 0; i < count; ++i) {
    nvmlDevice_t device = nullptr;
    if (nvml.by_index(i, &device) == 0) report.gpus.push_back(describe(nvml, i, device));
  }
  if (report.gpus.empty()) report.problem = "NVML lists none";
  return report;
}

}  // namespace switchyard::tools
