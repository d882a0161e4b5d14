// What a context holds besides allocations: local memory of kernels, the heap of malloc() on the
// device, and the buffer of printf().
//
// Concept. No allocation call names it. The driver keeps one piece of local memory for each
// context, for all threads that the GPU can have at once:
//
//     SMs x threads of an SM x bytes of a thread
//
// It grows before a kernel that needs more, or when the stack's limit is raised, and stays until
// the context ends. Heap and buffer are as large as their limits. A fresh context's share of all
// three is part of the context, which the monitor sees by NVML. Memory beyond that is charged here
// before the driver takes it, and refused as any allocation is.
//
// The driver is asked for a kernel's need before its first launch. After that a launch pays for one
// look into a table of two places for each kernel. When a module or a context goes or comes, all
// are asked anew: a handle may be another kernel's by then.
//
// Threading: any thread; one lock, never held while the driver or the monitor is called.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/driver.h"
#include "switchyard/abi.h"

namespace switchyard::shim::context_memory {

enum class Part : std::uint8_t { kLocal, kHeap, kPrintf, kParts };

// A change under way.
struct Change {
  int lane = -1;  // -1: nothing is to be put right
  std::uint64_t owner = 0;
  Part part = Part::kLocal;
  std::uint64_t before = 0, beyond = 0;  // what is charged for the part
};

// Before the current context's `limit` becomes `value`, and before a kernel is launched in it.
// Refuses by CUDA_ERROR_OUT_OF_MEMORY. Every one that succeeded needs its end.
CUresult begin_limit(CUlimit limit, std::uint64_t value, Change& change);
CUresult begin_kernel(const void* function, Change& change);
// After it: what was charged is given back if the driver refused, or the part has become smaller.
void end(const Change& change, CUresult result);

// What the GPU of `device` takes for so many bytes of local memory of a thread.
std::uint64_t local_bytes(int device, std::uint64_t bytes_of_thread);

// The context has ended, and all that it held with it (memory/owner.h).
void owner_gone(int lane, std::uint64_t owner);

// --- kernels that were asked about ---

inline constexpr std::size_t kKnown = 4096;
extern std::atomic<const void*> g_known[kKnown];

inline std::size_t place_of(const void* function) {
  const auto mixed = reinterpret_cast<std::uintptr_t>(function) * 0x9E3779B97F4A7C15u;
  return (mixed >> 40) & (kKnown - 1);
}

// Null: no kernel.
inline bool known(const void* function) {
  const std::size_t at = place_of(function);
  return function == nullptr || g_known[at].load(std::memory_order_relaxed) == function ||
         g_known[at ^ 1].load(std::memory_order_relaxed) == function;
}

void forget_kernels();

// A launch takes a kernel of a library for a function, but a question does not.
void note_kernel(CUkernel kernel, CUlibrary library);
void library_ends(CUlibrary library);

// Launches by `call` what may not be known.
template <typename Call>
CUresult launch(const void* function, Call call) {
  Change change;
  if (const CUresult refused = begin_kernel(function, change)) return refused;
  const CUresult result = call();
  end(change, result);
  return result;
}

}  // namespace switchyard::shim::context_memory
