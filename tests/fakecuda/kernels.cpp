// What the kernels of examples/kernels/kernels.ptx do, and the library's own, by name, and what
// they cost.
#include <string.h>

#include "modules.h"
#include "shim/swap/digest_math.h"

namespace fakecuda {
namespace {

constexpr std::uint64_t kUnknownKernelNs = 5 * kUs;
constexpr double kBytesPerNs = 1500.0;
constexpr std::uint64_t kBytesPerRoundNs = 50'000;  // the FMAs of use_words

template <class T>
T argument(const Launch& launch, std::size_t index) {
  T value{};
  const Kernel& kernel = *launch.kernel;
  if (index >= kernel.offsets.size() || kernel.sizes[index] < sizeof(T)) return value;
  memcpy(&value, launch.arguments.data() + kernel.offsets[index], sizeof(T));
  return value;
}

std::uint32_t* words(const Launch& launch, std::size_t index) {
  return reinterpret_cast<std::uint32_t*>(argument<std::uint64_t>(launch, index));
}

std::uint64_t moving(std::uint64_t bytes) {
  return 3 * kUs + static_cast<std::uint64_t>(static_cast<double>(bytes) / kBytesPerNs);
}

// As shim/swap/digest.cu.
void compute_digests(const Launch& launch) {
  namespace digest = switchyard::shim::swap::digest;
  const auto batch = argument<digest::Batch>(launch, 0);
  auto* out = reinterpret_cast<digest::Digest*>(argument<std::uint64_t>(launch, 3));
  for (unsigned i = 0; i < launch.grid[0]; ++i) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(batch.address[i]);
    out[i].a = digest::of_words(words, digest::kPieceWords, argument<std::uint64_t>(launch, 1));
    out[i].b = digest::of_words(words, digest::kPieceWords, argument<std::uint64_t>(launch, 2));
  }
}

struct Known {
  const char* name;
  std::uint64_t (*cost_ns)(const Launch&);
  void (*run)(const Launch&);
};

constexpr Known kKnown[] = {
    {"nop", [](const Launch&) { return std::uint64_t{2 * kUs}; }, [](const Launch&) {}},
    {"busy", [](const Launch& l) { return 1 * kUs + argument<std::uint32_t>(l, 0) * kUs; },
     [](const Launch&) {}},
    {"fill", [](const Launch& l) { return moving(4 * argument<std::uint64_t>(l, 2)); },
     [](const Launch& l) {
       const auto word = argument<std::uint32_t>(l, 1);
       std::uint32_t* to = words(l, 0);
       for (std::uint64_t i = 0, n = argument<std::uint64_t>(l, 2); i < n; ++i) to[i] = word;
     }},
    {"copy_words", [](const Launch& l) { return moving(8 * argument<std::uint64_t>(l, 2)); },
     [](const Launch& l) { memmove(words(l, 1), words(l, 0), 4 * argument<std::uint64_t>(l, 2)); }},
    {"add_words", [](const Launch& l) { return moving(8 * argument<std::uint64_t>(l, 2)); },
     [](const Launch& l) {
       const auto word = argument<std::uint32_t>(l, 1);
       std::uint32_t* at = words(l, 0);
       for (std::uint64_t i = 0, n = argument<std::uint64_t>(l, 2); i < n; ++i) at[i] += word;
     }},
    {"sum_words", [](const Launch& l) { return moving(4 * argument<std::uint64_t>(l, 1)); },
     [](const Launch& l) {
       std::uint64_t sum = 0;
       const std::uint32_t* at = words(l, 0);
       for (std::uint64_t i = 0, n = argument<std::uint64_t>(l, 1); i < n; ++i) sum += at[i];
       *reinterpret_cast<std::uint64_t*>(argument<std::uint64_t>(l, 2)) = sum;
     }},
    {"use_words",
     [](const Launch& l) {
       const std::uint64_t bytes = 4 * argument<std::uint64_t>(l, 1) * l.grid[1];
       return moving(bytes) + argument<std::uint32_t>(l, 2) * bytes / kBytesPerRoundNs;
     },
     [](const Launch& l) {
       std::uint64_t sum = 0;
       const std::uint32_t* at = words(l, 0);
       for (std::uint64_t i = 0, n = argument<std::uint64_t>(l, 1); i < n; ++i) sum += at[i];
       *reinterpret_cast<std::uint64_t*>(argument<std::uint64_t>(l, 3)) += sum * l.grid[1];
     }},
    {"switchyard_digest", [](const Launch& l) { return moving(l.grid[0] * (2ull << 20)); },
     compute_digests},
};

const Known* known(const Launch& launch) {
  for (const Known& entry : kKnown) {
    if (launch.kernel->name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace

std::uint64_t kernel_cost_ns(const Launch& launch) {
  const Known* entry = known(launch);
  return entry ? entry->cost_ns(launch) : kUnknownKernelNs;
}

void run_kernel(const Launch& launch) {
  if (const Known* entry = known(launch)) entry->run(launch);
}

}  // namespace fakecuda
