// Modules: PTX images, the kernels in them by entry name, and what those kernels do.
//
// Concept. The image is read only for its `.entry` names and their parameters. A kernel whose name
// the simulation knows (kernels.cpp) computes on memory; another one takes 5 us and does nothing.
//
// Threading: one lock for the modules; Kernels are never freed, so a launch needs none.
#pragma once

#include <set>
#include <string>

#include "work.h"

namespace fakecuda {

struct Module;

struct Kernel {
  std::string name;
  std::vector<std::size_t> sizes;    // of its parameters
  std::vector<std::size_t> offsets;  // in the packed arguments
  std::size_t argument_bytes = 0;
  Module* module = nullptr;
  int dynamic_shared_bytes = 0;
  int local_bytes = 0;  // of a thread
};

struct Module {
  Context* context = nullptr;  // null: a library, usable in every context
  std::vector<Kernel*> kernels;
  std::map<std::string, std::pair<CUdeviceptr, std::size_t>> globals;
  Kernel* find(const std::string& name) const;
};

// The kernels of an image; false when it isn't one.
bool parse_ptx(const char* text, Module* module);

bool known_module(Module* module);
bool known_kernel(Kernel* kernel);
void forget(Module* module);

// What a launch costs on the compute engine, and what it does (kernels.cpp).
std::uint64_t kernel_cost_ns(const Launch& launch);
// On that GPU: CUDA_SUCCESS, or what it did wrong.
CUresult run_kernel(const Launch& launch, int gpu);
// One run of a kernel that goes on until something happens, such as one that another library
// computes (foreign_kernel.h); null: it is none.
struct LongRun;
std::shared_ptr<LongRun> begin_long(const Launch& launch, int gpu);
// True: it is done, also when it did wrong.
bool poll_long(LongRun& run);
CUresult result_of(const LongRun& run);

// Packs the arguments of a launch; false when they are missing.
bool pack_arguments(Launch& launch, void** params, void** extra);

}  // namespace fakecuda
