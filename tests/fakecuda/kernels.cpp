// What the kernels of examples/kernels/kernels.ptx do, and the library's own, by name, and what
// they cost.
#include <string.h>
#include <unistd.h>

#include <functional>

#include "foreign_kernel.h"
#include "memory.h"
#include "modules.h"
#include "shim/nccl/square_norm.h"
#include "shim/swap/memory/digest_math.h"

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

Span span_at(const Launch& launch, std::size_t index, std::uint64_t bytes, bool written) {
  return {argument<std::uint64_t>(launch, index), bytes, written};
}

// The bytes of so many words, as an argument tells; saturating.
std::uint64_t word_bytes(const Launch& launch, std::size_t index) {
  const auto count = argument<std::uint64_t>(launch, index);
  return count > UINT64_MAX / 4 ? UINT64_MAX : 4 * count;
}

constexpr bool kRead = false, kWritten = true;

// As shim/swap/transfer/digest.cu.
CUresult compute_digests(const Launch& launch, int gpu) {
  namespace digest = switchyard::shim::swap::digest;
  const auto batch = argument<digest::Batch>(launch, 0);
  auto* out = reinterpret_cast<digest::Digest*>(argument<std::uint64_t>(launch, 3));
  Touch touch(gpu, {span_at(launch, 3, launch.grid[0] * sizeof *out, kWritten)});
  for (unsigned i = 0; i < launch.grid[0]; ++i) {
    if (!touch.add({batch.address[i], 4 * digest::kPieceWords, kRead})) break;
    const auto* words = reinterpret_cast<const std::uint32_t*>(batch.address[i]);
    out[i].a = digest::of_words(words, digest::kPieceWords, argument<std::uint64_t>(launch, 1));
    out[i].b = digest::of_words(words, digest::kPieceWords, argument<std::uint64_t>(launch, 2));
  }
  return touch ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

// As shim/nccl/square_norm.cu; the first block has all of it.
CUresult compute_square_norm(const Launch& launch, int gpu) {
  namespace norm = switchyard::shim::nccl::square_norm;
  const auto count = argument<std::uint64_t>(launch, 1);
  const auto type = static_cast<norm::Type>(argument<std::uint32_t>(launch, 2));
  auto* out = reinterpret_cast<double*>(argument<std::uint64_t>(launch, 3));
  const Touch touch(gpu, {span_at(launch, 0, count * norm::bytes_of(type), kRead),
                          span_at(launch, 3, launch.grid[0] * sizeof *out, kWritten)});
  if (!touch) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const double sum =
      norm::of(reinterpret_cast<const void*>(argument<std::uint64_t>(launch, 0)), count, type);
  for (unsigned i = 0; i < launch.grid[0]; ++i) out[i] = i == 0 ? sum : 0;
  return CUDA_SUCCESS;
}

CUresult fill(const Launch& l, int gpu) {
  const Touch touch(gpu, {span_at(l, 0, word_bytes(l, 2), kWritten)});
  if (!touch) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto word = argument<std::uint32_t>(l, 1);
  std::uint32_t* to = words(l, 0);
  for (std::uint64_t i = 0, n = argument<std::uint64_t>(l, 2); i < n; ++i) to[i] = word;
  return CUDA_SUCCESS;
}

CUresult copy_words(const Launch& l, int gpu) {
  const Touch touch(
      gpu, {span_at(l, 0, word_bytes(l, 2), kRead), span_at(l, 1, word_bytes(l, 2), kWritten)});
  if (!touch) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memmove(words(l, 1), words(l, 0), word_bytes(l, 2));
  return CUDA_SUCCESS;
}

CUresult add_words(const Launch& l, int gpu) {
  const Touch touch(gpu, {span_at(l, 0, word_bytes(l, 2), kWritten)});
  if (!touch) return CUDA_ERROR_ILLEGAL_ADDRESS;
  const auto word = argument<std::uint32_t>(l, 1);
  std::uint32_t* at = words(l, 0);
  for (std::uint64_t i = 0, n = argument<std::uint64_t>(l, 2); i < n; ++i) at[i] += word;
  return CUDA_SUCCESS;
}

std::uint64_t sum_of(const std::uint32_t* at, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) sum += at[i];
  return sum;
}

CUresult sum_words(const Launch& l, int gpu) {
  const Touch touch(gpu, {span_at(l, 0, word_bytes(l, 1), kRead), span_at(l, 2, 8, kWritten)});
  if (!touch) return CUDA_ERROR_ILLEGAL_ADDRESS;
  *reinterpret_cast<std::uint64_t*>(argument<std::uint64_t>(l, 2)) =
      sum_of(words(l, 0), argument<std::uint64_t>(l, 1));
  return CUDA_SUCCESS;
}

CUresult use_words(const Launch& l, int gpu) {
  const Touch touch(gpu, {span_at(l, 0, word_bytes(l, 1), kRead), span_at(l, 3, 8, kWritten)});
  if (!touch) return CUDA_ERROR_ILLEGAL_ADDRESS;
  *reinterpret_cast<std::uint64_t*>(argument<std::uint64_t>(l, 3)) +=
      sum_of(words(l, 0), argument<std::uint64_t>(l, 1)) * l.grid[1];
  return CUDA_SUCCESS;
}

CUresult nothing(const Launch&, int) { return CUDA_SUCCESS; }

struct Known {
  const char* name;
  std::uint64_t (*cost_ns)(const Launch&);
  CUresult (*run)(const Launch&, int gpu);
};

constexpr Known kKnown[] = {
    {"nop", [](const Launch&) { return std::uint64_t{2 * kUs}; }, nothing},
    {"busy", [](const Launch& l) { return 1 * kUs + argument<std::uint32_t>(l, 0) * kUs; },
     nothing},
    {"fill", [](const Launch& l) { return moving(4 * argument<std::uint64_t>(l, 2)); }, fill},
    {"copy_words", [](const Launch& l) { return moving(8 * argument<std::uint64_t>(l, 2)); },
     copy_words},
    {"add_words", [](const Launch& l) { return moving(8 * argument<std::uint64_t>(l, 2)); },
     add_words},
    {"sum_words", [](const Launch& l) { return moving(4 * argument<std::uint64_t>(l, 1)); },
     sum_words},
    {"use_words",
     [](const Launch& l) {
       const std::uint64_t bytes = 4 * argument<std::uint64_t>(l, 1) * l.grid[1];
       return moving(bytes) + argument<std::uint32_t>(l, 2) * bytes / kBytesPerRoundNs;
     },
     use_words},
    {"switchyard_digest", [](const Launch& l) { return moving(l.grid[0] * (2ull << 20)); },
     compute_digests},
    {"switchyard_square_norm",
     [](const Launch& l) { return moving(4 * argument<std::uint64_t>(l, 1)); },
     compute_square_norm},
};

const Known* known(const Launch& launch) {
  for (const Known& entry : kKnown) {
    if (launch.kernel->name == entry.name) return &entry;
  }
  return nullptr;
}

}  // namespace

struct LongRun {
  std::function<bool()> poll;
  CUresult result = CUDA_SUCCESS;
};

namespace {

bool touches(int gpu, const ForeignKernel& kernel) {
  Touch touch(gpu);
  for (std::size_t i = 0; i < kernel.span_count; ++i) {
    const ForeignSpan& span = kernel.spans[i];
    if (span.bytes != 0 && !touch.add({span.address, span.bytes, kWritten})) break;
  }
  return bool(touch);
}

void begin_foreign(LongRun& run, const Launch& launch, int gpu) {
  auto* kernel = reinterpret_cast<ForeignKernel*>(argument<std::uint64_t>(launch, 0));
  run.poll = [&run, gpu, kernel, begun = static_cast<void*>(nullptr)]() mutable {
    if (!touches(gpu, *kernel)) {
      run.result = CUDA_ERROR_ILLEGAL_ADDRESS;
      return true;
    }
    if (begun == nullptr) begun = kernel->begin(kernel);
    return kernel->poll(begun);
  };
}

// As tests/conformance/mps_client.cpp. A look takes 20 us of the GPU, so those that a side has
// patience for fit into one slice. The sleep is for the other side, which may have no processor.
void begin_meeting(LongRun& run, const Launch& launch, int gpu) {
  constexpr unsigned kLookUs = 5'000;
  run.poll = [&run, launch, gpu, done = 0u, looks = argument<std::uint32_t>(launch, 3)]() mutable {
    const Touch touch(gpu, {span_at(launch, 5, 4, kWritten)});
    if (!touch) {
      run.result = CUDA_ERROR_ILLEGAL_ADDRESS;
      return true;
    }
    const auto rounds = argument<std::uint32_t>(launch, 2);
    if (done < rounds) __atomic_store_n(words(launch, 0), done + 1, __ATOMIC_RELEASE);
    while (done < rounds && __atomic_load_n(words(launch, 1), __ATOMIC_ACQUIRE) > done) {
      if (++done < rounds) __atomic_store_n(words(launch, 0), done + 1, __ATOMIC_RELEASE);
      looks = argument<std::uint32_t>(launch, 4);
    }
    *words(launch, 5) = done;
    if (done == rounds || --looks == 0) return true;
    usleep(kLookUs);
    return false;
  };
}

}  // namespace

std::shared_ptr<LongRun> begin_long(const Launch& launch, int gpu) {
  const std::string& name = launch.kernel->name;
  auto run = std::make_shared<LongRun>();
  if (name == "fakecuda_foreign") begin_foreign(*run, launch, gpu);
  if (name == "meet") begin_meeting(*run, launch, gpu);
  return run->poll ? run : nullptr;
}

bool poll_long(LongRun& run) { return run.poll(); }

CUresult result_of(const LongRun& run) { return run.result; }

std::uint64_t kernel_cost_ns(const Launch& launch) {
  const Known* entry = known(launch);
  return entry ? entry->cost_ns(launch) : kUnknownKernelNs;
}

CUresult run_kernel(const Launch& launch, int gpu) {
  const Known* entry = known(launch);
  return entry ? entry->run(launch, gpu) : CUDA_SUCCESS;
}

}  // namespace fakecuda
