// The operations that NCCL 2.29 to 2.31 added, under both names of each.
#include "calls.h"

using namespace fakenccl;

// With a configuration, which changes nothing here.
CALL pncclAllReduceConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                          ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                          const ncclCollConfig_t*) {
  return reduce(Collective::kAllReduce, from, to, count, type, op, 0, comm, stream);
}
TWIN(ncclAllReduceConfig);

CALL pncclReduceConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                       ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                       const ncclCollConfig_t*) {
  return reduce(Collective::kReduce, from, to, count, type, op, root, comm, stream);
}
TWIN(ncclReduceConfig);

CALL pncclReduceScatterConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                              ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                              const ncclCollConfig_t*) {
  return reduce(Collective::kReduceScatter, from, to, count, type, op, 0, comm, stream);
}
TWIN(ncclReduceScatterConfig);

CALL pncclBroadcastConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                          int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t*) {
  return operate(Collective::kBroadcast, from, to, count, type, root, comm, stream);
}
TWIN(ncclBroadcastConfig);

CALL pncclAllGatherConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t*) {
  return operate(Collective::kAllGather, from, to, count, type, 0, comm, stream);
}
TWIN(ncclAllGatherConfig);

CALL pncclAlltoAllConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                         ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t*) {
  return operate(Collective::kAllToAll, from, to, count, type, 0, comm, stream);
}
TWIN(ncclAlltoAllConfig);

CALL pncclGatherConfig(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t*) {
  return operate(Collective::kGather, from, to, count, type, root, comm, stream);
}
TWIN(ncclGatherConfig);

CALL pncclScatterConfig(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t*) {
  return operate(Collective::kScatter, from, to, count, type, root, comm, stream);
}
TWIN(ncclScatterConfig);

CALL pncclPutSignal(const void* from, std::size_t count, ncclDataType_t type, int peer,
                    void* window, std::size_t offset, int, int, unsigned, ncclComm_t comm,
                    cudaStream_t stream) {
  const auto* there = static_cast<const Registration*>(window);
  if (there == nullptr || there->comm != comm) return kNcclInvalidArgument;
  Operation operation{Collective::kSend, from, nullptr, count, type, peer};
  operation.signals = 1;
  operation.window = there->window;
  operation.offset = offset;
  return add_operation(comm, stream, operation);
}
TWIN(ncclPutSignal);

CALL pncclSignal(int peer, int, int, unsigned, ncclComm_t comm, cudaStream_t stream) {
  Operation operation{Collective::kSend, nullptr, nullptr, 0, kNcclInt8, peer};
  operation.signals = 1;
  return add_operation(comm, stream, operation);
}
TWIN(ncclSignal);

CALL pncclWaitSignal(int count, ncclWaitSignalDesc_t* awaited, ncclComm_t comm,
                     cudaStream_t stream) {
  if (count < 1 || awaited == nullptr) return kNcclInvalidArgument;
  begin_group();
  ncclResult_t result = kNcclSuccess;
  for (int i = 0; i < count && result == kNcclSuccess; ++i) {
    Operation operation{Collective::kReceive, nullptr, nullptr, 0, kNcclInt8, awaited[i].peer};
    operation.signals = awaited[i].opCnt;
    result = add_operation(comm, stream, operation);
  }
  const ncclResult_t ended = end_group();
  return result != kNcclSuccess ? result : ended;
}
TWIN(ncclWaitSignal);
