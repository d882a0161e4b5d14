// The door dlopen: NVIDIA's libraries find the doors also where a program opens them with
// RTLD_DEEPBIND, as Julia does by default.
//
// That flag has a library look into itself and what it needs, libc and libcuda among them, before
// it looks at what is preloaded. So its dlsym is glibc's, and its CUDA calls are the driver's own.
// The exported dlopen leaves the flag out for libraries whose names are those of NVIDIA's. It
// *jumps* to the next dlopen in any case: that finds the caller by the return address, and looks
// where the caller's RUNPATH says.
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "shim/client/settings.h"
#include "shim/dl.h"

extern "C" {
using SwitchyardDlopen = void* (*)(const char* path, int mode);
__attribute__((visibility("hidden"))) std::atomic<SwitchyardDlopen> switchyard_next_dlopen;
// The mode to go on with; the next dlopen is known then, or null.
__attribute__((visibility("hidden"))) int switchyard_open_mode(const char* path, int mode);
}

namespace switchyard::shim {
namespace {

// How names begin. libcurl and libcups are others'.
constexpr const char* kNvidias[] = {"libcud",      "libcublas",   "libcufft",    "libcurand",
                                    "libcusolver", "libcusparse", "libcutensor", "libcupti",
                                    "libnccl",     "libnvidia-",  "libnvrtc",    "libnvJitLink",
                                    "libnvjpeg",   "libnvshmem",  "libnvfatbin"};

bool is_nvidias(const char* path) {
  const char* slash = std::strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  for (const char* begin : kNvidias) {
    if (std::strncmp(name, begin, std::strlen(begin)) == 0) return true;
  }
  return false;
}

}  // namespace
}  // namespace switchyard::shim

int switchyard_open_mode(const char* path, int mode) {
  using namespace switchyard::shim;
  if (switchyard_next_dlopen.load(std::memory_order_relaxed) == nullptr) {
    const Dlsym look = real_dlsym();
    void* next = look != nullptr ? look(RTLD_NEXT, "dlopen") : nullptr;
    switchyard_next_dlopen.store(reinterpret_cast<SwitchyardDlopen>(next),
                                 std::memory_order_relaxed);
  }
  if ((mode & RTLD_DEEPBIND) == 0 || path == nullptr || disabled()) return mode;
  return is_nvidias(path) ? mode & ~RTLD_DEEPBIND : mode;
}

// Keeps the path and the new mode for the tail jump; the stack stays 16-byte aligned at the call.
asm(R"(
.pushsection .text
.globl dlopen
.type dlopen, @function
.p2align 4
dlopen:
  endbr64
  subq $8, %rsp
  pushq %rdi
  subq $8, %rsp
  call switchyard_open_mode
  addq $8, %rsp
  popq %rdi
  addq $8, %rsp
  movl %eax, %esi
  movq switchyard_next_dlopen(%rip), %rax
  testq %rax, %rax
  je 1f
  jmp *%rax
1:
  ret
.size dlopen, .-dlopen
.popsection
)");
