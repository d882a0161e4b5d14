#include "monitor/statistics/gradient_noise.h"

#include <algorithm>
#include <set>

namespace switchyard::monitor {
namespace {

bool is_followed(const CommunicatorReport& each) {
  return each.ranks > 1 && each.ranks <= GradientNoise::kMostRanks;
}

bool is_asked_for(const Registry& registry, const Client& client) {
  const auto job = registry.jobs().find(client.job);
  return !client.observer && job != registry.jobs().end() && job->second.knobs.gradient_noise != 0;
}

noise::Told told_of(const NormReport& norm, bool after_loss) {
  return {norm.launched,
          norm.elements,
          {(norm.what & abi::kNormSummed) != 0, (norm.what & abi::kNormScattered) != 0},
          norm.before,
          norm.after,
          after_loss};
}

}  // namespace

const char* key_of(GradientNoise::State state) {
  switch (state) {
    case GradientNoise::State::kMeasured:
      return "measured";
    case GradientNoise::State::kMeasuring:
      return "measuring";
    case GradientNoise::State::kUnclear:
      return "unclear";
    case GradientNoise::State::kOneRank:
      return "one_rank";
    case GradientNoise::State::kNoGradient:
      return "no_gradient";
    case GradientNoise::State::kNotMeasured:
      return "not_measured";
    case GradientNoise::State::kRanksMissing:
      return "ranks_missing";
    case GradientNoise::State::kSeveral:
      break;
  }
  return "several_communicators";
}

// pre: the user's number of groups is that of this tick.
GradientNoise::Group* GradientNoise::group_of(const Client& client,
                                              const CommunicatorReport& said) {
  std::size_t& groups = groups_of_[client.peer.account()];
  auto found = groups_.find({client.job, said.id});
  const bool fresh = found == groups_.end() || !found->second.lives;
  if (fresh && groups == kMostGroupsOfUser) return nullptr;
  if (found == groups_.end()) {
    found = groups_.try_emplace({client.job, said.id}, said.ranks).first;
  }
  groups += fresh ? 1 : 0;
  found->second.lives = true;
  return &found->second;
}

void GradientNoise::find_groups(Look& look) {
  for (const CommunicatorReport& each : look.client->page->communicators()) {
    if (!is_followed(each)) continue;
    Group* const group = group_of(*look.client, each);
    if (group == nullptr) continue;
    ++group->tellers;
    look.places.push_back({each, group});
  }
}

void GradientNoise::read(const Registry& registry, const Look& look) {
  const Client& client = *look.client;
  const uid_t account = client.peer.account();
  const std::size_t groups = groups_of_[account];
  std::map<unsigned, const Place*> places;  // by slot
  for (const Place& place : look.places) {
    Group& group = *place.group;
    group.ranks.bound(group.tellers,
                      part_of(kMostPendingOfUser, groups, noise::Ranks::kMostPending));
    group.estimator.bound(part_of(kMostEventsOfUser, groups, iterations::kMostEvents));
    client.page->write_norm_order(place.said, group.estimator.cadence());
    places[place.said.slot] = &place;
  }
  std::vector<NormReport> norms;
  const std::uint32_t came = client.page->read_norms(cursors_[client.id], norms);
  const std::size_t part = part_of(kMostReadOfUser, registry.clients_of(account), abi::kNorms);
  const bool lost = came > part;
  if (norms.size() > part)
    norms.erase(norms.begin(), norms.end() - static_cast<std::ptrdiff_t>(part));
  registry.work().add(norms.size());
  std::set<const Group*> told;
  for (const NormReport& norm : norms) {
    const auto place = places.find(norm.what % abi::kMostCommunicators);
    if (place == places.end()) continue;
    const auto& [said, group] = *place->second;
    const bool first = told.insert(group).second;
    for (const noise::Bucket& bucket : group->ranks.add(said.rank, told_of(norm, lost && first))) {
      group->estimator.add(bucket);
    }
  }
}

void GradientNoise::tick(const Registry& registry) {
  std::erase_if(cursors_,
                [&](const auto& each) { return !registry.clients().contains(each.first); });
  groups_of_.clear();
  for (auto& [key, group] : groups_) {
    group.lives = false;
    group.tellers = 0;
  }
  std::vector<Look> looks;
  for (const auto& [id, client] : registry.clients()) {
    if (!is_asked_for(registry, *client)) continue;
    looks.push_back({client.get(), {}});
    find_groups(looks.back());
    registry.work().add(1 + looks.back().places.size());
  }
  for (const Look& look : looks) read(registry, look);
  std::erase_if(groups_, [](const auto& each) { return !each.second.lives; });
}

// The one whose sums repeat; else one that has told of any; else any.
const GradientNoise::Group* GradientNoise::choose(const Job& job, Report& report) const {
  const Group* chosen = nullptr;
  std::size_t periodic = 0;
  const auto worth = [](const Group& group) {
    return group.estimator.periodic() ? 2 : group.ranks.telling() != 0 ? 1 : 0;
  };
  for (auto each = groups_.lower_bound({job.key, 0});
       each != groups_.end() && each->first.first == job.key; ++each) {
    const Group& group = each->second;
    periodic += group.estimator.periodic() ? 1 : 0;
    if (chosen != nullptr && worth(group) <= worth(*chosen)) continue;
    chosen = &group;
    report.communicator = each->first.second;
  }
  if (periodic > 1) report.state = State::kSeveral;
  return chosen;
}

GradientNoise::Report GradientNoise::of(const Registry& registry, const Job& job) const {
  Report report;
  for (const ClientId id : job.clients) {
    const auto client = registry.clients().find(id);
    if (client == registry.clients().end() || client->second->observer) continue;
    report.unmeasured |= client->second->page->unmeasured();
  }
  const Group* group = choose(job, report);
  if (report.state == State::kSeveral) {
    report.communicator = 0;
    return report;
  }
  if (group == nullptr) return report;
  report.ranks = group->ranks.size();
  report.telling = group->ranks.telling();
  if (report.telling == 0) {
    report.communicator = 0;
    report.state = report.unmeasured != 0 ? State::kNotMeasured : State::kNoGradient;
    return report;
  }
  report.result = group->estimator.result();
  report.state = report.result ? report.result->ratio ? State::kMeasured : State::kUnclear
                 : report.telling < report.ranks ? State::kRanksMissing
                                                 : State::kMeasuring;
  return report;
}

}  // namespace switchyard::monitor
