// What the simulated GPU counted, in virtual time: exact whatever the machine's speed.
//
// Concept. Exported by the simulated libcuda.so.1 for tests, found by dlsym. It reads the state
// file, so it tells of every process, and works without a context.
//
// Threading: any thread.
#pragma once

#include <cstdint>

extern "C" {

struct FakecudaGroup {
  std::int32_t pid;
  std::uint32_t gpu;
  std::uint32_t engine;  // 0 compute, 1 to 3 copies
  std::uint32_t slice_us;
  std::uint64_t busy_ns;  // it ran for so long
  std::uint64_t operations;
};

struct FakecudaEngine {
  std::uint64_t clock_ns;
  std::uint64_t switch_ns;  // went into switching between groups
  std::uint64_t switches;
};

// Writes at most `most` living groups and returns how many there are; -1 without a state file.
int fakecuda_groups(FakecudaGroup* out, int most);
// 0, or -1 without a state file or such an engine.
int fakecuda_engine(unsigned gpu, unsigned engine, FakecudaEngine* out);

}  // extern "C"
