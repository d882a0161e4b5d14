// Counts of each job on each GPU that never fall while the job lives: of all its processes, also of
// those that have ended.
//
// Concept. A page has the counts of one process, so they go when that ends. Here the difference to
// the last look is added to the job's. A process may write anything there: one that counts
// backwards adds nothing.
//
// Of the bursts of a CPU (policy/bursts.h) a page keeps the last eight. So of more than that
// between two looks, these stand for all.
//
// Nobody needs them but metrics and `stats --latency`, so nothing is counted before begin().
//
// Threading: one thread, the monitor's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "monitor/core/registry.h"

namespace switchyard::monitor {

// How long bursts waited for the GPU: their number by bucket. Plain values.
struct BurstWaits {
  // The last one that a bucket has; a longer wait is in none of them. A page says at most 65,535.
  static constexpr std::array<std::uint32_t, 10> kMostUs = {100,  200,   500,   1000,  2000,
                                                            5000, 10000, 20000, 30000, 50000};
  std::array<std::uint64_t, kMostUs.size() + 1> counts{};
  std::uint64_t sum_us = 0;
  void add(std::uint32_t waited_us);
  BurstWaits& operator+=(const BurstWaits& other);
  bool operator==(const BurstWaits&) const = default;
};

class Counters {
 public:
  // Why an allocation was refused; kOther: the library refused it without asking the monitor.
  enum class Refused : std::uint8_t { kQuota, kGpu, kWait, kOther };
  static constexpr std::array<const char*, 4> kRefusedNames = {"quota", "gpu", "wait", "other"};

  struct OfGpu {
    std::uint64_t gate_openings = 0;
    std::uint64_t swapped_out_bytes = 0, swapped_in_bytes = 0;
    std::array<std::uint64_t, kRefusedNames.size()> refusals{};  // by Refused
    BurstWaits waits;
    OfGpu& operator+=(const OfGpu& other);
    bool operator==(const OfGpu&) const = default;
  };
  using Gpus = std::map<std::size_t, OfGpu>;

  void begin() { on_ = true; }
  // One that joins again carries over what it has counted, which is known already.
  void joined(const Client& client, bool rejoins);
  void tick(const Registry& registry);
  // A process is about to go.
  void leaves(const Client& client);
  const Gpus& of(JobKey job) const;

 private:
  struct Seen {
    std::optional<std::uint32_t> bursts;
    std::uint64_t gate_openings = 0, refusals = 0, swapped_out_bytes = 0, swapped_in_bytes = 0;
    unsigned carries = 0;  // looks until all that it carries over is there
  };
  void count(const Client& client);
  static void count(const policy::Bursts& bursts, Seen& seen, BurstWaits& waits);

  bool on_ = false;
  std::map<std::pair<ClientId, unsigned>, Seen> seen_;  // as of the last look
  std::map<JobKey, Gpus> jobs_;
};

}  // namespace switchyard::monitor
