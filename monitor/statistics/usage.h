// The time that each job has had of its GPUs, and the reasons that kept it from more: sums since it
// began.
//
// Concept. A job's time is that which the policy counted between its looks, else NVML's load. It is
// never more than all of a GPU. The policy's count is an *estimate* where slices divide the time:
// the job was allotted that. NVML's load is an estimate where several jobs work on the GPU, because
// it rests on five looks a second. Beyond the whole of the GPU it counts as a wait for slices.
// What a job *lacks* of a span is the rest of it, on the mean of the GPUs that it has work on. That
// is divided among what held it, so waits and GPU time are the span at most:
//
//     pause, swap, memory, cut     the one that the job's status tells (job_status.h) has all of it
//     guard, limit, turn           for as long as a closed gate held somebody, in this order
//     slices                       what others had by their slices while it had work, by job
//     the rest                     nothing held it: its CPU had not brought work
//
// Besides, on each GPU that it sees, all of its life by state and reason. A span belongs to the
// status at its end. Gates change faster than that, so their times are taken out of it first.
// Before a job has seen a GPU it does nothing there.
//
// Looked at five times a second, before each pause and its end, and for each listing. REQUIRES: the
// statuses are of the same moment.
//
// Threading: one thread, the monitor's.
#pragma once

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "monitor/core/registry.h"
#include "monitor/policy/stalls.h"
#include "monitor/status/snapshot.h"

namespace switchyard::monitor {

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
    std::map<JobKey, double> slices_of;                         // of that, by the job that had them
    std::map<std::size_t, std::map<status::Code, Time>> times;  // by GPU
    // The same of each GPU that it sees, alone.
    struct OfGpu {
      double gpu_seconds = 0, estimated_seconds = 0, slices_seconds = 0;
      std::array<double, kReasons.size()> waits_seconds{};  // as kReasons lists them
    };
    std::map<std::size_t, OfGpu> gpus;
  };
  // By user and GPU, since the monitor began: ended jobs included.
  using Users = std::map<uid_t, std::map<std::size_t, double>>;

  void tick(const Registry& registry, const status::Statuses& statuses, Time now);
  // Before the client is gone: what it had since the last look.
  void leaves(const Client& client);
  // Before the job is gone: the same of the job, and of its life.
  void ends(const Job& job, const status::Statuses& statuses, Time now);
  const Sums& of(const Job& job) const;
  const Users& users() const { return users_; }

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
    Time at{0};                          // up to when its times are counted
  };
  // What a job lacked of one span, by the reason that held it, in seconds.
  struct Lacked {
    std::array<double, kReasons.size()> waits{};  // as kReasons lists them
    double slices = 0;
  };
  // Those with most of a GPU's time in one span, and what all had.
  struct Others {
    double all = 0;
    std::vector<std::pair<double, JobKey>> most;
  };
  using LaneKey = std::pair<ClientId, unsigned>;

  void add_lane(OnGpu& out, const LaneKey& key, const Client::Lane& lane, double span);
  static void divide_loads(std::map<JobKey, Gpus>& all, double span);
  static void bound(Gpus& gpus, Entry& entry, double span);
  static void add_gpu_seconds(Sums& sums, std::size_t gpu, double had, double estimated);
  static Lacked lacked(status::Code code, const OnGpu& on, double span);
  static void add_waits_by_gpu(const status::JobStatus& status, const Gpus& gpus, Sums& sums,
                               double span);
  static void add_waits(const status::Status& status, JobKey job, const Gpus& gpus,
                        const std::map<std::size_t, Others>& others, Sums& sums, double span);
  static void add_slices(JobKey job, const Gpus& gpus, const std::map<std::size_t, Others>& others,
                         Sums& sums, double slices);
  static void add_times(const Job& job, const status::JobStatus& status, const Gpus& gpus,
                        Entry& entry, Time now);
  static void add_span(std::map<status::Code, Time>& times, status::Code code, const OnGpu& on,
                       Time span);
  static std::map<std::size_t, Others> others_of(const std::map<JobKey, Gpus>& all);
  void forget_the_gone(const Registry& registry);

  std::map<JobKey, Entry> jobs_;
  Users users_;
  std::map<LaneKey, Client::Lane::Had> counted_;  // as of the last look
  Time ticked_at_{0};
};

}  // namespace switchyard::monitor
