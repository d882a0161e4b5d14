// What the jobs on one GPU tell to those who grant turns on several, and what these told.
#include "monitor/policy/contenders.h"

namespace switchyard::monitor::policy {
namespace {

bool is_gang(const Rider& rider) { return rider.view->gang; }

Claim& claim_of(std::vector<Claim>& claims, const Rider& rider) {
  const auto at = std::find_if(claims.begin(), claims.end(),
                               [&](const Claim& claim) { return claim.job == rider.job(); });
  if (at != claims.end()) return *at;
  Claim& fresh = claims.emplace_back();
  fresh.job = rider.job();
  fresh.gang = rider.view->gang;
  fresh.stops = rider.view->stops;
  fresh.stopped = rider.view->stopped;
  return fresh;
}

}  // namespace

void list_claims(Tick& tick, const TurnQueue* queue) {
  if (!any_rider(tick, is_gang)) return;
  for (const Rider& rider : tick.riders) {
    const Contender* const turns = queue != nullptr ? queue->find(rider.job()) : nullptr;
    const bool metered = is_gang(rider) && rider.limited();
    if (turns == nullptr && !metered) continue;
    Claim& claim = claim_of(tick.plan.claims, rider);
    claim.wants = claim.wants || rider.state->wants;
    claim.drained = claim.drained && drained(rider, tick.now);
    claim.metered = metered;
    claim.spent = rider.limited() && tick.state.jobs[rider.job()].spent;
    if (turns == nullptr) continue;
    claim.takes_turns = true;
    claim.rank = turns->rank;
    claim.turn_ns = queue->turn_ns(rider.job());
  }
}

bool is_granted(const Tick& tick, const TurnQueue& queue) {
  return any_rider(tick, [&](const Rider& rider) {
    return rider.view->grant != Grant::kLocal && queue.find(rider.job()) != nullptr;
  });
}

void hold_ungranted(const Tick& tick) {
  for (const Rider& rider : tick.riders) {
    if (rider.view->grant == Grant::kLocal || !rider.view->gateable) continue;
    rider.arm();
    if (rider.view->grant == Grant::kClosed) rider.close(abi::kClosedByTurn);
  }
}

}  // namespace switchyard::monitor::policy
