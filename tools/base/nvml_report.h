// The GPUs of this machine as NVML lists them, for when no monitor runs that would.
//
// Threading: loads a library; call it from the only thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace switchyard::tools {

struct NvmlProcess {
  unsigned pid = 0;
  std::uint64_t bytes = 0;
};

struct NvmlGpu {
  unsigned index = 0;
  std::string uuid;
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::vector<NvmlProcess> processes;  // that compute there
  unsigned compute_mode = 0;           // 0: any number of processes may use it
  bool mig = false;                    // it is divided
};

struct NvmlReport {
  std::vector<NvmlGpu> gpus;
  std::string driver_version;
  std::string problem;  // why there are none; empty: there are some
};

NvmlReport ask_nvml();

}  // namespace switchyard::tools
