// The API, under both names of each call.
#include "calls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <cstdlib>

#include "hash.h"

using namespace fakenccl;

namespace {

// The environment's wish for communicators that are made by a split: their making fails on this
// rank alone, or they report an error.
ncclResult_t wanted_of_children(const char* variable) {
  const char* text = ::getenv(variable);
  return text != nullptr ? std::atoi(text) : kNcclSuccess;
}

}  // namespace

CALL pncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return kNcclInvalidArgument;
  return ::getrandom(id->internal, sizeof id->internal, 0) == sizeof id->internal ? kNcclSuccess
                                                                                  : 2;
}
TWIN(ncclGetUniqueId);

CALL pncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return add_communicator(comm, hash(id.internal, sizeof id.internal), ranks, rank, -1);
}
TWIN(ncclCommInitRank);

CALL pncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                             ncclConfig_t*) {
  return add_communicator(comm, hash(id.internal, sizeof id.internal), ranks, rank, -1);
}
TWIN(ncclCommInitRankConfig);

CALL pncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id,
                               ncclConfig_t*) {
  if (ids < 1 || id == nullptr) return kNcclInvalidArgument;
  const auto bytes = sizeof(ncclUniqueId) * static_cast<std::size_t>(ids);
  return add_communicator(comm, hash(id, bytes), ranks, rank, -1);
}
TWIN(ncclCommInitRankScalable);

CALL pncclCommInitAll(ncclComm_t* comms, int devices, const int* device) {
  ncclUniqueId id;
  if (const ncclResult_t result = pncclGetUniqueId(&id)) return result;
  begin_group();
  for (int rank = 0; rank < devices; ++rank) {
    const int at = device != nullptr ? device[rank] : rank;
    const auto result =
        add_communicator(&comms[rank], hash(id.internal, sizeof id.internal), devices, rank, at);
    if (result != kNcclSuccess) {
      drop_group();
      return result;
    }
  }
  return end_group();
}
TWIN(ncclCommInitAll);

CALL pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  const ncclResult_t result = add_child(child, comm, color, key, {});
  if (result != kNcclSuccess || *child == nullptr) return result;
  (*child)->error = wanted_of_children("FAKENCCL_SPLIT_REPORTS");
  const ncclResult_t failed = wanted_of_children("FAKENCCL_SPLIT_FAILS");
  if (failed == kNcclSuccess) return kNcclSuccess;
  end_communicator(**child);
  *child = nullptr;
  comm->aborted = true;  // as NCCL has it, from 2.18 to about 2.28
  return failed;
}
TWIN(ncclCommSplit);

CALL pncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* child, ncclConfig_t*,
                     int flags) {
  if (comm == nullptr || excluded == nullptr) return kNcclInvalidArgument;
  if ((flags & kNcclShrinkAbort) != 0) {
    comm->aborted = true;
    wait_until_quiet(*comm);
    comm->aborted = false;
  }
  return add_child(child, comm, 0, comm->rank, {excluded, excluded + count});
}
TWIN(ncclCommShrink);

// For new ranks. Here the old ones take it from their meeting.
CALL pncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  if (comm == nullptr) return kNcclInvalidArgument;
  const ncclResult_t result = pncclGetUniqueId(id);
  if (result == kNcclSuccess) {
    comm->meeting.words->grows_to.store(hash(id->internal, sizeof id->internal),
                                        std::memory_order_release);
  }
  return result;
}
TWIN(ncclCommGetUniqueId);

CALL pncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* grown,
                   ncclConfig_t*) {
  if (comm == nullptr && id == nullptr) return kNcclInvalidArgument;
  if (comm == nullptr) {
    return add_communicator(grown, hash(id->internal, sizeof id->internal), ranks, rank, -1);
  }
  const timespec nap{0, 1'000'000};
  std::uint64_t to = 0;
  while ((to = comm->meeting.words->grows_to.load(std::memory_order_acquire)) == 0) {
    ::nanosleep(&nap, nullptr);
  }
  return add_communicator(grown, to, ranks, comm->rank, comm->device);
}
TWIN(ncclCommGrow);

// Nothing is given back: only whether it may be used is kept.
CALL pncclCommSuspend(ncclComm_t comm, int) {
  if (comm == nullptr || comm->suspended) return kNcclInvalidArgument;
  comm->suspended = true;
  return kNcclSuccess;
}
TWIN(ncclCommSuspend);

CALL pncclCommResume(ncclComm_t comm) {
  if (comm == nullptr || !comm->suspended) return kNcclInvalidArgument;
  comm->suspended = false;
  return kNcclSuccess;
}
TWIN(ncclCommResume);

CALL pncclCommFinalize(ncclComm_t comm) {
  return comm != nullptr ? kNcclSuccess : kNcclInvalidArgument;
}
TWIN(ncclCommFinalize);

CALL pncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return kNcclInvalidArgument;
  end_communicator(*comm);
  return kNcclSuccess;
}
TWIN(ncclCommDestroy);

CALL pncclCommAbort(ncclComm_t comm) { return abort_communicator(comm); }
TWIN(ncclCommAbort);

CALL pncclCommRevoke(ncclComm_t comm, int) { return revoke_communicator(comm); }
TWIN(ncclCommRevoke);

CALL pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (comm == nullptr || error == nullptr) return kNcclInvalidArgument;
  *error = comm->error;
  return kNcclSuccess;
}
TWIN(ncclCommGetAsyncError);

namespace {
ncclResult_t end_registration(ncclComm_t comm, void* handle) {
  auto* registration = static_cast<Registration*>(handle);
  if (registration == nullptr || registration->comm != comm) return kNcclInvalidArgument;
  delete registration;
  --g_registered;
  return kNcclSuccess;
}
}  // namespace

CALL pncclCommRegister(ncclComm_t comm, void*, std::size_t, void** handle) {
  if (comm == nullptr || handle == nullptr) return kNcclInvalidArgument;
  *handle = new Registration{comm};
  ++g_registered;
  return kNcclSuccess;
}
TWIN(ncclCommRegister);

CALL pncclCommDeregister(ncclComm_t comm, void* handle) { return end_registration(comm, handle); }
TWIN(ncclCommDeregister);

CALL pncclCommWindowRegister(ncclComm_t comm, void* buffer, std::size_t, void** window, int) {
  return add_window(comm, buffer, window);
}
TWIN(ncclCommWindowRegister);

CALL pncclCommWindowDeregister(ncclComm_t comm, void* window) {
  return end_registration(comm, window);
}
TWIN(ncclCommWindowDeregister);

// For tests alone.
extern "C" __attribute__((visibility("default"))) int fakencclRegistered() { return g_registered; }
extern "C" __attribute__((visibility("default"))) int fakencclLive() {
  return live_communicators();
}

CALL pncclCommCount(ncclComm_t comm, int* ranks) {
  *ranks = comm->ranks;
  return kNcclSuccess;
}
TWIN(ncclCommCount);

CALL pncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return kNcclSuccess;
}
TWIN(ncclCommUserRank);

CALL pncclCommCuDevice(ncclComm_t comm, int* device) {
  *device = comm->device;
  return kNcclSuccess;
}
TWIN(ncclCommCuDevice);

CALL pncclGroupStart() {
  begin_group();
  return kNcclSuccess;
}
TWIN(ncclGroupStart);

CALL pncclGroupEnd() { return end_group(); }
TWIN(ncclGroupEnd);

CALL pncclGroupSimulateEnd(ncclSimInfo_t*) { return drop_group(); }
TWIN(ncclGroupSimulateEnd);

CALL pncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return reduce(Collective::kAllReduce, from, to, count, type, op, 0, comm, stream);
}
TWIN(ncclAllReduce);

CALL pncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                 int root, ncclComm_t comm, cudaStream_t stream) {
  return reduce(Collective::kReduce, from, to, count, type, op, root, comm, stream);
}
TWIN(ncclReduce);

CALL pncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return reduce(Collective::kReduceScatter, from, to, count, type, op, 0, comm, stream);
}
TWIN(ncclReduceScatter);

CALL pncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                    ncclComm_t comm, cudaStream_t stream) {
  return operate(Collective::kBroadcast, from, to, count, type, root, comm, stream);
}
TWIN(ncclBroadcast);

// By the exported name, as NCCL does it.
CALL pncclBcast(void* buffer, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
TWIN(ncclBcast);

CALL pncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                    ncclComm_t comm, cudaStream_t stream) {
  return operate(Collective::kAllGather, from, to, count, type, 0, comm, stream);
}
TWIN(ncclAllGather);

CALL pncclAlltoAll(const void* from, void* to, std::size_t count, ncclDataType_t type,
                   ncclComm_t comm, cudaStream_t stream) {
  return operate(Collective::kAllToAll, from, to, count, type, 0, comm, stream);
}
TWIN(ncclAlltoAll);

CALL pncclGather(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                 ncclComm_t comm, cudaStream_t stream) {
  return operate(Collective::kGather, from, to, count, type, root, comm, stream);
}
TWIN(ncclGather);

CALL pncclScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                  ncclComm_t comm, cudaStream_t stream) {
  return operate(Collective::kScatter, from, to, count, type, root, comm, stream);
}
TWIN(ncclScatter);

CALL pncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
               cudaStream_t stream) {
  return operate(Collective::kSend, from, nullptr, count, type, peer, comm, stream);
}
TWIN(ncclSend);

CALL pncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
               cudaStream_t stream) {
  return operate(Collective::kReceive, nullptr, to, count, type, peer, comm, stream);
}
TWIN(ncclRecv);
