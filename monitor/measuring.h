// What NVML says about memory, brought into the accounts.
//
// Concept. NVML is asked once a second, and before anything is refused, at most every 50 ms: what
// it says about a process beyond what the process counted as being on the device is overhead
// (contexts, modules) and is charged to its job; what belongs to no client lessens the capacity. So
// a client that says that its memory has left, while it has not, is charged for it as overhead.
//
// While memory is handed over it has left the one, and the other has not put it to use yet: what
// NVML says then is nobody's overhead, and the last reading before stands.
//
// Overhead comes unasked, and is seen up to a second later. Jobs that take turns fill the device to
// the brim, and a module that then finds no room ends its job. So where there are any of them, a
// part of the device is given out to nobody.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "monitor/gpu_accounts.h"
#include "monitor/gpus.h"

namespace switchyard::monitor {

// A part of the device: 2.2 GiB of an H200, where cuBLAS and cuDNN may load a gigabyte at once.
inline constexpr std::uint64_t kKeptForOverhead = 64;

class Measuring {
 public:
  // `capacity`: at most so much of each GPU is given out.
  Measuring(Gpus& door, GpuAccounts& gpus, std::optional<std::uint64_t> capacity);

  // Asks NVML about one GPU.
  void measure(std::size_t gpu, Time now);
  void measure_all(Time now);
  // When the last answer is older than a second, or somebody left since.
  void measure_due(Time now);
  // The same, unless the last answer is younger than 50 ms.
  void measure_if_old(std::size_t gpu, Time now);
  // How much of the time each client's kernels were resident.
  void measure_loads();

 private:
  void measure_overheads(std::size_t gpu, const std::vector<ProcessMemory>& listed,
                         const std::vector<std::uint64_t>& used_before);

  Gpus& door_;
  GpuAccounts& gpus_;
  std::optional<std::uint64_t> capacity_;
};

}  // namespace switchyard::monitor
