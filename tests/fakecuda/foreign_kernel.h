// A kernel that another library computes: how the simulated NCCL gets work onto the simulated GPU.
//
// Concept. The kernel is named `fakecuda_foreign`; its one parameter is the address of a
// ForeignKernel in the process that launches it. A run of it occupies the compute engine, in small
// steps of virtual time, until `poll` says that it is done. Meanwhile other work of the same
// context gets its steps in between. So it is on a GPU, where such a kernel takes a part of the
// processors.
//
// Threading: `begin` and `poll` are called by the engine's worker, one run after the other.
#pragma once

#include <cstddef>

namespace fakecuda {

struct ForeignSpan {
  unsigned long long address;  // device memory that it touches
  std::size_t bytes;
};

struct ForeignKernel {
  // A run of it begins: what poll() is given until it says that it is done.
  void* (*begin)(ForeignKernel* kernel);
  bool (*poll)(void* run);
  const ForeignSpan* spans;
  std::size_t span_count;
};

}  // namespace fakecuda
