// How a call of the API is written, and what operations have in common.
//
// Threading: NCCL's.
#pragma once

#include "group.h"

// The second name of a call, as NCCL has it: the first may be replaced.
#define TWIN(name) \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) decltype(name) name
#define CALL extern "C" __attribute__((visibility("default"))) ncclResult_t

namespace fakenccl {

inline ncclResult_t operate(Collective kind, const void* from, void* to, std::size_t count,
                            ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream) {
  return add_operation(comm, stream, {kind, from, to, count, type, peer});
}

inline ncclResult_t reduce(Collective kind, const void* from, void* to, std::size_t count,
                           ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                           CUstream stream) {
  const bool average = op == kNcclAvg && type == kNcclFloat32;
  if (op != kNcclSum && !average) return kNcclInvalidArgument;
  return add_operation(comm, stream, {kind, from, to, count, type, root, average});
}

}  // namespace fakenccl
