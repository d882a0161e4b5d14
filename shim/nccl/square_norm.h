// The squared norm of a vector of floating-point numbers, as the kernel computes it.
//
// Concept. Each block sums the squares of its part and writes one number. The sum of these is the
// squared norm. Squares are summed in single precision over a few numbers, then in double.
//
// The kernel (square_norm.cu), the CPU of tests and the simulated GPU share this header.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include "shim/host_device.h"

namespace switchyard::shim::nccl::square_norm {

enum class Type : std::uint32_t { kFloat32, kFloat16, kBfloat16 };

inline constexpr unsigned kThreads = 512;
inline constexpr unsigned kMostBlocks = 128;
inline constexpr std::uint64_t kPerThread = 64;  // numbers that make a further block worth it

constexpr unsigned blocks_of(std::uint64_t count) {
  const std::uint64_t wanted = (count + kThreads * kPerThread - 1) / (kThreads * kPerThread);
  return wanted == 0 ? 1 : wanted < kMostBlocks ? static_cast<unsigned>(wanted) : kMostBlocks;
}

SWITCHYARD_BOTH constexpr unsigned bytes_of(Type type) { return type == Type::kFloat32 ? 4 : 2; }

// What the host writes before a launch: the kernel never writes this. It is a NaN with a payload.
inline constexpr std::uint64_t kUnwritten = ~0ull;

#ifndef __CUDACC__
// On the CPU.
inline float number_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline float number_at(const void* from, std::uint64_t at, Type type) {
  if (type == Type::kFloat32) return static_cast<const float*>(from)[at];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(from)[at];
  if (type == Type::kBfloat16) return number_of(bits << 16);
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 31;
  const std::uint32_t fraction = bits & 1023;
  if (exponent == 31) return number_of(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return number_of(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24F;
  return sign != 0 ? -small : small;
}
inline double of(const void* from, std::uint64_t count, Type type) {
  double sum = 0;
  for (std::uint64_t at = 0; at < count; ++at) {
    const double number = number_at(from, at, type);
    sum += number * number;
  }
  return sum;
}
#endif

}  // namespace switchyard::shim::nccl::square_norm
