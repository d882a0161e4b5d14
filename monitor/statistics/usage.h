// What each job has had of its GPUs, and what kept it from more, by reason: sums since it began.
//
// Concept. What a job had is what the policy counted between its looks, else NVML's load, and never
// more than all of a GPU. The policy's count is an *estimate* where slices divide the time: the job
// was allotted that. NVML's load is one where several jobs work on the GPU, because it has the time
// in which they wait, too. What a job *lacks* of a span is the rest of it, on the mean of the GPUs
// that it has work on. That is divided among what held it, so waits and GPU time are the span at
// most:
//
//     pause, swap, memory, cut     the first that holds any of its processes has all of it
//     guard, limit, turn           for as long as a closed gate held somebody, in this order
//     slices                       what others had by their slices while it had work, by job
//     the rest                     nothing held it: its CPU had not brought work
//
// Looked at five times a second, before each pause and its end, and for each listing.
//
// Threading: one thread, the monitor's.
#pragma once

#include <array>
#include <map>
#include <utility>

#include "monitor/core/registry.h"
#include "monitor/policy/stalls.h"
#include "monitor/residency/residency.h"

namespace switchyard::monitor {

// What holds the work of a process, if we do. `where`: residency_of() the job, the same for all of
// its processes.
stalls::Hold hold_of(const Job& job, ResidencyState where, const Client& client);

class Usage {
 public:
  static constexpr std::array kReasons = {
      stalls::Hold::kPause, stalls::Hold::kSwap,  stalls::Hold::kMemory, stalls::Hold::kCut,
      stalls::Hold::kGuard, stalls::Hold::kLimit, stalls::Hold::kTurn};
  // Jobs whose slices another job waited for are remembered, at most.
  static constexpr std::size_t kMostOthers = 16;
  struct Sums {
    double gpu_seconds = 0;
    double estimated_seconds = 0;  // of these
    std::map<stalls::Hold, Time> waits;
    double slices_seconds = 0;
    std::map<JobKey, double> slices_of;  // of that, by the job that had them
  };

  void tick(const Registry& registry, Time now);
  const Sums& of(const Job& job) const;

 private:
  // One job on one GPU in one span, in seconds.
  struct OnGpu {
    double gpu = 0, estimated = 0;
    double load = 0;  // of `gpu`, by NVML
    double slices = 0, guard = 0, limit = 0, turn = 0;
    bool works = false;
  };
  using Gpus = std::map<std::size_t, OnGpu>;
  struct Entry {
    Sums sums;
    std::map<std::size_t, double> owed;  // by GPU: counted, and beyond what its span had room for
  };
  using LaneKey = std::pair<ClientId, unsigned>;

  void add_lane(OnGpu& out, const LaneKey& key, const Client::Lane& lane, double span);
  static void bound(Gpus& gpus, Entry& entry, double span);
  static void add_waits(const Registry& registry, const Job& job, const std::map<JobKey, Gpus>& all,
                        Sums& sums, double span);
  void forget_the_gone(const Registry& registry);

  std::map<JobKey, Entry> jobs_;
  std::map<LaneKey, Client::Lane::Had> counted_;  // as of the last look
  Time ticked_at_{0};
};

}  // namespace switchyard::monitor
