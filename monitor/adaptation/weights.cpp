#include "monitor/adaptation/weights.h"

#include <spdlog/spdlog.h>

#include "monitor/core/lanes.h"

namespace switchyard::monitor {

bool Weights::is_contended(const Job& job) const {
  const std::set<std::size_t> gpus = used_gpus(registry_, job);
  bool contended = false;
  for (const auto& [key, other] : registry_.jobs()) {
    if (key == job.key) continue;
    for_lanes(registry_, other, [&](const Client&, unsigned, const Client::Lane& lane) {
      contended = contended || (lane.active && gpus.contains(lane.gpu));
    });
  }
  return contended;
}

provision::Look Weights::look_of(const Job& job, Found& found, Time now) {
  provision::Look out;
  // Of a job that others hold back, the weight is not its own.
  out.held = is_held(registry_, job) || !job.restraint->guarded.empty();
  out.contended = is_contended(job);
  out.most = job.most_weight;
  bool known = false;
  for_clients(registry_, job, [&](const Client& client) {
    const auto begun = known ? std::nullopt : reader_.read(registry_, progress_, client, now);
    if (!begun) return;
    known = true;
    out.began = begun->at;
    out.broken = begun->broken || found.looked_at != client.id;
    found.looked_at = client.id;
  });
  return out;
}

bool Weights::follow(Time now) {
  due_ = Time{0};
  bool changed = false;
  std::set<ClientId> read;
  for (auto& [key, job] : registry_.jobs()) {
    if (!job.knobs.share.automatic) {
      found_.erase(key);
      job.found_weight.write() = 0;
      continue;
    }
    due_ = now + kEvery;
    read.insert(job.clients.begin(), job.clients.end());
    // Each is looked at beside all others: many of one user are that user's to pay.
    if (!registry_.may_work(account_of(job))) continue;
    Found& found = found_[key];
    const auto before = found.state.phase;
    const std::uint64_t done = registry_.work().done();
    const provision::Look look = look_of(job, found, now);
    registry_.work().spend(account_of(job), registry_.work().done() - done);
    provision::next(found.state, look, now);
    const double weight = provision::weight_of(found.state.level);
    changed = changed || weight != *job.found_weight;
    job.found_weight.write() = weight;
    const bool settled = found.state.phase == provision::Phase::kSettled;
    if (settled && before != found.state.phase) {
      spdlog::info("job '{}': a weight of {:.3g} is the smallest that brings it nearly all",
                   job.name, weight_of(job));
    }
  }
  std::erase_if(found_, [&](const auto& each) { return registry_.find(each.first) == nullptr; });
  reader_.forget_all_but(read);
  return changed;
}

}  // namespace switchyard::monitor
