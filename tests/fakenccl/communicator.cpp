#include "communicator.h"

#include <string.h>
#include <time.h>

#include "shim/nccl/square_norm.h"
#include "tests/support/half.h"

namespace fakenccl {

std::atomic<int> g_registered{0};

namespace {

namespace norm = switchyard::shim::nccl::square_norm;

constexpr char kPtx[] = R"(
.version 7.0
.target sm_70
.address_size 64
.visible .entry fakecuda_foreign(.param .u64 kernel)
{
  ret;
}
)";

std::atomic<int> g_live{0};
std::atomic<int> g_running{0};

// On the heap for good: a graph may run it at any time.
struct Kernel : fakecuda::ForeignKernel {
  ncclComm* comm = nullptr;
  bool in_graph = false;
  std::uint64_t number = 0;  // among those that are in no graph
  std::vector<Operation> operations;
  std::vector<fakecuda::ForeignSpan> touched;
};

struct Run {
  ncclComm* comm;
  const Kernel* kernel;
  const std::vector<Operation>* operations;
  bool started = false;
  std::vector<char> done;
  bool contributed = false;  // to the first collective that is not done
  std::vector<char> sent;
  std::vector<int> taken;
};

std::size_t size_of(const Operation& operation) {
  return operation.count * nccl_type_bytes(operation.type);
}

unsigned char* board(const ncclComm& comm, int rank) {
  return comm.meeting.data[rank][comm.next % 2];
}

template <typename Number>
void add(void* to, const unsigned char* more, std::size_t count) {
  auto* sum = static_cast<Number*>(to);
  const auto* values = reinterpret_cast<const Number*>(more);
  for (std::size_t i = 0; i < count; ++i) sum[i] = static_cast<Number>(sum[i] + values[i]);
}

template <typename Read, typename Write>
void add(void* to, const unsigned char* more, std::size_t count, Read read, Write write) {
  auto* sum = static_cast<std::uint16_t*>(to);
  for (std::size_t i = 0; i < count; ++i) sum[i] = write(read(to, i) + read(more, i));
}

float half_at(const void* from, std::size_t at) {
  return norm::number_at(from, at, norm::Type::kFloat16);
}
float bfloat_at(const void* from, std::size_t at) {
  return norm::number_at(from, at, norm::Type::kBfloat16);
}

void add(void* to, const unsigned char* more, std::size_t count, ncclDataType_t type) {
  switch (type) {
    case kNcclFloat32:
      return add<float>(to, more, count);
    case kNcclFloat64:
      return add<double>(to, more, count);
    case kNcclInt64:
    case kNcclUint64:
      return add<std::uint64_t>(to, more, count);
    case kNcclInt32:
    case kNcclUint32:
      return add<std::uint32_t>(to, more, count);
    case kNcclFloat16:
      return add(to, more, count, half_at, switchyard::half::half_of);
    case kNcclBfloat16:
      return add(to, more, count, bfloat_at, switchyard::half::bfloat_of);
    default:
      return add<std::uint8_t>(to, more, count);
  }
}

// The sum over all ranks of `count` elements from `offset` on.
void reduce(const ncclComm& comm, const Operation& operation, std::size_t offset) {
  memcpy(operation.to, board(comm, 0) + offset, size_of(operation));
  for (int rank = 1; rank < comm.ranks; ++rank) {
    add(operation.to, board(comm, rank) + offset, operation.count, operation.type);
  }
  if (!operation.average) return;
  auto* numbers = static_cast<float*>(operation.to);
  for (std::size_t i = 0; i < operation.count; ++i) numbers[i] /= static_cast<float>(comm.ranks);
}

// Each rank's part, one behind the other.
void gather(const ncclComm& comm, const Operation& operation, std::size_t offset) {
  const std::size_t part = size_of(operation);
  for (int rank = 0; rank < comm.ranks; ++rank) {
    memcpy(static_cast<unsigned char*>(operation.to) + static_cast<std::size_t>(rank) * part,
           board(comm, rank) + offset, part);
  }
}

// Everybody is in: the result on this rank.
void conclude(const ncclComm& comm, const Operation& operation) {
  const std::size_t mine = static_cast<std::size_t>(comm.rank) * size_of(operation);
  const bool root = comm.rank == operation.peer;
  switch (operation.kind) {
    case Collective::kAllReduce:
      return reduce(comm, operation, 0);
    case Collective::kReduce:
      return root ? reduce(comm, operation, 0) : void();
    case Collective::kReduceScatter:
      return reduce(comm, operation, mine);
    case Collective::kAllGather:
      return gather(comm, operation, 0);
    case Collective::kGather:
      return root ? gather(comm, operation, 0) : void();
    case Collective::kAllToAll:
      return gather(comm, operation, mine);
    case Collective::kBroadcast:
      memcpy(operation.to, board(comm, operation.peer), size_of(operation));
      return;
    default:  // kScatter
      memcpy(operation.to, board(comm, operation.peer) + mine, size_of(operation));
      return;
  }
}

bool poll_collective(Run& run, const Operation& operation) {
  ncclComm& comm = *run.comm;
  if (!run.contributed) {
    const std::size_t bytes = bytes_read(comm, operation);
    if (bytes != 0) memcpy(board(comm, comm.rank), operation.from, bytes);
    comm.meeting.rank[comm.rank].arrived.store(comm.next + 1, std::memory_order_release);
    run.contributed = true;
  }
  for (int rank = 0; rank < comm.ranks; ++rank) {
    if (comm.meeting.rank[rank].arrived.load(std::memory_order_acquire) <= comm.next) return false;
  }
  conclude(comm, operation);
  ++comm.next;
  run.contributed = false;
  return true;
}

bool poll_send(Run& run, std::size_t at, const Operation& operation) {
  auto& channel = run.comm->meeting.channel(run.comm->rank, operation.peer);
  const std::uint64_t received = channel.received.load(std::memory_order_acquire);
  if (!run.sent[at]) {
    if (channel.sent.load(std::memory_order_relaxed) != received) return false;
    memcpy(channel.data, operation.from, size_of(operation));
    channel.sent.fetch_add(1, std::memory_order_release);
    run.sent[at] = 1;
    return false;
  }
  return channel.sent.load(std::memory_order_relaxed) == received;
}

bool poll_receive(Run& run, const Operation& operation) {
  auto& channel = run.comm->meeting.channel(operation.peer, run.comm->rank);
  const std::uint64_t received = channel.received.load(std::memory_order_relaxed);
  if (channel.sent.load(std::memory_order_acquire) == received) return false;
  memcpy(operation.to, channel.data, size_of(operation));
  channel.received.store(received + 1, std::memory_order_release);
  return true;
}

bool poll_put(const Run& run, const Operation& operation) {
  auto& box = run.comm->meeting.mailbox(run.comm->rank, operation.peer);
  const std::uint64_t put = box.put.load(std::memory_order_relaxed);
  if (put != box.taken.load(std::memory_order_acquire)) return false;
  box.bytes = size_of(operation);
  box.window = operation.window;
  box.offset = operation.offset;
  if (box.bytes != 0) memcpy(box.data, operation.from, box.bytes);
  box.put.store(put + 1, std::memory_order_release);
  return true;
}

// `taken`: signals that this operation has had.
bool poll_wait(const Run& run, const Operation& operation, int& taken) {
  auto& box = run.comm->meeting.mailbox(operation.peer, run.comm->rank);
  const std::uint64_t had = box.taken.load(std::memory_order_relaxed);
  if (taken < operation.signals && box.put.load(std::memory_order_acquire) != had) {
    if (box.window != 0) {
      auto* memory = static_cast<unsigned char*>(run.comm->windows[box.window - 1]);
      memcpy(memory + box.offset, box.data, box.bytes);
    }
    box.taken.store(had + 1, std::memory_order_release);
    ++taken;
  }
  return taken == operation.signals;
}

void* begin(fakecuda::ForeignKernel* foreign) {
  const auto* kernel = static_cast<const Kernel*>(foreign);
  auto* run = new Run{kernel->comm, kernel, &kernel->operations, false, {}, false, {}, {}};
  ++g_running;
  run->done.resize(kernel->operations.size());
  run->sent.resize(kernel->operations.size());
  run->taken.resize(kernel->operations.size());
  return run;
}

// Whether those before it have ended.
bool start(Run& run) {
  ncclComm& comm = *run.comm;
  if (run.started || comm.aborted.load(std::memory_order_relaxed)) return true;
  if (comm.running || (!run.kernel->in_graph && run.kernel->number != comm.ended)) return false;
  return run.started = comm.running = true;
}

void end(Run& run) {
  if (run.started) run.comm->running = false;
  if (!run.kernel->in_graph) ++run.comm->ended;
  --g_running;
  delete &run;
}

bool poll(void* at) {
  auto& run = *static_cast<Run*>(at);
  if (!start(run)) return false;
  bool all = true;
  bool collective_waits = false;
  for (std::size_t i = 0; i < run.done.size(); ++i) {
    if (run.done[i]) continue;
    const Operation& operation = (*run.operations)[i];
    if (run.comm->aborted.load(std::memory_order_relaxed)) {
      run.done[i] = 1;
    } else if (operation.signals != 0) {
      run.done[i] = operation.kind == Collective::kSend ? poll_put(run, operation)
                                                        : poll_wait(run, operation, run.taken[i]);
    } else if (operation.kind == Collective::kSend) {
      run.done[i] = poll_send(run, i, operation);
    } else if (operation.kind == Collective::kReceive) {
      run.done[i] = poll_receive(run, operation);
    } else if (!collective_waits) {
      run.done[i] = poll_collective(run, operation);
      collective_waits = !run.done[i];
    }
    all = all && run.done[i];
  }
  if (all) end(run);
  return all;
}

}  // namespace

void end_communicator(ncclComm&) { --g_live; }
int live_communicators() { return g_live; }
bool all_quiet() { return g_running == 0; }
void wait_until_quiet(const ncclComm& comm) {
  const timespec nap{0, 1'000'000};
  while (comm.ended != comm.queued) ::nanosleep(&nap, nullptr);
}

const Cuda* cuda() {
  static Cuda calls;
  static const bool found =
      calls.fill(switchyard::cuda::in_library(switchyard::cuda::open_library())) == nullptr;
  return found ? &calls : nullptr;
}

std::size_t bytes_read(const ncclComm& comm, const Operation& operation) {
  const std::size_t part = size_of(operation);
  const auto all = part * static_cast<std::size_t>(comm.ranks);
  switch (operation.kind) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return all;
    case Collective::kBroadcast:
      return comm.rank == operation.peer ? part : 0;
    case Collective::kScatter:
      return comm.rank == operation.peer ? all : 0;
    case Collective::kReceive:
      return 0;
    default:
      return part;
  }
}

std::size_t bytes_written(const ncclComm& comm, const Operation& operation) {
  const std::size_t part = size_of(operation);
  const auto all = part * static_cast<std::size_t>(comm.ranks);
  switch (operation.kind) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return all;
    case Collective::kReduce:
      return comm.rank == operation.peer ? part : 0;
    case Collective::kGather:
      return comm.rank == operation.peer ? all : 0;
    case Collective::kSend:
      return 0;
    default:
      return part;
  }
}

ncclComm_t make_communicator(int ranks, int rank, int device) {
  if (cuda() == nullptr || cuda()->cuInit(0) != CUDA_SUCCESS) return nullptr;
  CUdevice current = 0;
  if (device < 0) {
    if (cuda()->cuCtxGetDevice(&current) != CUDA_SUCCESS) return nullptr;
    device = current;
  }
  auto* comm = new ncclComm;
  comm->ranks = ranks;
  comm->rank = rank;
  comm->device = device;
  CUdevice handle = 0;
  CUmodule module = nullptr;
  CUcontext popped = nullptr;
  const bool made =
      cuda()->cuDeviceGet(&handle, device) == CUDA_SUCCESS &&
      cuda()->cuDevicePrimaryCtxRetain(&comm->context, handle) == CUDA_SUCCESS &&
      cuda()->cuCtxPushCurrent(comm->context) == CUDA_SUCCESS &&
      cuda()->cuModuleLoadData(&module, kPtx) == CUDA_SUCCESS &&
      cuda()->cuModuleGetFunction(&comm->kernel, module, "fakecuda_foreign") == CUDA_SUCCESS &&
      cuda()->cuCtxPopCurrent(&popped) == CUDA_SUCCESS;
  if (made) {
    ++g_live;
    return comm;
  }
  delete comm;
  return nullptr;
}

bool join(ncclComm& comm, std::uint64_t id) {
  comm.id = id;
  comm.meeting = open_meeting(id, comm.ranks);
  if (comm.meeting.words == nullptr) return false;
  comm.meeting.words->joined.fetch_add(1);
  return true;
}

void wait_for_all(ncclComm& comm) {
  const timespec nap{0, 1'000'000};
  while (comm.meeting.words->joined.load() < static_cast<std::uint32_t>(comm.ranks)) {
    ::nanosleep(&nap, nullptr);
  }
  close_door(comm.id);
}

ncclResult_t launch(ncclComm& comm, CUstream stream, std::vector<Operation> operations) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  if (cuda()->cuStreamIsCapturing(stream, &capture) != CUDA_SUCCESS) return 1;
  auto* kernel = new Kernel;  // never freed (above)
  kernel->comm = &comm;
  kernel->in_graph = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  if (!kernel->in_graph) kernel->number = comm.queued++;
  for (const Operation& operation : operations) {
    kernel->touched.push_back(
        {reinterpret_cast<std::uintptr_t>(operation.from), bytes_read(comm, operation)});
    kernel->touched.push_back(
        {reinterpret_cast<std::uintptr_t>(operation.to), bytes_written(comm, operation)});
  }
  kernel->operations = std::move(operations);
  kernel->begin = begin;
  kernel->poll = poll;
  kernel->spans = kernel->touched.data();
  kernel->span_count = kernel->touched.size();
  auto address = reinterpret_cast<std::uint64_t>(static_cast<fakecuda::ForeignKernel*>(kernel));
  void* parameters[] = {&address};
  CUcontext popped = nullptr;
  if (cuda()->cuCtxPushCurrent(comm.context) != CUDA_SUCCESS) return kNcclInternalError;
  const CUresult result =
      cuda()->cuLaunchKernel(comm.kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  cuda()->cuCtxPopCurrent(&popped);
  if (result != CUDA_SUCCESS && !kernel->in_graph) --comm.queued;
  return result == CUDA_SUCCESS ? kNcclSuccess : 1;
}

}  // namespace fakenccl
