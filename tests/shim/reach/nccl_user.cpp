// A library that is linked to NCCL, as a framework is.
#include "shim/nccl/abi.h"

extern "C" __attribute__((visibility("default"))) int reach_group_start() {
  return ncclGroupStart();
}
