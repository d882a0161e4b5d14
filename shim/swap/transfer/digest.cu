// The digest's kernel. digest.ptx beside it is made from this file, by hand, whenever it changes:
//
//   nvcc -std=c++20 -O3 -ptx -arch=compute_75 -I . \
//       -o shim/swap/transfer/digest.ptx shim/swap/transfer/digest.cu
//   sed -i -e '/^\/\//d; /^\t\/\//d; /^$/d' -e 's/^\.version .*/.version 8.0/' \
//       -e 's/^\.target .*/.target sm_70/' shim/swap/transfer/digest.ptx
//   ptxas -arch=sm_90 -o /dev/null shim/swap/transfer/digest.ptx
//
// The second line lets drivers of CUDA 12.0 and GPUs from Volta on take it. The third line says
// whether they can: nothing here needs more. The build needs no nvcc: it takes the text.
//
// Loops that stay rolled save time: the driver compiles this in the first move of a process.
#include "shim/swap/memory/digest_math.h"

namespace digest = switchyard::shim::swap::digest;

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kSteps = digest::kPieceWords / 4 / kThreads;
constexpr unsigned kAhead = 4;  // steps whose words are loaded together
static_assert(kSteps % kAhead == 0);

// A thread takes every kThreads-th four words of the piece. Its sum is worth r^4 to the number of
// threads behind it.
struct Point {
  digest::Powers powers;
  std::uint64_t step;   // r^(4 kThreads)
  std::uint64_t place;  // r^(4 (kThreads - 1 - thread))
  std::uint64_t sum;

  __device__ explicit Point(std::uint64_t r) : powers(r), place(1), sum(0) {
    step = digest::times(powers.two, powers.two);
    const unsigned behind = kThreads - 1 - threadIdx.x;
#pragma unroll 1
    for (unsigned bit = 1; bit < kThreads; bit <<= 1) {
      if ((behind & bit) != 0) place = digest::times(place, step);
      step = digest::times(step, step);
    }
  }
  __device__ void add(const uint4& words) {
    sum = digest::add_four(sum, step, powers, words.x, words.y, words.z, words.w);
  }
  __device__ std::uint64_t placed() const { return digest::canonical(digest::times(sum, place)); }
};

__device__ std::uint64_t plus(std::uint64_t a, std::uint64_t b) { return digest::canonical(a + b); }

__device__ std::uint64_t sum_of_warp(std::uint64_t value) {
#pragma unroll 1
  for (int distance = 16; distance != 0; distance /= 2) {
    value = plus(value, __shfl_down_sync(~0u, value, distance));
  }
  return value;
}

}  // namespace

// One block for each piece of the batch; block i writes out[i].
extern "C" __global__ void __launch_bounds__(kThreads)
    switchyard_digest(const __grid_constant__ digest::Batch batch, std::uint64_t r0,
                      std::uint64_t r1, digest::Digest* out) {
  __shared__ digest::Digest of_warp[kThreads / 32];
  const uint4* at = reinterpret_cast<const uint4*>(batch.address[blockIdx.x]) + threadIdx.x;
  Point a(r0);
  Point b(r1);
#pragma unroll 1
  for (unsigned step = 0; step < kSteps; step += kAhead) {
    uint4 words[kAhead];
#pragma unroll
    for (unsigned i = 0; i < kAhead; ++i) words[i] = at[(step + i) * kThreads];
#pragma unroll
    for (unsigned i = 0; i < kAhead; ++i) {
      a.add(words[i]);
      b.add(words[i]);
    }
  }
  const digest::Digest sum{sum_of_warp(a.placed()), sum_of_warp(b.placed())};
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  digest::Digest all{0, 0};
#pragma unroll 1
  for (const digest::Digest& warp : of_warp) all = {plus(all.a, warp.a), plus(all.b, warp.b)};
  out[blockIdx.x] = all;
}
