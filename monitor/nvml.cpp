#include "monitor/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>

#include "monitor/nvml_abi.h"

namespace switchyard::monitor {
namespace {

using nvml::Device;
using nvml::kSuccess;
using nvml::Return;

// The calls, by the name that the library exports. A null one is missing in this driver.
struct Calls {
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  const char* (*error_string)(Return) = nullptr;
  Return (*driver_version)(char*, unsigned) = nullptr;
  Return (*device_count)(unsigned*) = nullptr;
  Return (*device_by_index)(unsigned, Device*) = nullptr;
  Return (*device_uuid)(Device, char*, unsigned) = nullptr;
  Return (*device_name)(Device, char*, unsigned) = nullptr;
  Return (*memory)(Device, nvml::Memory*) = nullptr;
  Return (*memory_v2)(Device, nvml::MemoryV2*) = nullptr;
  Return (*compute_processes)(Device, unsigned*, nvml::ProcessInfo*) = nullptr;
  Return (*compute_processes_v1)(Device, unsigned*, nvml::ProcessInfoV1*) = nullptr;
  Return (*graphics_processes)(Device, unsigned*, nvml::ProcessInfo*) = nullptr;
  Return (*utilization)(Device, nvml::ProcessUtilization*, unsigned*, unsigned long long) = nullptr;
  Return (*mig_mode)(Device, unsigned*, unsigned*) = nullptr;
  Return (*minor_number)(Device, unsigned*) = nullptr;
  // Of the simulated GPU alone: it has no device file, and names one that does as well.
  Return (*simulated_file)(Device, char*, unsigned) = nullptr;
  Return (*max_mig_count)(Device, unsigned*) = nullptr;
  Return (*mig_device)(Device, unsigned, Device*) = nullptr;

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
    get(memory, {"nvmlDeviceGetMemoryInfo"});
    get(memory_v2, {"nvmlDeviceGetMemoryInfo_v2"});
    // _v2 and _v3 share one struct; the plain name has the older, shorter one.
    get(compute_processes,
        {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"});
    get(compute_processes_v1, {"nvmlDeviceGetComputeRunningProcesses"});
    get(graphics_processes,
        {"nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"});
    get(utilization, {"nvmlDeviceGetProcessUtilization"});
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
    const Return result = ask(&count, infos.data());
    if (result == kSuccess) {
      infos.resize(std::min<std::size_t>(count, infos.size()));
      return infos;
    }
    if (result != nvml::kInsufficientSize) return std::nullopt;
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
    if (const Return result = calls_->init(); result != kSuccess) {
      problem_ = "nvmlInit: " + describe(result);
      return;
    }
    initialised_ = true;
    char version[96] = "";
    if (calls_->driver_version != nullptr &&
        calls_->driver_version(version, sizeof(version)) == kSuccess) {
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
    nvml::MemoryV2 second{};
    second.version = nvml::kMemoryV2Version;
    if (calls_->memory_v2 != nullptr && calls_->memory_v2(devices_[at], &second) == kSuccess) {
      return GpuMemory{second.total, second.reserved, second.used};
    }
    nvml::Memory first{};
    if (calls_->memory == nullptr || calls_->memory(devices_[at], &first) != kSuccess) {
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
        if (info.used_bytes != nvml::kNotAvailable) {
          process.bytes = std::max<std::uint64_t>(process.bytes, info.used_bytes);
        }
      }
    };
    const Device device = devices_[at];
    if (calls_->compute_processes != nullptr) {
      add(ask_list<nvml::ProcessInfo>([&](unsigned* count, nvml::ProcessInfo* out) {
            return calls_->compute_processes(device, count, out);
          }),
          true);
    } else if (calls_->compute_processes_v1 != nullptr) {
      add(ask_list<nvml::ProcessInfoV1>([&](unsigned* count, nvml::ProcessInfoV1* out) {
            return calls_->compute_processes_v1(device, count, out);
          }),
          true);
    }
    if (calls_->graphics_processes != nullptr) {
      add(ask_list<nvml::ProcessInfo>([&](unsigned* count, nvml::ProcessInfo* out) {
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
    const auto samples =
        ask_list<nvml::ProcessUtilization>([&](unsigned* count, nvml::ProcessUtilization* out) {
          return calls_->utilization(devices_[at], out, count, since);
        });
    if (!samples) return std::nullopt;
    std::map<pid_t, nvml::ProcessUtilization> latest;
    for (const auto& sample : *samples) {
      if (sample.time_stamp_us <= since) continue;
      auto& kept = latest[static_cast<pid_t>(sample.pid)];
      if (sample.time_stamp_us >= kept.time_stamp_us) kept = sample;
      seen_us_[at] = std::max(seen_us_[at], sample.time_stamp_us);
    }
    std::vector<ProcessLoad> out;
    for (const auto& [pid, sample] : latest) {
      if (sample.sm_percent <= 100) out.push_back({pid, sample.sm_percent / 100.0});
    }
    return out;
  }

 private:
  std::string describe(Return result) const {
    const char* text = calls_->error_string != nullptr ? calls_->error_string(result) : nullptr;
    return text != nullptr ? text : "error " + std::to_string(result);
  }

  void list_devices() {
    unsigned count = 0;
    if (const Return result = calls_->device_count(&count); result != kSuccess) {
      problem_ = "nvmlDeviceGetCount: " + describe(result);
      return;
    }
    for (unsigned index = 0; index < count; ++index) {
      Device device = nullptr;
      if (calls_->device_by_index(index, &device) != kSuccess) continue;
      unsigned mode = 0;
      unsigned pending = 0;
      if (calls_->mig_mode != nullptr && calls_->mig_device != nullptr &&
          calls_->mig_mode(device, &mode, &pending) == kSuccess && mode == 1) {
        add_instances(device, index);
      } else {
        add(device, index, false);
      }
    }
  }

  std::string device_file(Device device) const {
    char path[256] = "";
    unsigned minor = 0;
    if (calls_->simulated_file != nullptr) {
      return calls_->simulated_file(device, path, sizeof(path)) == kSuccess ? path : "";
    }
    // Instances of one GPU have one file, and a monitor governs all of them.
    return calls_->minor_number != nullptr && calls_->minor_number(device, &minor) == kSuccess
               ? "/dev/nvidia" + std::to_string(minor)
               : "";
  }

  void add_instances(Device parent, unsigned index) {
    unsigned most = 7;
    if (calls_->max_mig_count != nullptr) calls_->max_mig_count(parent, &most);
    for (unsigned i = 0; i < std::min(most, 64u); ++i) {
      Device device = nullptr;
      if (calls_->mig_device(parent, i, &device) == kSuccess) add(device, index, true);
    }
  }

  void add(Device device, unsigned index, bool mig) {
    char uuid_text[nvml::kUuidBytes] = "";
    char name[nvml::kNameBytes] = "";
    if (calls_->device_uuid(device, uuid_text, sizeof(uuid_text)) != kSuccess) return;
    const auto uuid = parse_uuid(uuid_text);
    if (!uuid) return;
    if (calls_->device_name != nullptr) calls_->device_name(device, name, sizeof(name));
    devices_.push_back(device);
    seen_us_.push_back(0);
    infos_.push_back({*uuid, uuid_text, index, name, mig, device_file(device)});
  }

  std::optional<Calls> calls_;
  bool initialised_ = false;
  std::string problem_;
  std::string driver_version_;
  std::vector<Device> devices_;
  std::vector<GpuInfo> infos_;
  std::vector<unsigned long long> seen_us_;
};

}  // namespace

std::unique_ptr<Gpus> open_nvml() { return std::make_unique<Nvml>(); }

}  // namespace switchyard::monitor
