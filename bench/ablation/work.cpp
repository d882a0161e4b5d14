#include "bench/ablation/work.h"

#include <algorithm>

namespace switchyard::bench::ablation {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocks = 528;  // four for each processor of an H200

// Two points far enough out that reading is hidden behind computing.
constexpr unsigned kFewRounds = 200;
constexpr unsigned kManyRounds = 400;
// Some 5 ms: what is timed wrong must not go on for ever.
constexpr unsigned kMostRounds = 8000;

}  // namespace

Work::Work(CUmodule module) {
  CU(cuModuleGetFunction, &use_, module, "use_words");
  CU(cuModuleGetFunction, &fill_, module, "fill");
  CU(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
  CU(cuMemAlloc, &sum_, sizeof(std::uint64_t));
  CU(cuMemsetD32, sum_, 0, 2);
  CU(cuCtxSynchronize);
}

Work::~Work() {
  CU(cuMemFree, sum_);
  CU(cuStreamDestroy, stream_);
}

void Work::launch(const Chunks& chunks, unsigned at, const Load& load) const {
  CUdeviceptr address = chunks.address(at);
  std::uint64_t words = chunks.bytes(at) / 4;
  unsigned rounds = load.rounds;
  CUdeviceptr sum = sum_;
  void* arguments[] = {&address, &words, &rounds, &sum};
  CU(cuLaunchKernel, use_, std::max(1u, kBlocks / load.reads), load.reads, 1, kThreads, 1, 1, 0,
     stream_, arguments, nullptr);
}

void Work::launch_all(const Chunks& chunks, const Load& load) const {
  for (unsigned i = 0; i < chunks.count(); ++i) launch(chunks, i, load);
}

std::uint64_t Work::take_sum() const {
  wait();
  std::uint64_t sum = 0;
  CU(cuMemcpyDtoH, &sum, sum_, sizeof(sum));
  CU(cuMemsetD32, sum_, 0, 2);
  CU(cuCtxSynchronize);
  return sum;
}

void Work::fill_chunk(const Chunks& chunks, unsigned at, unsigned word) const {
  CUdeviceptr address = chunks.address(at);
  std::uint64_t words = chunks.bytes(at) / 4;
  void* arguments[] = {&address, &word, &words};
  CU(cuLaunchKernel, fill_, kBlocks, 1, 1, kThreads, 1, 1, 0, stream_, arguments, nullptr);
}

void Work::fill(const Chunks& chunks) const {
  for (unsigned i = 0; i < chunks.count(); ++i) fill_chunk(chunks, i, 0x9E3779B9u * (i + 1));
  wait();
}

void Work::clear(const Chunks& chunks) const {
  for (unsigned i = 0; i < chunks.count(); ++i) fill_chunk(chunks, i, 0);
  wait();
}

std::uint64_t Work::sum(const Chunks& chunks) const {
  launch_all(chunks, {});
  return take_sum();
}

double Work::timed_ms(const Chunks& chunks, const Load& load) const {
  constexpr int kTimes = 7;
  double least = 0;
  for (int i = 0; i < kTimes; ++i) {
    const std::int64_t begun = now_ns();
    launch(chunks, 0, load);
    wait();
    const double ms = ms_since(begun);
    if (i == 0 || ms < least) least = ms;
  }
  return least;
}

unsigned Work::rounds_for(const Chunks& chunks, unsigned reads, double ms) const {
  const double few = timed_ms(chunks, {reads, kFewRounds});
  const double many = timed_ms(chunks, {reads, kManyRounds});
  take_sum();
  const double each = (many - few) / (kManyRounds - kFewRounds);
  if (each <= 0) return 0;
  const double rounds = kFewRounds + (ms - few) / each;
  return static_cast<unsigned>(std::clamp(rounds, 0.0, static_cast<double>(kMostRounds)));
}

}  // namespace switchyard::bench::ablation
