// Wait and write values on streams, one at a time and in batches.
#include "memory.h"
#include "work.h"

using namespace fakecuda;

namespace {

bool addressable(CUdeviceptr address, std::size_t alignment) {
  Range range;
  return address % alignment == 0 && Ranges::all().find(address, &range);
}

bool valid(const CUstreamBatchMemOpParams& op) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return addressable(op.waitValue.address, 4);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return addressable(op.waitValue.address, 8);
    // A write without a memory barrier is refused, as measured.
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return op.writeValue.flags == 0 && addressable(op.writeValue.address, 4);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return op.writeValue.flags == 0 && addressable(op.writeValue.address, 8);
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    case CU_STREAM_MEM_OP_BARRIER:
      return true;
    default:
      return false;
  }
}

CUresult batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams* ops,
               unsigned flags) {
  FAKE_NEED_CONTEXT(context);
  if (!ops || count == 0 || count > 256 || flags) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    if (!valid(ops[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return put(stream, memory_op_work(ops, count));
}

// One operation; `part` of the parameters is the one that it uses.
template <auto part>
CUresult one(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, std::uint64_t value,
             unsigned flags) {
  CUstreamBatchMemOpParams op{};
  op.operation = type;
  (op.*part).address = address;
  (op.*part).value64 = value;
  (op.*part).flags = flags;
  return batch(stream, 1, &op, 0);
}
constexpr auto wait_value = one<&CUstreamBatchMemOpParams::waitValue>;
constexpr auto write_value = one<&CUstreamBatchMemOpParams::writeValue>;

}  // namespace

extern "C" {

CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  FAKE_MAY_FAIL();
  return wait_value(s, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult cuStreamWaitValue64_v2(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  FAKE_MAY_FAIL();
  return wait_value(s, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult cuStreamWriteValue32_v2(CUstream s, CUdeviceptr address, cuuint32_t value,
                                 unsigned flags) {
  FAKE_MAY_FAIL();
  return write_value(s, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr address, cuuint64_t value,
                                 unsigned flags) {
  FAKE_MAY_FAIL();
  return write_value(s, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult cuStreamBatchMemOp_v2(CUstream s, unsigned count, CUstreamBatchMemOpParams* ops,
                               unsigned flags) {
  FAKE_MAY_FAIL();
  return batch(s, count, ops, flags);
}

CUresult cuStreamWaitValue32(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return wait_value(s, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}
CUresult cuStreamWaitValue64(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return wait_value(s, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}
CUresult cuStreamWriteValue32(CUstream s, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  return write_value(s, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}
CUresult cuStreamWriteValue64(CUstream s, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  return write_value(s, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
CUresult cuStreamBatchMemOp(CUstream s, unsigned count, CUstreamBatchMemOpParams* ops,
                            unsigned flags) {
  return batch(s, count, ops, flags);
}

}  // extern "C"
