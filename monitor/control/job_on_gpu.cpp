#include "monitor/control/job_on_gpu.h"

#include <algorithm>

#include "monitor/control/reply.h"
#include "monitor/core/lanes.h"

namespace switchyard::monitor {
namespace {

using nlohmann::json;

const char* slice_status(std::uint32_t status) {
  return status == abi::kSliceAccepted  ? "accepted"
         : status == abi::kSliceRefused ? "refused"
                                        : "none";
}

const char* gate_status(std::uint32_t state) {
  return state == abi::kGateReady ? "ready" : state == abi::kGateRefused ? "refused" : "none";
}

const char* gate_text(std::uint32_t closed) {
  const char* key = stalls::key_of(hold_of_gate(closed));
  return key != nullptr ? key : "open";
}

// The shares of a lane are smoothed over a second, so what was divided three of them ago is gone.
bool was_divided(const Client::Lane& lane, Time now) {
  return lane.had.divided_at != Time{0} && now - lane.had.divided_at < std::chrono::seconds(3);
}

// Why the last move has not come to its end; null: it has.
json swap_error(const Job& job, const OnGpu& sums) {
  if (job.memory->failure.failed) return failure_text(job.memory->failure);
  if (!job.knobs.swappable || sums.swap_error == abi::kSwapFine) return nullptr;
  return failure_text(sums.swap_error, sums.swap_result);
}

// That is no failure, but what turns are made of.
bool waits_for_room(const Job& job, const OnGpu& sums) {
  return !job.memory->failure.failed && sums.swap_error == abi::kSwapNoDeviceRoom;
}

void add_memory(OnGpu& out, const GpuAccounts::Gpu& at, const Client& client, unsigned lane,
                const Client::Lane& state) {
  const ResidencyReport& said = state.residency;
  if (const Account::Holding* holding = at.account.holding(client.id)) {
    out.used += holding->used() + holding->overhead;
    out.overhead += holding->overhead;
    out.away += std::min(said.away_bytes(), holding->used());
    out.memory.add(client.page->memory(lane), holding->used(), said.total_bytes,
                   at.memory.total_bytes);
  }
  out.host_pool += said.host_bytes;
  out.parked += state.parker.there;
  if (state.parker.there != 0) out.parked_on.insert(state.parker.on);
  if (state.not_parked != nullptr) out.not_parked = state.not_parked;
  out.moves += said.moves;
  // The job tells the error of an earlier attempt there, until the next one.
  if (!said.resident() && said.error != abi::kSwapFine) {
    out.swap_error = said.error;
    out.swap_result = said.swap_result;
  }
}

void add_work(OnGpu& out, const LaneReport& report, const Client::Lane& state, Time now) {
  out.launches += report.launches;
  out.graph_launches += report.graph_launches;
  out.copies += report.copies;
  out.link_bytes += report.link_bytes;
  out.device_bytes += report.device_bytes;
  out.refusals += report.refusals;
  if (state.load >= 0) out.load = std::max(out.load, 0.0) + state.load;
  out.asked = std::max(out.asked, state.share_asked);
  if (state.share_got >= 0) out.got = std::max(out.got, 0.0) + state.share_got;
  out.estimated = out.estimated || was_divided(state, now);
  out.closed |= state.order.closed;
  out.armed = out.armed || state.order.armed || state.order.closed != 0;
  out.held_threads += state.gate.held_threads;
  out.gate_waits += state.gate.waits;
  out.gate_state = std::max(out.gate_state, state.gate.state);
}

}  // namespace

OnGpu add_up(Monitor& monitor, const Job& job, std::size_t gpu, Time now) {
  OnGpu out;
  for (const ClientId id : job.clients) {
    const Client* client = monitor.registry().client(id);
    if (client == nullptr || client->observer) continue;
    for (const auto& [lane, state] : client->lanes) {
      if (state.gpu != gpu) continue;
      const LaneReport report = client->page->report(lane);
      add_memory(out, monitor.gpus().all()[gpu], *client, lane, state);
      add_work(out, report, state, now);
      if (const char* waits_for = monitor.scheduler().waits_for(gpu, id)) out.waits_for = waits_for;
      // Of several processes the listing shows an active one's slices.
      if ((state.active && !out.active) || !out.shown) {
        out.shown = true;
        out.slices = monitor.slice_controller().wanted(gpu, id);
        out.in_force_us = report.compute_slice_applied_us;
        out.status = report.slice_status;
      }
      out.active = out.active || state.active;
    }
  }
  return out;
}

json list_on_gpu_briefly(Monitor& monitor, const Job& job, std::size_t gpu, const OnGpu& sums) {
  const GpuAccounts::Gpu& at = monitor.gpus().all()[gpu];
  const auto quota = at.account.quota(job.key);
  // NVML counts the time in which a kernel was resident, also of those that waited for a slice.
  const double got = sums.got >= 0 ? sums.got : sums.load;
  return {
      {"uuid", at.info.uuid_text},
      {"index", at.info.index},
      {"memory_used_bytes", sums.used},
      {"memory_resident_bytes", sums.used - sums.away},
      {"memory_swapped_bytes", sums.away},
      {"memory_swappable_bytes", sums.memory.swappable_bytes()},
      {"memory_quota_bytes", quota ? json(quota->bytes) : json(nullptr)},
      {"swap_error", swap_error(job, sums)},
      {"swap_waits_for_room", waits_for_room(job, sums)},
      {"share_got_ratio", got >= 0 ? json(std::min(got, 1.0)) : json(nullptr)},
      {"share_got_estimated", sums.estimated},
      {"launches", sums.launches},
      {"graph_launches", sums.graph_launches},
      {"copies", sums.copies},
      {"active", sums.active},
  };
}

void list_rest_on_gpu(Monitor& monitor, const Job& job, std::size_t gpu, const OnGpu& sums,
                      json& out) {
  const auto quota = monitor.gpus().all()[gpu].account.quota(job.key);
  json parked_on = json::array();
  for (const std::size_t other : sums.parked_on) {
    parked_on.push_back(monitor.gpus().all()[other].info.uuid_text);
  }
  out.update({
      {"memory_overhead_bytes", sums.overhead},
      {"memory_parked_bytes", sums.parked},
      {"parked_on", std::move(parked_on)},
      {"not_parked_reason", sums.not_parked != nullptr ? json(sums.not_parked) : json(nullptr)},
      {"host_pool_bytes", sums.host_pool},
      {"residency", to_string(residency_on(monitor.registry(), job, gpu))},
      {"swap_moves", sums.moves},
      {"memory_reserved", quota && quota->reserved},
      {"share_asked_ratio", sums.asked},
      {"compute_slice_us", sums.slices.compute_us},
      {"copy_slice_us", sums.slices.copy_us},
      {"slice_in_force_us", sums.in_force_us},
      {"waits_for", sums.waits_for != nullptr ? json(sums.waits_for) : json(nullptr)},
      {"slice_status", slice_status(sums.status)},
      {"gate", gate_text(sums.closed)},
      {"gate_armed", sums.armed},
      {"gate_status", gate_status(sums.gate_state)},
      {"gate_waits", sums.gate_waits},
      {"held_threads", sums.held_threads},
      {"copied_link_bytes", sums.link_bytes},
      {"copied_device_bytes", sums.device_bytes},
      {"refusals", sums.refusals},
  });
  sums.memory.list(out);
}

}  // namespace switchyard::monitor
