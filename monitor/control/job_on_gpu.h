// What `ps` says of a job on one GPU: what a table shows, and the rest, which is longer.
//
// Threading: one thread, the monitor's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>

#include "monitor/control/memory_listing.h"
#include "monitor/monitor.h"

namespace switchyard::monitor {

// One job's clients on one GPU, added up.
struct OnGpu {
  std::uint64_t used = 0, overhead = 0, away = 0, host_pool = 0, moves = 0;
  MemoryListing memory;
  std::uint32_t swap_error = abi::kSwapFine, swap_result = 0;
  std::uint64_t parked = 0;         // of what is away, on another GPU,
  std::set<std::size_t> parked_on;  // or several
  const char* not_parked = nullptr;
  std::uint64_t launches = 0, graph_launches = 0, copies = 0, refusals = 0;
  std::uint64_t link_bytes = 0, device_bytes = 0;
  double load = -1, asked = 0, got = -1;
  bool estimated = false;  // `got` is what slices allot
  bool active = false;
  bool shown = false;  // some client shows slices
  Slices slices;
  std::uint32_t in_force_us = 0, status = abi::kSliceNever;
  std::uint32_t closed = 0, held_threads = 0, gate_waits = 0;
  std::uint32_t gate_state = abi::kGateUnready;
  bool armed = false;
  const char* waits_for = nullptr;  // "gpu" or "cpu", of a high job beside a lower one
};

OnGpu add_up(Monitor& monitor, const Job& job, std::size_t gpu, Time now);

// What the table of `ps` shows, and what its notes need.
nlohmann::json list_on_gpu_briefly(Monitor& monitor, const Job& job, std::size_t gpu,
                                   const OnGpu& sums);
// Adds what it leaves out.
void list_rest_on_gpu(Monitor& monitor, const Job& job, std::size_t gpu, const OnGpu& sums,
                      nlohmann::json& out);

}  // namespace switchyard::monitor
