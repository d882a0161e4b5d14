#include "group.h"

namespace fakenccl {
namespace {

struct Put {
  ncclComm_t comm;
  CUstream stream;
  std::vector<Operation> operations;
};

struct Group {
  unsigned depth = 0;
  std::vector<std::pair<ncclComm_t, std::uint64_t>> births;
  std::vector<Put> put;
};

thread_local Group t_group;

ncclResult_t conclude(Group& group) {
  for (const auto& [comm, id] : group.births) {
    if (!join(*comm, id)) return kNcclInternalError;
  }
  for (const auto& [comm, id] : group.births) wait_for_all(*comm);
  for (Put& put : group.put) {
    if (const auto result = launch(*put.comm, put.stream, std::move(put.operations))) return result;
  }
  return kNcclSuccess;
}

bool fits(const ncclComm& comm, const Operation& operation) {
  if (operation.kind == Collective::kSend || operation.kind == Collective::kReceive) {
    return operation.peer >= 0 && operation.peer < comm.ranks &&
           operation.count * nccl_type_bytes(operation.type) <= kMostSent;
  }
  return bytes_read(comm, operation) <= kMostBytes && bytes_written(comm, operation) <= kMostBytes;
}

}  // namespace

void begin_group() { ++t_group.depth; }

ncclResult_t end_group() {
  if (t_group.depth == 0) return kNcclInvalidUsage;
  if (--t_group.depth != 0) return kNcclSuccess;
  Group group;
  std::swap(group, t_group);
  return conclude(group);
}

ncclResult_t drop_group() {
  if (t_group.depth == 0) return kNcclInvalidUsage;
  if (--t_group.depth == 0) t_group = {};
  return kNcclSuccess;
}

ncclResult_t add_communicator(ncclComm_t* out, std::uint64_t id, int ranks, int rank, int device) {
  if (out == nullptr || ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) {
    return kNcclInvalidArgument;
  }
  begin_group();
  *out = make_communicator(ranks, rank, device);
  if (*out != nullptr) t_group.births.emplace_back(*out, id);
  const ncclResult_t result = end_group();
  return *out != nullptr ? result : 1;
}

ncclResult_t add_operation(ncclComm_t comm, CUstream stream, const Operation& operation) {
  if (comm == nullptr || !fits(*comm, operation)) return kNcclInvalidArgument;
  begin_group();
  auto& put = t_group.put;
  if (put.empty() || put.back().comm != comm || put.back().stream != stream) {
    put.push_back({comm, stream, {}});
  }
  put.back().operations.push_back(operation);
  return end_group();
}

}  // namespace fakenccl
