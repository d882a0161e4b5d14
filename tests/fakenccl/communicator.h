// A communicator of one rank, and its operations as kernels of the simulated GPU.
//
// Concept. A kernel holds the operations that one group puts on one stream of one communicator. A
// run of it goes through them: collectives one after the other, sends and receives side by side. It
// takes its number in the meeting when it runs, so a graph may run it again and again.
//
// As NCCL has it, the kernels of one communicator run one after the other in the order of their
// launches, whatever their streams. A graph's kernel waits only for one that runs.
//
// Threading: calls for one communicator come one after the other, as NCCL wants it; runs are the
// engine's worker's.
#pragma once

#include <atomic>
#include <vector>

#include "meeting.h"
#include "shim/nccl/abi.h"
#include "switchyard/collectives.h"
#include "switchyard/cuda_library.h"
#include "tests/fakecuda/foreign_kernel.h"

struct ncclComm {
  fakenccl::Meeting meeting;
  std::uint64_t id = 0;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  std::uint64_t next = 0;  // the number of its next collective
  std::uint64_t children = 0;
  std::uint64_t queued = 0;             // kernels that were launched, without those of graphs
  std::atomic<std::uint64_t> ended{0};  // of these
  bool running = false;                 // the worker's own
  std::atomic<bool> aborted{false};
  bool suspended = false;
  std::vector<void*> windows;         // their memory; a window's number is its place, from 1
  ncclResult_t error = kNcclSuccess;  // that it reports when it is asked
  CUcontext context = nullptr;
  CUfunction kernel = nullptr;
};

namespace fakenccl {

using switchyard::Collective;

// What the handle of a registered buffer or window points to: only its communicator may end it.
struct Registration {
  ncclComm_t comm;
  std::size_t window = 0;  // its number, the same on all ranks
};

struct Operation {
  Collective kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int peer;  // root, or the other one
  bool average = false;
  int signals = 0;  // one-sided: that are sent or awaited
  std::size_t window = 0, offset = 0;
};

#define FAKENCCL_CALLS(CALL)     \
  CALL(cuInit)                   \
  CALL(cuCtxGetDevice)           \
  CALL(cuCtxPushCurrent)         \
  CALL(cuCtxPopCurrent)          \
  CALL(cuDeviceGet)              \
  CALL(cuDevicePrimaryCtxRetain) \
  CALL(cuModuleLoadData)         \
  CALL(cuModuleGetFunction)      \
  CALL(cuStreamIsCapturing)      \
  CALL(cuLaunchKernel)
SWITCHYARD_CUDA_FUNCTIONS(Cuda, FAKENCCL_CALLS);
// Looked up as NCCL does, so a preloaded library sees it. Null: there is none.
const Cuda* cuda();

// What an operation reads and writes on its own rank.
std::size_t bytes_read(const ncclComm& comm, const Operation& operation);
std::size_t bytes_written(const ncclComm& comm, const Operation& operation);

// `device` -1: the current one.
ncclComm_t make_communicator(int ranks, int rank, int device);
// It stays in memory, for a kernel of it may still be on the GPU.
void end_communicator(ncclComm& comm);
// That were made and have not ended.
int live_communicators();
// Buffers and windows that are registered.
extern std::atomic<int> g_registered;
// No kernel of any communicator of this process is on a GPU.
bool all_quiet();
// None of this one is in a stream, but for those of graphs.
void wait_until_quiet(const ncclComm& comm);
// Takes its place, and is awaited by those who come later; wait_for_all() waits for them.
bool join(ncclComm& comm, std::uint64_t id);
void wait_for_all(ncclComm& comm);

ncclResult_t launch(ncclComm& comm, CUstream stream, std::vector<Operation> operations);

}  // namespace fakenccl
