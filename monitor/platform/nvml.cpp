#include "monitor/platform/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>

#include "switchyard/nvml_abi.h"
#include "switchyard/uuid.h"

namespace switchyard::monitor {
namespace {

// The calls, by the name that the library exports. A null one is missing in this driver.
struct Calls {
  nvmlReturn_t (*init)() = nullptr;
  nvmlReturn_t (*shutdown)() = nullptr;
  const char* (*error_string)(nvmlReturn_t) = nullptr;
  nvmlReturn_t (*driver_version)(char*, unsigned) = nullptr;
  nvmlReturn_t (*device_count)(unsigned*) = nullptr;
  nvmlReturn_t (*device_by_index)(unsigned, nvmlDevice_t*) = nullptr;
  nvmlReturn_t (*device_uuid)(nvmlDevice_t, char*, unsigned) = nullptr;
  nvmlReturn_t (*device_name)(nvmlDevice_t, char*, unsigned) = nullptr;
  nvmlReturn_t (*pci_info)(nvmlDevice_t, nvmlPciInfo_t*) = nullptr;
  nvmlReturn_t (*memory)(nvmlDevice_t, nvmlMemory_t*) = nullptr;
  nvmlReturn_t (*memory_v2)(nvmlDevice_t, nvmlMemory_v2_t*) = nullptr;
  nvmlReturn_t (*compute_processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*) = nullptr;
  nvmlReturn_t (*compute_processes_v1)(nvmlDevice_t, unsigned*, nvmlProcessInfo_v1_t*) = nullptr;
  nvmlReturn_t (*graphics_processes)(nvmlDevice_t, unsigned*, nvmlProcessInfo_t*) = nullptr;
  nvmlReturn_t (*utilization)(nvmlDevice_t, nvmlProcessUtilizationSample_t*, unsigned*,
                              unsigned long long) = nullptr;
  nvmlReturn_t (*rates)(nvmlDevice_t, nvmlUtilization_t*) = nullptr;
  nvmlReturn_t (*temperature)(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned*) = nullptr;
  nvmlReturn_t (*power)(nvmlDevice_t, unsigned*) = nullptr;
  nvmlReturn_t (*mig_mode)(nvmlDevice_t, unsigned*, unsigned*) = nullptr;
  nvmlReturn_t (*minor_number)(nvmlDevice_t, unsigned*) = nullptr;
  // Of the simulated GPU alone: it has no device file, and names one that does as well.
  nvmlReturn_t (*simulated_file)(nvmlDevice_t, char*, unsigned) = nullptr;
  nvmlReturn_t (*max_mig_count)(nvmlDevice_t, unsigned*) = nullptr;
  nvmlReturn_t (*mig_device)(nvmlDevice_t, unsigned, nvmlDevice_t*) = nullptr;

  explicit Calls(void* library) {
    const auto get = [library](auto& slot, std::initializer_list<const char*> names) {
      for (const char* name : names) {
        slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(::dlsym(library, name));
        if (slot != nullptr) return;
      }
    };
    get(init, {"nvmlInit_v2", "nvmlInit"});
    get(shutdown, {"nvmlShutdown"});
    get(error_string, {"nvmlErrorString"});
    get(driver_version, {"nvmlSystemGetDriverVersion"});
    get(device_count, {"nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"});
    get(device_by_index, {"nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"});
    get(device_uuid, {"nvmlDeviceGetUUID"});
    get(device_name, {"nvmlDeviceGetName"});
    get(pci_info, {"nvmlDeviceGetPciInfo_v3"});  // the older ones have a shorter struct
    get(memory, {"nvmlDeviceGetMemoryInfo"});
    get(memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    // _v2 and _v3 share one struct; the plain name has the older, shorter one.
    get(compute_processes,
        {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
    get(compute_processes_v1, {"nvmlDeviceGetComputeRunningProcesses"});
    get(graphics_processes,
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
    get(utilization, {"nvmlDeviceGetProcessUtilization"});
    get(rates, {"nvmlDeviceGetUtilizationRates"});
    get(temperature, {"nvmlDeviceGetTemperature"});
    get(power, {"nvmlDeviceGetPowerUsage"});
    get(mig_mode, {"nvmlDeviceGetMigMode"});
    get(minor_number, {"nvmlDeviceGetMinorNumber"});
    get(simulated_file, {"nvmlSimulatedDeviceFile"});
    get(max_mig_count, {"nvmlDeviceGetMaxMigDeviceCount"});
    get(mig_device, {"nvmlDeviceGetMigDeviceHandleByIndex"});
  }
};

// Calls `ask(&count, array)` until the array is large enough; bounded, because the list may grow
// between two calls.
template <typename Info, typename Ask>
std::optional<std::vector<Info>> ask_list(Ask ask) {
  std::vector<Info> infos(64);
  for (int attempt = 0; attempt < 4; ++attempt) {
    auto count = static_cast<unsigned>(infos.size());
    const nvmlReturn_t result = ask(&count, infos.data());
    if (result == NVML_SUCCESS) {
      infos.resize(std::min<std::size_t>(count, infos.size()));
      return infos;
    }
    if (result != NVML_ERROR_INSUFFICIENT_SIZE) return std::nullopt;
    infos.resize(std::max<std::size_t>(infos.size(), count) * 2);
  }
  return std::nullopt;
}

class Nvml final : public Gpus {
 public:
  Nvml() {
    // The library is never closed: it has threads and exit handlers of its own.
    void* library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = ::dlerror();
      problem_ = std::string("no NVIDIA driver: ") + (why != nullptr ? why : "dlopen failed");
      return;
    }
    calls_.emplace(library);
    if (calls_->init == nullptr || calls_->device_count == nullptr ||
        calls_->device_by_index == nullptr || calls_->device_uuid == nullptr) {
      problem_ = "libnvidia-ml.so.1 lacks the calls to list GPUs";
      return;
    }
    if (const nvmlReturn_t result = calls_->init(); result != NVML_SUCCESS) {
      problem_ = "nvmlInit: " + describe(result);
      return;
    }
    initialised_ = true;
    char version[96] = "";
    if (calls_->driver_version != nullptr &&
        calls_->driver_version(version, sizeof(version)) == NVML_SUCCESS) {
      driver_version_ = version;
    }
    list_devices();
    if (infos_.empty() && problem_.empty()) problem_ = "the NVIDIA driver lists no GPU";
  }

  ~Nvml() override {
    if (initialised_ && calls_->shutdown != nullptr) calls_->shutdown();
  }

  std::string problem() const override { return problem_; }
  std::string driver_version() const override { return driver_version_; }
  const std::vector<GpuInfo>& list() const override { return infos_; }

  std::optional<GpuMemory> memory(std::size_t at) override {
    nvmlMemory_v2_t second{};
    second.version = nvmlMemory_v2;
    if (calls_->memory_v2 != nullptr && calls_->memory_v2(devices_[at], &second) == NVML_SUCCESS) {
      return GpuMemory{second.total, second.reserved, second.used};
    }
    nvmlMemory_t first{};
    if (calls_->memory == nullptr || calls_->memory(devices_[at], &first) != NVML_SUCCESS) {
      return std::nullopt;
    }
    return GpuMemory{first.total, 0, first.used};
  }

  std::optional<std::vector<ProcessMemory>> processes(std::size_t at) override {
    std::map<pid_t, ProcessMemory> found;
    bool answered = false;
    const auto add = [&found, &answered](const auto& infos, bool compute) {
      if (!infos) return;
      answered = true;
      for (const auto& info : *infos) {
        // A process may be listed twice, as compute and as graphics, with the same sum.
        const auto pid = static_cast<pid_t>(info.pid);
        ProcessMemory& process = found.try_emplace(pid, ProcessMemory{pid, 0, false}).first->second;
        process.compute = process.compute || compute;
        if (info.usedGpuMemory != NVML_VALUE_NOT_AVAILABLE) {
          process.bytes = std::max<std::uint64_t>(process.bytes, info.usedGpuMemory);
        }
      }
    };
    const nvmlDevice_t device = devices_[at];
    if (calls_->compute_processes != nullptr) {
      add(ask_list<nvmlProcessInfo_t>([&](unsigned* count, nvmlProcessInfo_t* out) {
            return calls_->compute_processes(device, count, out);
          }),
          true);
    } else if (calls_->compute_processes_v1 != nullptr) {
      add(ask_list<nvmlProcessInfo_v1_t>([&](unsigned* count, nvmlProcessInfo_v1_t* out) {
            return calls_->compute_processes_v1(device, count, out);
          }),
          true);
    }
    if (calls_->graphics_processes != nullptr) {
      add(ask_list<nvmlProcessInfo_t>([&](unsigned* count, nvmlProcessInfo_t* out) {
            return calls_->graphics_processes(device, count, out);
          }),
          false);
    }
    if (!answered) return std::nullopt;
    std::vector<ProcessMemory> out;
    out.reserve(found.size());
    for (const auto& [pid, process] : found) out.push_back(process);
    return out;
  }

  std::optional<std::vector<ProcessLoad>> loads(std::size_t at) override {
    if (calls_->utilization == nullptr) return std::nullopt;
    const unsigned long long since = seen_us_[at];
    const auto samples = ask_list<nvmlProcessUtilizationSample_t>(
        [&](unsigned* count, nvmlProcessUtilizationSample_t* out) {
          const nvmlReturn_t result = calls_->utilization(devices_[at], out, count, since);
          if (result != NVML_ERROR_NOT_FOUND) return result;
          *count = 0;  // nobody ran since then
          return NVML_SUCCESS;
        });
    if (!samples) return std::nullopt;
    std::map<pid_t, nvmlProcessUtilizationSample_t> latest;
    for (const auto& sample : *samples) {
      if (sample.timeStamp <= since) continue;
      auto& kept = latest[static_cast<pid_t>(sample.pid)];
      if (sample.timeStamp >= kept.timeStamp) kept = sample;
      seen_us_[at] = std::max(seen_us_[at], sample.timeStamp);
    }
    std::vector<ProcessLoad> out;
    for (const auto& [pid, sample] : latest) {
      if (sample.smUtil <= 100) out.push_back({pid, sample.smUtil / 100.0});
    }
    return out;
  }

  std::optional<GpuCondition> condition(std::size_t at) override {
    GpuCondition out;
    nvmlUtilization_t rates{};
    if (calls_->rates != nullptr && calls_->rates(devices_[at], &rates) == NVML_SUCCESS) {
      out.utilisation_ratio = rates.gpu / 100.0;
    }
    unsigned degrees = 0;
    if (calls_->temperature != nullptr &&
        calls_->temperature(devices_[at], NVML_TEMPERATURE_GPU, &degrees) == NVML_SUCCESS) {
      out.temperature_celsius = degrees;
    }
    unsigned milliwatts = 0;
    if (calls_->power != nullptr && calls_->power(devices_[at], &milliwatts) == NVML_SUCCESS) {
      out.power_watts = milliwatts / 1000.0;
    }
    return out;
  }

 private:
  std::string describe(nvmlReturn_t result) const {
    const char* text = calls_->error_string != nullptr ? calls_->error_string(result) : nullptr;
    return text != nullptr ? text : "error " + std::to_string(result);
  }

  void list_devices() {
    unsigned count = 0;
    if (const nvmlReturn_t result = calls_->device_count(&count); result != NVML_SUCCESS) {
      problem_ = "nvmlDeviceGetCount: " + describe(result);
      return;
    }
    for (unsigned index = 0; index < count; ++index) {
      nvmlDevice_t device = nullptr;
      if (calls_->device_by_index(index, &device) != NVML_SUCCESS) continue;
      unsigned mode = 0;
      unsigned pending = 0;
      if (calls_->mig_mode != nullptr && calls_->mig_device != nullptr &&
          calls_->mig_mode(device, &mode, &pending) == NVML_SUCCESS && mode == 1) {
        add_instances(device, index);
      } else {
        add(device, index, false);
      }
    }
  }

  std::string device_file(nvmlDevice_t device) const {
    char path[256] = "";
    unsigned minor = 0;
    if (calls_->simulated_file != nullptr) {
      return calls_->simulated_file(device, path, sizeof(path)) == NVML_SUCCESS ? path : "";
    }
    // Instances of one GPU have one file, and a monitor governs all of them.
    return calls_->minor_number != nullptr && calls_->minor_number(device, &minor) == NVML_SUCCESS
               ? "/dev/nvidia" + std::to_string(minor)
               : "";
  }

  void add_instances(nvmlDevice_t parent, unsigned index) {
    unsigned most = 7;
    if (calls_->max_mig_count != nullptr) calls_->max_mig_count(parent, &most);
    for (unsigned i = 0; i < std::min(most, 64u); ++i) {
      nvmlDevice_t device = nullptr;
      if (calls_->mig_device(parent, i, &device) == NVML_SUCCESS) add(device, index, true);
    }
  }

  void add(nvmlDevice_t device, unsigned index, bool mig) {
    char uuid_text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE] = "";
    if (calls_->device_uuid(device, uuid_text, sizeof(uuid_text)) != NVML_SUCCESS) return;
    Uuid uuid{};
    if (!parse_uuid(uuid_text, uuid.data())) return;
    if (calls_->device_name != nullptr) calls_->device_name(device, name, sizeof(name));
    devices_.push_back(device);
    seen_us_.push_back(0);
    nvmlPciInfo_t pci{};
    if (calls_->pci_info != nullptr) calls_->pci_info(device, &pci);
    pci.busId[sizeof(pci.busId) - 1] = '\0';
    infos_.push_back({uuid, uuid_text, index, name, mig, pci.busId, device_file(device)});
  }

  std::optional<Calls> calls_;
  bool initialised_ = false;
  std::string problem_;
  std::string driver_version_;
  std::vector<nvmlDevice_t> devices_;
  std::vector<GpuInfo> infos_;
  std::vector<unsigned long long> seen_us_;
};

}  // namespace

std::unique_ptr<Gpus> open_nvml() { return std::make_unique<Nvml>(); }

}  // namespace switchyard::monitor
