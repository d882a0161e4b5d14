// The kernel of the squared norm. square_norm.ptx beside it is made from this file, by hand,
// whenever it changes:
//
//   nvcc -std=c++20 -O3 -ptx -arch=compute_75 -I . -o shim/nccl/square_norm.ptx shim/nccl/square_norm.cu
//   sed -i -e '/^\/\//d; /^\t\/\//d; /^$/d' -e 's/^\.version .*/.version 8.0/' \
//       -e 's/^\.target .*/.target sm_70/' shim/nccl/square_norm.ptx
//   for arch in sm_75 sm_90a; do ptxas -arch=$arch -o /dev/null shim/nccl/square_norm.ptx; done
//
// As for swap's digest (shim/swap/transfer/digest.cu), the second line lets drivers of CUDA 12.0
// and GPUs from Volta on take it. Numbers are loaded 16 bytes at a time where they are aligned so.
#include <cuda_fp16.h>

#include "shim/nccl/square_norm.h"

namespace kernel = switchyard::shim::nccl::square_norm;
using kernel::kThreads;
using kernel::Type;

namespace {

__device__ float square(float number) { return number * number; }

__device__ float square_of_half(std::uint32_t bits) {
  return square(__half2float(__ushort_as_half(static_cast<unsigned short>(bits))));
}

// Of the numbers in a word.
template <Type kType>
__device__ float squares(std::uint32_t word) {
  if constexpr (kType == Type::kFloat32) {
    return square(__uint_as_float(word));
  } else if constexpr (kType == Type::kFloat16) {
    return square_of_half(word & 0xFFFF) + square_of_half(word >> 16);
  } else {
    return square(__uint_as_float(word << 16)) + square(__uint_as_float(word & 0xFFFF0000u));
  }
}

template <Type kType>
__device__ float squares(const uint4& words) {
  return squares<kType>(words.x) + squares<kType>(words.y) + squares<kType>(words.z) +
         squares<kType>(words.w);
}

template <Type kType>
__device__ float square_at(const void* from, std::uint64_t at) {
  if constexpr (kType == Type::kFloat32) {
    return squares<kType>(static_cast<const std::uint32_t*>(from)[at]);
  } else {
    return squares<kType>(std::uint32_t{static_cast<const unsigned short*>(from)[at]});
  }
}

// A thread's part. The bytes before and behind the aligned words are the first block's.
template <Type kType>
__device__ double part(const char* from, std::uint64_t count) {
  constexpr unsigned kBytes = kernel::bytes_of(kType);
  constexpr unsigned kAhead = 4;
  const std::uint64_t odd = (16 - reinterpret_cast<std::uintptr_t>(from) % 16) % 16 / kBytes;
  const std::uint64_t head = odd < count ? odd : count;
  const std::uint64_t vectors = (count - head) * kBytes / 16;
  const std::uint64_t done = head + vectors * (16 / kBytes);
  double sum = 0;
  if (blockIdx.x == 0) {
    if (threadIdx.x < head) sum += square_at<kType>(from, threadIdx.x);
    if (threadIdx.x < count - done) sum += square_at<kType>(from, done + threadIdx.x);
  }
  const uint4* at = reinterpret_cast<const uint4*>(from + head * kBytes);
  const std::uint64_t step = std::uint64_t{gridDim.x} * kThreads;
  std::uint64_t i = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kAhead - 1) * step < vectors; i += kAhead * step) {
    uint4 words[kAhead];
#pragma unroll
    for (unsigned ahead = 0; ahead < kAhead; ++ahead) words[ahead] = at[i + ahead * step];
#pragma unroll
    for (unsigned ahead = 0; ahead < kAhead; ++ahead) sum += squares<kType>(words[ahead]);
  }
#pragma unroll 1
  for (; i < vectors; i += step) sum += squares<kType>(at[i]);
  return sum;
}

__device__ double sum_of_warp(double value) {
#pragma unroll
  for (int distance = 16; distance != 0; distance /= 2) {
    value += __shfl_down_sync(~0u, value, distance);
  }
  return value;
}

}  // namespace

// Block i writes out[i].
extern "C" __global__ void __launch_bounds__(kThreads)
    switchyard_square_norm(const char* from, std::uint64_t count, std::uint32_t type, double* out) {
  __shared__ double of_warp[kThreads / 32];
  double sum = 0;
  if (type == static_cast<std::uint32_t>(Type::kFloat32)) {
    sum = part<Type::kFloat32>(from, count);
  } else if (type == static_cast<std::uint32_t>(Type::kFloat16)) {
    sum = part<Type::kFloat16>(from, count);
  } else {
    sum = part<Type::kBfloat16>(from, count);
  }
  sum = sum_of_warp(sum);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = sum_of_warp(threadIdx.x < kThreads / 32 ? of_warp[threadIdx.x] : 0);
  if (threadIdx.x != 0) return;
  // A NaN as no other is: not kUnwritten.
  out[blockIdx.x] = sum == sum ? sum : __longlong_as_double(0x7FF8000000000000ll);
}
