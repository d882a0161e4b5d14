// A program that is linked to NCCL. Its status is 0 where its call went through the hook once, to
// NCCL once.
#include <dlfcn.h>

#include "shim/nccl/abi.h"

int main() {
  const auto hooked = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "reach_hook_calls"));
  if (hooked == nullptr) return 2;
  if (ncclGroupStart() != kNcclSuccess || hooked() != 1) return 3;
  // NCCL refuses to end a group that was not begun, so this was begun once.
  if (ncclGroupEnd() != kNcclSuccess) return 4;
  return ncclGroupEnd() == kNcclInvalidUsage ? 0 : 5;
}
