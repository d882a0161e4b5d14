#include "work.h"

#include <string.h>

#include <type_traits>

#include "memory.h"
#include "modules.h"

namespace fakecuda {
namespace {

constexpr double kHostBytesPerNs = 55.0, kDeviceBytesPerNs = 1500.0;
constexpr std::uint64_t kCopyStartNs = 2 * kUs, kSetStartNs = 2 * kUs;

template <typename Word>
bool compares(CUdeviceptr address, Word want, unsigned how) {
  const Word now = __atomic_load_n(reinterpret_cast<const Word*>(address), __ATOMIC_ACQUIRE);
  switch (how) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<Word>>(now - want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == want;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & want) != 0;
    default:
      return static_cast<Word>(~(now | want)) != 0;
  }
}

// A word that is not there any more: a GPU's context would fail, here the stream just goes on.
bool satisfied(const CUstreamBatchMemOpParams& op, int gpu) {
  const bool is_32 = op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32;
  const Touch touch(gpu, {{op.waitValue.address, is_32 ? 4u : 8u, false}});
  if (!touch) return true;
  const unsigned how = op.waitValue.flags & 3u;
  return is_32 ? compares<std::uint32_t>(op.waitValue.address, op.waitValue.value, how)
               : compares<std::uint64_t>(op.waitValue.address, op.waitValue.value64, how);
}

void write_value(const CUstreamBatchMemOpParams& op, int gpu) {
  const bool is_32 = op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
  const Touch touch(gpu, {{op.writeValue.address, is_32 ? 4u : 8u, true}});
  if (!touch) return;
  if (is_32) {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(op.writeValue.address), op.writeValue.value,
                     __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(op.writeValue.address), op.writeValue.value64,
                     __ATOMIC_RELEASE);
  }
}

OpRef memory_op(const CUstreamBatchMemOpParams& params, int gpu) {
  auto op = std::make_shared<Op>();
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      op->where = Where::kPoll;
      op->condition = [params, gpu] { return satisfied(params, gpu); };
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      op->effect = [params, gpu] { write_value(params, gpu); };
      break;
    default:
      break;
  }
  return op;
}

bool multiply_add(std::size_t a, std::size_t b, std::size_t c, std::size_t* out) {
  return !__builtin_mul_overflow(a, b, out) && !__builtin_add_overflow(*out, c, out);
}

// False: it is larger than any memory.
bool span_of(const CUDA_MEMSET_NODE_PARAMS& p, Span* span) {
  std::size_t row = 0;
  *span = {p.dst, 0, true};
  if (p.width == 0 || p.height == 0) return true;
  return multiply_add(p.width, p.elementSize, 0, &row) &&
         multiply_add(p.height - 1, p.pitch, row, &span->bytes);
}

template <class T>
void set_rows_of(const CUDA_MEMSET_NODE_PARAMS& p) {
  for (std::size_t row = 0; row < p.height; ++row) {
    auto* cell = reinterpret_cast<T*>(p.dst + row * p.pitch);
    for (std::size_t i = 0; i < p.width; ++i) cell[i] = static_cast<T>(p.value);
  }
}

CUresult set_rows(const CUDA_MEMSET_NODE_PARAMS& params, int gpu) {
  Span span;
  Touch touch(gpu);
  if (!span_of(params, &span) || !touch.add(span)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (params.elementSize == 1) set_rows_of<std::uint8_t>(params);
  if (params.elementSize == 2) set_rows_of<std::uint16_t>(params);
  if (params.elementSize == 4) set_rows_of<std::uint32_t>(params);
  return CUDA_SUCCESS;
}

}  // namespace

bool set_fits(const CUDA_MEMSET_NODE_PARAMS& params) {
  Span span;
  return span_of(params, &span) && Ranges::all().contain(span);
}

CUresult put(CUstream handle, const Work& work, OpRef* last) {
  std::unique_lock held(ops_lock());
  Stream* stream = nullptr;
  if (const CUresult status = find_stream(handle, &stream)) return status;
  // The lock of the context comes before the lock of the ops.
  held.unlock();
  std::lock_guard api(stream->context->api);
  held.lock();
  if (const CUresult fault = stream->context->fault) return fault;
  if (const CUresult status = check_capture(stream)) return status;
  if (stream->capture) return add_to_capture(stream, work);
  for (const OpRef& op : work.make(stream)) {
    enqueue(stream, op, held);
    if (last) *last = op;
  }
  return CUDA_SUCCESS;
}

Work kernel_work(std::shared_ptr<Launch> launch) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_KERNEL;
  work.launch = launch;
  work.make = [launch](Stream* stream) {
    OpRef op;
    if (const auto run = begin_long(*launch, stream->context->gpu)) {
      op = engine_op(stream, kCompute, kernel_cost_ns(*launch), [run] { return result_of(*run); });
      op->condition = [run] { return poll_long(*run); };
    } else {
      op = engine_op(stream, kCompute, kernel_cost_ns(*launch),
                     [launch, gpu = stream->context->gpu] { return run_kernel(*launch, gpu); });
    }
    return std::vector<OpRef>{op};
  };
  return work;
}

Work host_work(CUhostFn function, void* data) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_HOST;
  work.host = {function, data};
  work.make = [function, data](Stream*) {
    auto op = std::make_shared<Op>();
    op->where = Where::kHost;
    op->effect = [function, data] { function(data); };
    return std::vector<OpRef>{op};
  };
  return work;
}

Work memory_op_work(const CUstreamBatchMemOpParams* ops, unsigned count) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  work.memory_ops.assign(ops, ops + count);
  work.make = [list = work.memory_ops](Stream* stream) {
    std::vector<OpRef> made;
    for (const auto& params : list) made.push_back(memory_op(params, stream->context->gpu));
    return made;
  };
  return work;
}

Work copy_work(const CUDA_MEMCPY3D& params, Engine engine, std::size_t bytes,
               std::function<CUresult(int gpu)> effect) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  work.copy = params;
  const double speed = engine == kCopyAcross ? kDeviceBytesPerNs : kHostBytesPerNs;
  const std::uint64_t cost =
      kCopyStartNs + static_cast<std::uint64_t>(static_cast<double>(bytes) / speed);
  work.make = [engine, cost, effect = std::move(effect)](Stream* stream) {
    return std::vector<OpRef>{engine_op(
        stream, engine, cost, [effect, gpu = stream->context->gpu] { return effect(gpu); })};
  };
  return work;
}

Work set_work(const CUDA_MEMSET_NODE_PARAMS& params) {
  Work work;
  work.type = CU_GRAPH_NODE_TYPE_MEMSET;
  work.set = params;
  work.make = [params](Stream* stream) {
    const auto bytes = static_cast<double>(params.elementSize * params.width * params.height);
    const std::uint64_t cost = kSetStartNs + static_cast<std::uint64_t>(bytes / kDeviceBytesPerNs);
    return std::vector<OpRef>{
        engine_op(stream, kCompute, cost,
                  [params, gpu = stream->context->gpu] { return set_rows(params, gpu); })};
  };
  return work;
}

}  // namespace fakecuda
