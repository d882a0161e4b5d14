// The figures of metrics as of one moment: plain values, copied out of the monitor.
//
// Concept. The loop copies, another thread renders (prometheus.h). A job has a row for each GPU
// that it used. One that has ended keeps its counters, and has no gauges any more.
//
// Threading: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "monitor/platform/kubernetes.h"
#include "monitor/platform/place.h"
#include "monitor/statistics/counters.h"
#include "monitor/statistics/usage.h"
#include "monitor/status/job_status.h"

namespace switchyard::monitor::metrics {

// One more than the states of a job that lives.
inline constexpr std::size_t kStates = static_cast<std::size_t>(status::State::kUnmanaged) + 2;
inline constexpr std::size_t kEnded = kStates - 1;

struct Gpu {
  unsigned index = 0;
  std::string uuid = {}, pci_bus_id = {}, model = {};
  double busy_seconds = 0;  // of jobs
  std::optional<std::uint64_t> memory_total_bytes = {}, memory_used_bytes = {};
  std::uint64_t unmanaged_memory_bytes = 0;
  std::size_t unmanaged_processes = 0;
  std::string backend = {};  // MeansInForce::name()
};

// A job on one GPU. These never fall.
struct Sums {
  double gpu_seconds = 0, estimated_seconds = 0, slices_seconds = 0;
  std::array<double, Usage::kReasons.size()> waits_seconds{};  // as Usage::kReasons lists them
  Counters::OfGpu counters = {};
  Sums& operator+=(const Sums& other);
};

struct OnGpu {
  std::size_t gpu = 0;    // in Snapshot::gpus
  std::size_t state = 0;  // status::State, or kEnded
  Sums sums = {};
  std::uint64_t used_bytes = 0, swapped_bytes = 0;
  std::optional<std::uint64_t> quota_bytes = {};
  std::optional<double> share = {};
};

struct Job {
  std::string name = {}, user = {}, priority = {};
  Place place = {};
  PodNames pod = {};  // empty: it is in none, or in one that is not known yet
  bool ended = false;
  bool high = false;
  std::optional<double> limit = {};
  std::size_t stalled_ranks = 0;
  std::vector<OnGpu> gpus = {};
};

struct User {
  std::string name = {};
  std::size_t gpu = 0;
  double gpu_seconds = 0;
};

// The unmanaged processes of a user on one GPU.
struct UnmanagedUser {
  std::string name = {};
  std::size_t gpu = 0;
  double gpu_seconds = 0;  // an estimate
  std::uint64_t bytes = 0;
};

struct Snapshot {
  std::string version = {}, driver_version = {}, hostname = {};
  double start_time_seconds = 0;  // since 1970
  std::uint64_t host_pool_bytes = 0, host_pool_used_bytes = 0;
  std::size_t living_jobs = 0;
  std::vector<Gpu> gpus = {};
  std::vector<User> users = {};
  std::vector<UnmanagedUser> unmanaged = {};
  std::vector<Job> jobs = {};  // those that have ended stand behind
};

}  // namespace switchyard::monitor::metrics
