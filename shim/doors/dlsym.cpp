// The door dlsym: programs that look the driver up by name get our entries.
//
// The exported dlsym asks pick_symbol() first. For every name that is not ours it *jumps* to
// glibc's dlsym. The true caller's return address is still on the stack, so RTLD_NEXT and
// RTLD_DEFAULT mean what they mean for that caller. dlvsym is left alone: libcuda's symbols have no
// versions.
#include <dlfcn.h>

#include <atomic>
#include <cstring>

#include "shim/client/settings.h"
#include "shim/dl.h"
#include "shim/driver.h"
#include "shim/nccl/table.h"
#include "shim/nvml/table.h"
#include "shim/slices/driver_ioctl.h"
#include "shim/table.h"

extern "C" {
// What pick_symbol returns in rax and rdx.
struct SwitchyardPick {
  void* symbol;
  unsigned long decided;  // 1: `symbol` is the answer; 0: ask glibc
};
__attribute__((visibility("hidden"))) SwitchyardPick switchyard_pick_symbol(void* handle,
                                                                            const char* name);
__attribute__((visibility("hidden"))) std::atomic<switchyard::shim::Dlsym> switchyard_real_dlsym;
}

namespace switchyard::shim {

Dlsym real_dlsym() {
  Dlsym found = switchyard_real_dlsym.load(std::memory_order_relaxed);
  if (found == nullptr) {
    // The version is that of the oldest glibc on x86-64.
    found = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
    switchyard_real_dlsym.store(found, std::memory_order_relaxed);
  }
  return found;
}

namespace {

bool starts_with(const char* text, const char* prefix) {
  return std::strncmp(text, prefix, std::strlen(prefix)) == 0;
}

SwitchyardPick pick_cuda(void* handle, const char* name) {
  if (driver_loaded() && resolve(false)) {
    void* entry = entry_by_name(name);
    return {entry, entry != nullptr};
  }
  // No driver in this process. In the global scope glibc would find our own exports and make the
  // caller believe that there is one, so look behind us.
  if ((handle == RTLD_DEFAULT || handle == RTLD_NEXT) && is_ours(name)) {
    return {real_dlsym()(RTLD_NEXT, name), 1};
  }
  return {nullptr, 0};
}

}  // namespace
}  // namespace switchyard::shim

SwitchyardPick switchyard_pick_symbol(void* handle, const char* name) {
  using namespace switchyard::shim;
  if (real_dlsym() == nullptr) return {nullptr, 1};
  rm::find_next_ioctl();  // this call takes the loader's lock in any case
  if (name == nullptr) return {nullptr, 0};
  if (starts_with(name, "cu") && !disabled()) return pick_cuda(handle, name);
  if (starts_with(name, "nvml") && !disabled()) {
    const nvml::Pick pick = nvml::pick(handle, name);
    return {pick.symbol, pick.decided};
  }
  if ((starts_with(name, "nccl") || starts_with(name, "pnccl")) && !disabled()) {
    const nccl::Pick pick = nccl::pick(handle, name);
    return {pick.symbol, pick.decided};
  }
  return {nullptr, 0};
}

// Keeps handle and name for the tail jump; the stack stays 16-byte aligned at the call.
asm(R"(
.pushsection .text
.globl dlsym
.type dlsym, @function
.p2align 4
dlsym:
  endbr64
  pushq %rdi
  pushq %rsi
  subq $8, %rsp
  call switchyard_pick_symbol
  addq $8, %rsp
  popq %rsi
  popq %rdi
  testq %rdx, %rdx
  je 1f
  ret
1:
  movq switchyard_real_dlsym(%rip), %rax
  jmp *%rax
.size dlsym, .-dlsym
.popsection
)");
