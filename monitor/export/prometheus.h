// Metrics as text: the exposition format 0.0.4 of Prometheus.
//
// Concept. kFamilies lists every name; docs/guide/metrics.md is held against it by a test. Labels
// of GPUs are spelled as dcgm-exporter spells its own, so that `* on(UUID)` joins both.
//
// A page has at most kMostSeries. Jobs come whole or not at all, those that ended last, and
// switchyard_series_dropped counts what was left out.
//
// Threading: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "monitor/export/metrics.h"

namespace switchyard::monitor::metrics {

inline constexpr std::size_t kMostSeries = 20'000;

// Which labels a series has besides its own.
enum class Of { kMonitor, kGpu, kUser, kJob };
struct Family {
  const char* name;
  const char* type;
  Of of;
  const char* labels;  // of its own, with commas; empty: none
  const char* help;
};

// In the order of a page, and of Number.
inline constexpr Family kFamilies[] = {
    {"switchyard_build_info", "gauge", Of::kMonitor, "version,driver_version",
     "Always 1; its labels are the versions of the monitor and of the driver."},
    {"switchyard_start_time_seconds", "gauge", Of::kMonitor, "",
     "When the monitor started, since 1970. Its counters began at 0 then."},
    {"switchyard_series_dropped", "gauge", Of::kMonitor, "",
     "Series left out of this page, because it would have too many."},
    {"switchyard_jobs", "gauge", Of::kMonitor, "", "Jobs that the monitor manages now."},
    {"switchyard_host_pool_size_bytes", "gauge", Of::kMonitor, "",
     "Host memory that may be pinned for data that is swapped out."},
    {"switchyard_host_pool_used_bytes", "gauge", Of::kMonitor, "",
     "Host memory that is pinned for data that is swapped out."},
    {"switchyard_gpu_busy_seconds_total", "counter", Of::kGpu, "",
     "GPU time of all jobs that the monitor manages or managed."},
    {"switchyard_gpu_memory_total_bytes", "gauge", Of::kGpu, "", "Memory of the GPU, by NVML."},
    {"switchyard_gpu_memory_used_bytes", "gauge", Of::kGpu, "",
     "Memory of the GPU that anybody uses, by NVML."},
    {"switchyard_gpu_unmanaged_memory_bytes", "gauge", Of::kGpu, "",
     "GPU memory of processes that the monitor does not manage, by NVML."},
    {"switchyard_gpu_unmanaged_processes", "gauge", Of::kGpu, "",
     "Processes on the GPU that the monitor does not manage, by NVML."},
    {"switchyard_gpu_backend", "gauge", Of::kGpu, "backend",
     "1 for what enforces shares on the GPU: slice, gate, slice+gate or none."},
    {"switchyard_user_gpu_seconds_total", "counter", Of::kUser, "",
     "GPU time of all jobs of the user, those that ended included."},
    {"switchyard_user_unmanaged_gpu_seconds_total", "counter", Of::kUser, "",
     "GPU time of the user's unmanaged processes: an estimate, by NVML's samples."},
    {"switchyard_user_unmanaged_memory_bytes", "gauge", Of::kUser, "",
     "GPU memory of the user's unmanaged processes, by NVML."},
    {"switchyard_gpu_seconds_total", "counter", Of::kJob, "",
     "GPU time of the job: measured, but for switchyard_gpu_seconds_estimated_total of it."},
    {"switchyard_gpu_seconds_estimated_total", "counter", Of::kJob, "",
     "The part of switchyard_gpu_seconds_total that is an estimate: other jobs had the GPU "
     "meanwhile by time slices. Over seconds it may be wrong by two thirds."},
    {"switchyard_wait_seconds_total", "counter", Of::kJob, "reason",
     "Time that the job could not use the GPU, by what held it; slices: other jobs had it."},
    {"switchyard_memory_used_bytes", "gauge", Of::kJob, "",
     "Memory of the job, contexts included: resident on the GPU, or swapped out of it."},
    {"switchyard_memory_quota_bytes", "gauge", Of::kJob, "",
     "The job's quota; no series without one."},
    {"switchyard_memory_swapped_bytes", "gauge", Of::kJob, "",
     "The part of switchyard_memory_used_bytes that is swapped out."},
    {"switchyard_share_ratio", "gauge", Of::kJob, "",
     "Part of the GPU's time that the job has now; no series where nobody knows it."},
    {"switchyard_limit_ratio", "gauge", Of::kJob, "",
     "The job's --limit, as a part of the GPU's time; no series without one."},
    {"switchyard_switches_total", "counter", Of::kJob, "",
     "Times that the job's gate opened: turns, limits, guards and pauses. Slices are not counted."},
    {"switchyard_swap_bytes_total", "counter", Of::kJob, "direction",
     "Bytes of the job that were copied out to the host, or back in."},
    {"switchyard_refusals_total", "counter", Of::kJob, "reason",
     "Allocations that were refused: quota, gpu (it is full), wait (in vain), other."},
    {"switchyard_job_state", "gauge", Of::kJob, "state",
     "1 for the state that `switchyard ps` shows of the job there, 0 for each other one."},
    {"switchyard_stalled_ranks", "gauge", Of::kJob, "",
     "Ranks of the job, on all GPUs, that other ranks wait for."},
    {"switchyard_burst_wait_seconds", "histogram", Of::kJob, "le",
     "Waits of the CPU of a high job for the GPU, at the end of a burst of launches. They contain "
     "the job's own work. They are seen while a lower job works beside it; of more than eight "
     "between two looks, the last eight."},
};

std::string render(const Snapshot& snapshot, std::size_t most_series = kMostSeries);

// `text` between the quotes of a label: escaped, and what is no UTF-8 replaced. One such byte would
// make Prometheus refuse the whole page.
std::string label_text(std::string_view text);
// The key of a state in `switchyard_job_state`.
const char* state_name(std::size_t state);

}  // namespace switchyard::monitor::metrics
