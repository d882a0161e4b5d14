// Every way to take device memory, each with its way to give it back. Knows nothing of Switchyard.
//
// Threading: one thread, the one whose context is current.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace memory_job {

inline constexpr std::size_t kMiB = 1u << 20;

using Give = std::function<CUresult()>;

struct Kind {
  const char* name;
  // Takes about `mib` MiB; on success `give` frees it.
  CUresult (*take)(std::size_t mib, Give& give);
};

// Those that live side by side as allocations do, and what else find_kind() knows.
const std::vector<Kind>& kinds();
const Kind* find_kind(const std::string& name);

// Lets the driver give back what freed memory it keeps: synchronises, and trims pools and graphs.
void settle();

}  // namespace memory_job
