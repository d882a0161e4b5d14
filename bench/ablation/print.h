// The line of JSON that each cell is printed as: how it begins.
//
// Threading: one thread.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace switchyard::bench::ablation {

inline constexpr std::size_t kMiB = 1u << 20;

inline void print_begin(const char* part, std::size_t bytes, const std::string& way) {
  std::printf("{\"part\": \"%s\", \"mib\": %zu, \"way\": \"%s\"", part, bytes / kMiB, way.c_str());
}

}  // namespace switchyard::bench::ablation
