// The driver's checkpoint calls, also with headers that are older than they are.
//
// Concept. cuda.h declares them since 12.8, and pairs of GPUs since 13.0. Whether they work is for
// the driver to say when a program runs, not for the headers. So what an older cuda.h lacks is
// declared here, as 13.0 has it. Nothing here knows of Switchyard.
//
// Threading: types alone.
#pragma once

#include <cuda.h>

#if CUDA_VERSION < 12080
extern "C" {
typedef enum CUprocessState_enum {
  CU_PROCESS_STATE_RUNNING = 0,
  CU_PROCESS_STATE_LOCKED,
  CU_PROCESS_STATE_CHECKPOINTED,
  CU_PROCESS_STATE_FAILED,
} CUprocessState;

typedef struct CUcheckpointLockArgs_st {
  unsigned int timeoutMs;
  unsigned int reserved0;
  cuuint64_t reserved1[7];
} CUcheckpointLockArgs;

typedef struct CUcheckpointCheckpointArgs_st {
  cuuint64_t reserved[8];
} CUcheckpointCheckpointArgs;

typedef struct CUcheckpointRestoreArgs_st {
  cuuint64_t reserved[8];
} CUcheckpointRestoreArgs;

typedef struct CUcheckpointUnlockArgs_st {
  cuuint64_t reserved[8];
} CUcheckpointUnlockArgs;

CUresult CUDAAPI cuCheckpointProcessGetRestoreThreadId(int pid, int* tid);
CUresult CUDAAPI cuCheckpointProcessGetState(int pid, CUprocessState* state);
CUresult CUDAAPI cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args);
CUresult CUDAAPI cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args);
CUresult CUDAAPI cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args);
CUresult CUDAAPI cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args);
}
#endif

#if CUDA_VERSION < 13000
typedef struct CUcheckpointGpuPair_st {
  CUuuid oldUuid;
  CUuuid newUuid;
} CUcheckpointGpuPair;
#endif

namespace switchyard::cuda {

// CUcheckpointRestoreArgs as 13.0 has it. Before, all of it was reserved.
struct RestoreArgs {
  CUcheckpointGpuPair* gpu_pairs = nullptr;
  unsigned gpu_pairs_count = 0;
  unsigned char reserved[64 - sizeof(void*) - sizeof(unsigned)] = {};

  CUcheckpointRestoreArgs* get() { return reinterpret_cast<CUcheckpointRestoreArgs*>(this); }
  static const RestoreArgs* of(const CUcheckpointRestoreArgs* args) {
    return reinterpret_cast<const RestoreArgs*>(args);
  }
};
static_assert(sizeof(RestoreArgs) == 64 && sizeof(CUcheckpointRestoreArgs) == 64,
              "the driver's layout of the arguments");

}  // namespace switchyard::cuda
