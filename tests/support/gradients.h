// The gradients of a made-up training, as its ranks send them and as a test computes them anew.
//
// Concept. An element is the sum of two parts: one of the true gradient, and one that each rank and
// step has of its own. Both are drawn by a hash. So whoever knows the place knows the number.
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shim/nccl/abi.h"
#include "shim/nccl/square_norm.h"
#include "tests/support/half.h"

namespace switchyard::gradients {

// Of a step's buckets, two of the same size.
inline constexpr std::size_t kBuckets[] = {8200, 8800, 8200};
// A metric that comes now and then.
inline constexpr std::size_t kMetric = 8400;
inline constexpr int kMetricEvery = 25;

// From -1 to 1.
inline float drawn(std::uint64_t seed) {
  seed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9u;
  seed = (seed ^ seed >> 27) * 0x94D049BB133111EBu;
  seed ^= seed >> 31;
  return static_cast<float>(static_cast<double>(seed >> 11) / 0x1p52 - 1);
}

inline float element(int rank, int step, std::size_t bucket, std::size_t at) {
  const std::uint64_t place = bucket * 1'000'003 + at;
  const std::uint64_t own =
      (static_cast<std::uint64_t>(step) << 8 | static_cast<unsigned>(rank)) + 1;
  return 0.3F * drawn(place * 0x9E3779B97F4A7C15u) +
         drawn(place * 0x9E3779B97F4A7C15u + own * 0xD6E8FEB86659FD93u);
}

inline ncclDataType_t type_of(const std::string& name) {
  return name == "fp16" ? kNcclFloat16 : name == "bf16" ? kNcclBfloat16 : kNcclFloat32;
}

inline void put(void* to, std::size_t at, float number, ncclDataType_t type) {
  if (type == kNcclFloat16) {
    static_cast<std::uint16_t*>(to)[at] = half::half_of(number);
  } else if (type == kNcclBfloat16) {
    static_cast<std::uint16_t*>(to)[at] = half::bfloat_of(number);
  } else {
    static_cast<float*>(to)[at] = number;
  }
}

inline float get(const void* from, std::size_t at, ncclDataType_t type) {
  using shim::nccl::square_norm::Type;
  return shim::nccl::square_norm::number_at(from, at,
                                            type == kNcclFloat16    ? Type::kFloat16
                                            : type == kNcclBfloat16 ? Type::kBfloat16
                                                                    : Type::kFloat32);
}

// A bucket as the rank sends it.
inline std::vector<unsigned char> bucket_of(int rank, int step, std::size_t bucket,
                                            ncclDataType_t type) {
  std::vector<unsigned char> out(kBuckets[bucket] * nccl_type_bytes(type));
  for (std::size_t at = 0; at < kBuckets[bucket]; ++at) {
    put(out.data(), at, element(rank, step, bucket, at), type);
  }
  return out;
}

// As NCCL sums: in the type of the numbers.
inline void add(std::vector<unsigned char>& sum, const std::vector<unsigned char>& more,
                ncclDataType_t type) {
  for (std::size_t at = 0; at < sum.size() / nccl_type_bytes(type); ++at) {
    put(sum.data(), at, get(sum.data(), at, type) + get(more.data(), at, type), type);
  }
}

}  // namespace switchyard::gradients
