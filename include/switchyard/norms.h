// Norms: which collectives the library measures for the gradient noise scale, and why one is not.
//
// Concept. A collective that may be the sum or average of a gradient is measured. A kernel of ours
// computes the squared norm of the rank's input, another that of its output. Metrics and barriers
// are small: below kFewestElements nothing is measured.
//
// A reason keeps its number: the page has a bit for it (abi.h: unmeasured). Key in JSON, and what
// it means to a person.
//
// Threading: constants only.
#pragma once

#include <cstdint>

#define SWITCHYARD_UNMEASURED(X)                                                                 \
  X(kGraph, "graph", "its collectives are in a CUDA graph, where nothing is added")              \
  X(kOperator, "operator", "an operator of its own is applied, whose factor is unknown")         \
  X(kType, "type", "its numbers are neither fp32 nor fp16 nor bf16")                             \
  X(kAsynchronous, "asynchronous",                                                               \
    "its communicator does not block, so nobody knows when "                                     \
    "the collective is in the stream")                                                           \
  X(kGroup, "group", "a group of NCCL calls holds too many collectives")                         \
  X(kContext, "context", "the thread that calls NCCL has another context than the communicator") \
  X(kKernel, "kernel", "the driver does not take a kernel of ours")

namespace switchyard {

inline constexpr std::uint64_t kFewestElements = 8192;

enum class Unmeasured : std::uint32_t {
#define SWITCHYARD_UNMEASURED_NAME(name, key, text) name,
  SWITCHYARD_UNMEASURED(SWITCHYARD_UNMEASURED_NAME)
#undef SWITCHYARD_UNMEASURED_NAME
      kEnd
};

constexpr std::uint32_t bit_of(Unmeasured why) { return 1u << static_cast<std::uint32_t>(why); }

struct UnmeasuredWords {
  const char* key;
  const char* text;
};
inline constexpr UnmeasuredWords kUnmeasured[] = {
#define SWITCHYARD_UNMEASURED_WORDS(name, key, text) {key, text},
    SWITCHYARD_UNMEASURED(SWITCHYARD_UNMEASURED_WORDS)
#undef SWITCHYARD_UNMEASURED_WORDS
};

}  // namespace switchyard
