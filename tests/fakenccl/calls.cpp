// The API, under both names of each call.
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>

#include "group.h"

using namespace fakenccl;

namespace {

std::uint64_t hash(const void* bytes, std::size_t count, std::uint64_t seed) {
  std::uint64_t out = seed ^ 0xcbf29ce484222325u;
  for (std::size_t i = 0; i < count; ++i) {
    out = (out ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
  }
  return out;
}

// Says its colour and key to the others, waits for them, and tells its place in the child.
struct Child {
  std::uint64_t id = 0;
  int rank = 0;
  int ranks = 0;
};
Child agree(ncclComm& comm, int color, int key, const std::vector<int>& out) {
  Meeting& meeting = *comm.meeting;
  const std::uint64_t number = ++comm.children;
  Meeting::Rank& mine = meeting.rank[comm.rank];
  mine.color = color;
  mine.key = key;
  mine.children.store(number, std::memory_order_release);
  const auto is_out = [&](int rank) {
    return std::find(out.begin(), out.end(), rank) != out.end();
  };
  Child child;
  const timespec nap{0, 1'000'000};
  for (int rank = 0; rank < comm.ranks; ++rank) {
    if (is_out(rank)) continue;
    const Meeting::Rank& other = meeting.rank[rank];
    while (other.children.load(std::memory_order_acquire) < number) ::nanosleep(&nap, nullptr);
    if (other.color != color) continue;
    ++child.ranks;
    const bool before = other.key != key ? other.key < key : rank < comm.rank;
    child.rank += before ? 1 : 0;
  }
  const std::uint64_t words[] = {comm.id, number, static_cast<std::uint64_t>(color), out.size()};
  child.id = hash(words, sizeof words, 0);
  return child;
}

ncclResult_t operate(Collective kind, const void* from, void* to, std::size_t count,
                     ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream) {
  return add_operation(comm, stream, {kind, from, to, count, type, peer});
}

ncclResult_t reduce(Collective kind, const void* from, void* to, std::size_t count,
                    ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
                    CUstream stream) {
  const bool average = op == kNcclAvg && type == kNcclFloat32;
  if (op != kNcclSum && !average) return kNcclInvalidArgument;
  return add_operation(comm, stream, {kind, from, to, count, type, root, average});
}

}  // namespace

// The second name of a call, as NCCL has it: the first may be replaced.
#define TWIN(name) \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) decltype(name) name
#define CALL extern "C" __attribute__((visibility("default"))) ncclResult_t

CALL pncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return kNcclInvalidArgument;
  return ::getrandom(id->internal, sizeof id->internal, 0) == sizeof id->internal ? kNcclSuccess
                                                                                  : 2;
}
TWIN(ncclGetUniqueId);

CALL pncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return add_communicator(comm, hash(id.internal, sizeof id.internal, 0), ranks, rank, -1);
}
TWIN(ncclCommInitRank);

CALL pncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                             ncclConfig_t*) {
  return add_communicator(comm, hash(id.internal, sizeof id.internal, 0), ranks, rank, -1);
}
TWIN(ncclCommInitRankConfig);

CALL pncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int ids, ncclUniqueId* id,
                               ncclConfig_t*) {
  if (ids < 1 || id == nullptr) return kNcclInvalidArgument;
  const auto bytes = sizeof(ncclUniqueId) * static_cast<std::size_t>(ids);
  return add_communicator(comm, hash(id, bytes, 0), ranks, rank, -1);
}
TWIN(ncclCommInitRankScalable);

CALL pncclCommInitAll(ncclComm_t* comms, int devices, const int* device) {
  ncclUniqueId id;
  if (const ncclResult_t result = pncclGetUniqueId(&id)) return result;
  begin_group();
  for (int rank = 0; rank < devices; ++rank) {
    const int at = device != nullptr ? device[rank] : rank;
    const auto result =
        add_communicator(&comms[rank], hash(id.internal, sizeof id.internal, 0), devices, rank, at);
    if (result != kNcclSuccess) {
      drop_group();
      return result;
    }
  }
  return end_group();
}
TWIN(ncclCommInitAll);

CALL pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  if (comm == nullptr || child == nullptr) return kNcclInvalidArgument;
  *child = nullptr;
  const Child place = agree(*comm, color, key, {});
  if (color == kNcclSplitNoColor) return kNcclSuccess;
  return add_communicator(child, place.id, place.ranks, place.rank, comm->device);
}
TWIN(ncclCommSplit);

CALL pncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* child, ncclConfig_t*,
                     int) {
  if (comm == nullptr || child == nullptr || excluded == nullptr) return kNcclInvalidArgument;
  const Child place = agree(*comm, 0, comm->rank, {excluded, excluded + count});
  return add_communicator(child, place.id, place.ranks, place.rank, comm->device);
}
TWIN(ncclCommShrink);

CALL pncclCommFinalize(ncclComm_t comm) {
  return comm != nullptr ? kNcclSuccess : kNcclInvalidArgument;
}
TWIN(ncclCommFinalize);

// The object stays: a kernel of it may still be on the GPU.
CALL pncclCommDestroy(ncclComm_t comm) {
  return comm != nullptr ? kNcclSuccess : kNcclInvalidArgument;
}
TWIN(ncclCommDestroy);

CALL pncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return kNcclInvalidArgument;
  comm->aborted = true;
  return kNcclSuccess;
}
TWIN(ncclCommAbort);

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
