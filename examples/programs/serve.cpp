// A service: 50 requests a second, each of 20 kernels of 0.1 ms. Every 10 s it says its latency.
#include <time.h>

#include <algorithm>
#include <vector>

#include "open.h"

namespace {

long now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1'000'000'000L + time.tv_nsec;
}

void sleep_until(long instant) {
  const timespec time = {instant / 1'000'000'000L, instant % 1'000'000'000L};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

void say(std::vector<long>& latencies) {
  std::sort(latencies.begin(), latencies.end());
  const auto ms = [&](std::size_t percent) {
    return static_cast<double>(latencies[latencies.size() * percent / 100]) / 1e6;
  };
  std::printf("serve: p50 %.2f ms, p99 %.2f ms of %zu requests\n", ms(50), ms(99),
              latencies.size());
  std::fflush(stdout);
  latencies.clear();
}

}  // namespace

int main() {
  demo::Gpu gpu = examples::open_gpu();
  std::vector<long> latencies;
  // Each is timed from when it should have arrived: one that waits behind another counts in full.
  for (long arrival = now();; arrival += 20'000'000L) {
    sleep_until(arrival);
    if (!gpu.launch(20, 100) || !gpu.wait()) examples::end_with("serve: a request failed");
    latencies.push_back(now() - arrival);
    if (latencies.size() == 500) say(latencies);
  }
}
