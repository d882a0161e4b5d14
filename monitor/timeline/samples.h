// Samples of each job on each GPU, over the last minutes: records of 32 bytes in a ring.
//
// Concept. Some figures have no moment at which they change. They are sampled with each tick and
// when a process joins, and overwritten when the ring is full. Events (core/events.h) have what
// changes at a moment. Both are always recorded, so a timeline can be asked for after something
// went wrong.
//
//     memory     on the device, as the account has it: contexts included
//     share      of the GPU's time, over about a second: the policy's estimate, else NVML's load
//     at work    processes whose work the GPU has, or who brought some since the last look
//     launches   since the last sample
//
// Job 0 is the GPU itself: of it there is only the memory that NVML counts.
//
// Threading: one thread, the monitor's. tick() allocates only for processes that are new.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"
#include "monitor/history/ring.h"

namespace switchyard::monitor::timeline {

struct Sample {
  static constexpr std::uint16_t kUnknown = 0xffff;
  static constexpr std::uint16_t kWhole = 10'000;

  std::int64_t at_ns;  // on the monitor's clock (time.h)
  std::uint64_t memory_bytes;
  std::uint32_t job;  // JobKey; 0: all of the GPU
  std::uint32_t launches;
  std::uint16_t gpu;    // 1 + the number of the GPU in the monitor, as in events
  std::uint16_t share;  // in parts of kWhole; kUnknown: not known
  std::uint16_t at_work;
  std::uint16_t held_threads;  // that sleep at a closed gate
};
static_assert(sizeof(Sample) == 32);

class Samples {
 public:
  // 60 s of 400 jobs on one GPU each, five times a second.
  static constexpr std::size_t kCapacity = 131'072;

  explicit Samples(std::size_t capacity = kCapacity) : ring_(capacity) {}

  // REQUIRES: the scheduler has looked since the last tick.
  void tick(const Registry& registry, const GpuAccounts& gpus, Time now);
  // A process of it came. A job that ends before the next tick was on these GPUs, too.
  void joined(const Registry& registry, const GpuAccounts& gpus, const Job& job, Time now) {
    add(registry, gpus, job, now);
  }
  // Before the client is gone.
  void leaves(const Client& client);

  const Ring<Sample>& ring() const { return ring_; }

 private:
  using LaneKey = std::pair<ClientId, unsigned>;

  std::uint32_t launched(const LaneKey& key, const Client::Lane& lane);
  void add(const Registry& registry, const GpuAccounts& gpus, const Job& job, Time now);

  Ring<Sample> ring_;
  std::map<LaneKey, std::uint64_t> launches_;  // as of the last sample
};

}  // namespace switchyard::monitor::timeline
