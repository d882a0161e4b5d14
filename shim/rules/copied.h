// How many bytes a copy has moved, as far as its call says so, and which way.
//
// Concept. Bytes that go over a link (between host and GPU, or two GPUs) are counted apart from
// those that stay in one GPU's memory. The first are some fifty times as dear. A row of calls.def
// says how its call is read:
//
//     kLink        the argument before the stream, or the last, is the size: ...HtoD, Peer; by link
//     kDevice      likewise, inside the GPU: ...DtoD, ...DtoA
//     kBox         a CUDA_MEMCPY2D or 3D, by its kinds of memory; one of 3D_PEER: over a link
//     kBatch       the sum of its sizes; over a link
//     kBoxes       the sum of its boxes; over a link. Of arrays the size isn't known, nor counted
//     kUncounted   sets; prefetches and decompressions, which don't say what they move
//
// An address doesn't say where its memory is, and asking the driver would cost more than the copy's
// own call. So a copy by addresses alone (cuMemcpy, a batch, unified memory in a box) counts for
// the link. cuMemcpyDtoD between two GPUs counts for the device.
//
// The call is read after the driver has accepted it: what it refused may be unreadable, and moves
// nothing. The node that a copy into a capture becomes isn't counted, nor are copies by kernels.
//
// Threading: any thread.
#pragma once

#include "shim/capture.h"
#include "shim/rules/arguments.h"
#include "switchyard/abi.h"

namespace switchyard::shim {

enum class Copied : std::uint8_t { kUncounted, kLink, kDevice, kBox, kBatch, kBoxes };

namespace rules {

struct CopiedBytes {
  std::uint64_t link = 0, device = 0;
};

inline bool in_device(CUmemorytype kind) {
  return kind == CU_MEMORYTYPE_DEVICE || kind == CU_MEMORYTYPE_ARRAY;
}

// Of any version of CUDA_MEMCPY2D, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER.
template <typename Box, typename... Rest>
CopiedBytes of_box(const Box* box, Rest...) {
  std::uint64_t bytes = std::uint64_t{box->WidthInBytes} * box->Height;
  if constexpr (requires { box->Depth; }) bytes *= box->Depth;
  constexpr bool kBetweenGpus = requires { box->srcContext; };
  if (kBetweenGpus || !in_device(box->srcMemoryType) || !in_device(box->dstMemoryType)) {
    return {bytes, 0};
  }
  return {0, bytes};
}

template <typename... Rest>
CopiedBytes of_batch(const CUdeviceptr*, const CUdeviceptr*, const std::size_t* sizes,
                     std::size_t count, Rest...) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += sizes[i];
  return {bytes, 0};
}

#if CUDA_VERSION >= 12080
// Between pointers an element is a byte.
template <typename... Rest>
CopiedBytes of_boxes(std::size_t count, const CUDA_MEMCPY3D_BATCH_OP* boxes, Rest...) {
  std::uint64_t bytes = 0;
  for (const auto* box = boxes; box != boxes + count; ++box) {
    if (box->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER ||
        box->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER) {
      continue;
    }
    bytes += std::uint64_t{box->extent.width} * box->extent.height * box->extent.depth;
  }
  return {bytes, 0};
}
#endif

// pre: the driver has accepted the call.
template <Copied kCopied, typename... Args>
CopiedBytes copied_bytes(Args... args) {
  if constexpr (kCopied == Copied::kLink) return {last_bytes(args...), 0};
  if constexpr (kCopied == Copied::kDevice) return {0, last_bytes(args...)};
  if constexpr (kCopied == Copied::kBox) return of_box(args...);
  if constexpr (kCopied == Copied::kBatch) return of_batch(args...);
  if constexpr (kCopied == Copied::kBoxes) return of_boxes(args...);
  return {};
}

template <Copied kCopied, typename... Args>
void count_bytes(abi::Lane& lane, bool per_thread, Args... args) {
  if constexpr (kHasStream<Args...>) {
    if (captured(last_stream(args...), per_thread)) return;
  }
  const CopiedBytes bytes = copied_bytes<kCopied>(args...);
  if (bytes.link != 0) lane.link_bytes.fetch_add(bytes.link, std::memory_order_relaxed);
  if (bytes.device != 0) lane.device_bytes.fetch_add(bytes.device, std::memory_order_relaxed);
}

}  // namespace rules
}  // namespace switchyard::shim
