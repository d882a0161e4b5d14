#include "worker.h"

#include <time.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "child.h"
#include "gpu.h"

namespace demo {
namespace {

struct Window {
  long begin = 0;
  long end = 0;
};

void sleep_until(long instant) {
  const timespec time = {instant / 1'000'000'000L, instant % 1'000'000'000L};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

int fail(const std::string& why) {
  std::fprintf(stderr, "demo: %s\n", why.c_str());
  return 1;
}

// Whether a kernel has run.
bool make_ready(std::optional<Gpu>& gpu, std::string& why) {
  gpu = Gpu::open(why);
  if (!gpu || !gpu->load(why)) return false;
  if (!gpu->launch(1, 1) || !gpu->wait()) {
    why = "the first kernel failed on " + gpu->name();
    return false;
  }
  std::printf("ready %s\n", gpu->name().c_str());
  std::fflush(stdout);
  return true;
}

// Ready, then told when to count.
bool prepare(std::optional<Gpu>& gpu, Window& window, std::string& why) {
  if (!make_ready(gpu, why)) return false;
  why = "expected 'go BEGIN END' on standard input";
  return std::scanf("go %ld %ld", &window.begin, &window.end) == 2;
}

}  // namespace

int work_probe() {
  std::string why;
  const auto gpu = Gpu::open(why);
  if (!gpu) return fail(why);
  std::printf("ready %s\n", gpu->name().c_str());
  return 0;
}

int work_requests() {
  std::string why;
  std::optional<Gpu> gpu;
  Window window;
  if (!prepare(gpu, window, why)) return fail(why);
  std::vector<long> latencies;
  // Timed from when a request should have arrived, not from when we got round to it. So a server
  // that falls behind can't hide its queue. The period drifts against the neighbour's slices
  // because of the odd nanoseconds added.
  for (long arrival = now(); arrival < window.end; arrival += kRequestPeriodNanoseconds + 77'777) {
    sleep_until(arrival);
    if (!gpu->launch(kKernelsPerRequest, kRequestKernelMicroseconds) || !gpu->wait()) {
      return fail("a request failed on " + gpu->name());
    }
    if (arrival >= window.begin) latencies.push_back(now() - arrival);
  }
  for (const long latency : latencies) std::printf("%.1f\n", static_cast<double>(latency) / 1e3);
  return 0;
}

int work_loop() {
  std::string why;
  std::optional<Gpu> gpu;
  Window window;
  if (!prepare(gpu, window, why)) return fail(why);
  // Two batches in flight, so that the GPU never waits for us.
  long counted = 0;
  long first = 0;
  long last = 0;
  for (unsigned round = 0; last < window.end; ++round) {
    const unsigned slot = round % 2;
    if (round >= 2) {
      if (!gpu->wait_for(slot)) return fail("the loop failed on " + gpu->name());
      last = now();
      if (first == 0 && last >= window.begin) {
        first = last;
      } else if (first != 0) {
        counted += kLoopBatch;
      }
    }
    if (!gpu->launch(kLoopBatch, kLoopKernelMicroseconds) || !gpu->mark(slot)) {
      return fail("the loop failed on " + gpu->name());
    }
  }
  gpu->wait();
  std::printf("%.1f\n", static_cast<double>(counted) * 1e9 / static_cast<double>(last - first));
  return 0;
}

int work_memory() {
  constexpr unsigned long kPiece = 64UL << 20;
  constexpr unsigned long kEnough = 4UL << 30;
  std::string why;
  std::optional<Gpu> gpu;
  if (!make_ready(gpu, why)) return fail(why);
  unsigned long bytes = 0;
  why.clear();
  while (bytes < kEnough && gpu->allocate(kPiece, why)) bytes += kPiece;
  std::printf("%lu %s\n", bytes, why.c_str());
  return 0;
}

int work_beat() {
  std::string why;
  std::optional<Gpu> gpu;
  if (!make_ready(gpu, why)) return fail(why);
  while (gpu->launch(kLoopBatch, kLoopKernelMicroseconds) && gpu->wait()) {
    std::puts("beat");
    std::fflush(stdout);
  }
  return fail("the loop failed on " + gpu->name());
}

}  // namespace demo
