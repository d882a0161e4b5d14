// The part of Monitor that answers requests for memory, and logs those that it refuses.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "monitor/monitor.h"
#include "monitor/platform/text.h"

namespace switchyard::monitor {
namespace {

constexpr Time kRefreshPause = std::chrono::milliseconds(50);

}  // namespace

wire::Charged Monitor::charge(ClientId id, const wire::Charge& asked, Time now) {
  Client* client = registry_.client(id);
  if (client == nullptr || asked.lane >= client->page->lane_count()) {
    return {wire::kOverQuota, 0, 0, 0};
  }
  const wire::Charged charged = memory_.charge(*client, asked.lane, asked.bytes, now);
  const auto lane = client->lanes.find(asked.lane);
  if (lane != client->lanes.end() && charged.verdict != wire::kGranted &&
      charged.verdict != wire::kWait) {
    lane->second.refused_verdict = charged.verdict;
  }
  log_refused_memory(*client, asked, charged, now);
  return charged;
}

void Monitor::log_refused_memory(const Client& client, const wire::Charge& asked,
                                 const wire::Charged& charged, Time now) {
  bool last = false;
  const auto lane = client.lanes.find(asked.lane);
  if (charged.verdict == wire::kGranted || charged.verdict == wire::kWait ||
      lane == client.lanes.end() || !memory_lines_.may(client.job, now, last)) {
    return;
  }
  const std::size_t gpu = lane->second.gpu;
  note_refused_memory(client, asked, gpu, charged.verdict, now);
  const Job* job = registry_.find(client.job);
  const bool capped = !job->knobs.memory && job->ceiling_bytes;
  const std::string why = charged.verdict == wire::kOverQuota && capped
                              ? fmt::format("root allows {} here: {}",
                                            bytes_text(*job->ceiling_bytes), job->ceiling_rule)
                          : charged.verdict == wire::kOverQuota ? "its quota does not have it"
                          : charged.verdict == wire::kGpuFull   ? "the GPU does not have it"
                                                                : "it waited in vain";
  spdlog::warn(
      "job '{}' of {}: {} bytes refused to pid {} ({}) on GPU {}: {}; {} are left (once a minute)",
      job->name, user_name(job->uid), asked.bytes, client.peer.pid, client.process,
      gpus_[gpu].info.index, why, charged.available_bytes);
}

// As often as the log has it: a program may ask again and again.
void Monitor::note_refused_memory(const Client& client, const wire::Charge& asked, std::size_t gpu,
                                  std::uint32_t verdict, Time now) {
  HistoryEvent event = event_of(EventKind::kMemoryRefused, client.job, client.peer, now);
  set_gpu(event, gpu);
  event.value = asked.bytes;
  event.reason = static_cast<std::uint8_t>(verdict);
  journal_.take(event);
}

wire::Charged Monitor::refresh(ClientId id, const wire::Charge& asked, Time now) {
  Client* client = registry_.client(id);
  if (client == nullptr) return {};
  const auto lane = client->lanes.find(asked.lane);
  if (lane == client->lanes.end()) return {};
  const std::size_t gpu = lane->second.gpu;
  // A new context counts at once, or the quota is overdrawn by it. NVML takes milliseconds, so the
  // next tick measures a client that refreshes all the time.
  if (now - std::exchange(lane->second.refreshed_at, now) >= kRefreshPause) {
    sampler_.measure(gpu, now);
  } else {
    gpus_.all()[gpu].stale = true;
    gpus_.read_credits(gpu);
  }
  memory_.rebalance(gpu);
  memory_.write_pages(gpu, client->job);
  return {wire::kGranted, 0, 0, gpus_.all()[gpu].account.available(id)};
}

}  // namespace switchyard::monitor
