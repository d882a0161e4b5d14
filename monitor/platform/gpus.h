// The narrow door to the GPUs: everything that the monitor asks the machine about them. Behind it
// is NVML (nvml.h), or a fake in tests.
//
// Concept. A GPU is named by its UUID; a MIG instance is a GPU of its own. `at` is a position in
// the answer of list(), which is fixed for the life of the object. A question that the driver can't
// answer yields nullopt, never a guess.
//
// Threading: one thread. Calls may take milliseconds, and seconds when a GPU is in trouble. So
// there is never one per message of a client (Measuring::measure_if_old), and never one on the loop
// itself (patient_gpus.h).
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace switchyard::monitor {

using Uuid = std::array<std::uint8_t, 16>;

struct GpuInfo {
  Uuid uuid{};            // as cuDeviceGetUuid_v2 gives it
  std::string uuid_text;  // "GPU-..." or "MIG-..."
  unsigned index = 0;     // NVML's own index (of the parent for a MIG instance)
  std::string name;
  bool mig = false;
  std::string pci_bus_id;   // "00000000:3B:00.0"; empty: not known, as of a MIG instance
  std::string device_file;  // which stands for it in every container that has it; may be empty
};

struct GpuMemory {
  std::uint64_t total_bytes = 0;
  std::uint64_t reserved_bytes = 0;  // the driver's own, nobody's to give
  std::uint64_t used_bytes = 0;      // without reserved
};

struct ProcessMemory {
  pid_t pid = 0;
  std::uint64_t bytes = 0;  // contexts and everything else included
  bool compute = true;      // false: it only draws
};

struct ProcessLoad {
  pid_t pid = 0;
  double ratio = 0;  // of the time in which a kernel of the process was resident, 0 to 1
};

// How hard it works, by NVML; what it does not tell is nullopt.
struct GpuCondition {
  std::optional<double> utilisation_ratio;  // of the time in which any kernel was resident
  std::optional<unsigned> temperature_celsius;
  std::optional<double> power_watts;

  bool operator==(const GpuCondition&) const = default;
};

class Gpus {
 public:
  virtual ~Gpus() = default;

  // Why list() is empty; empty when it is not.
  virtual std::string problem() const = 0;
  virtual std::string driver_version() const = 0;
  virtual const std::vector<GpuInfo>& list() const = 0;

  // pre: at < list().size(), for all below.
  virtual std::optional<GpuMemory> memory(std::size_t at) = 0;
  virtual std::optional<std::vector<ProcessMemory>> processes(std::size_t at) = 0;
  // The latest sample of every process that was sampled since the last call.
  virtual std::optional<std::vector<ProcessLoad>> loads(std::size_t at) = 0;
  virtual std::optional<GpuCondition> condition(std::size_t at) = 0;
};

}  // namespace switchyard::monitor
