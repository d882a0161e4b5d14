// The GPU of an example, with its kernel loaded; else it says why there is none, and ends.
//
// Threading: one thread.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "examples/demo/gpu.h"

namespace examples {

[[noreturn]] inline void end_with(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

inline demo::Gpu open_gpu() {
  std::string why;
  auto gpu = demo::Gpu::open(why);
  if (!gpu || !gpu->load(why)) end_with(why);
  return std::move(*gpu);
}

}  // namespace examples
