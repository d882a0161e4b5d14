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

void GradientNoise::look(const Client& client) {
  std::map<unsigned, std::pair<std::uint32_t, Group*>> places;  // rank and group, by slot
  for (const CommunicatorReport& each : client.page->communicators()) {
    if (!is_followed(each)) continue;
    const Key key{client.job, each.id};
    Group& group = groups_.try_emplace(key, each.ranks).first->second;
    group.lives = true;
    places[each.slot] = {each.rank, &group};
    client.page->write_norm_order(each, group.estimator.cadence());
  }
  std::vector<NormReport> norms;
  const bool lost = client.page->read_norms(cursors_[client.id], norms) > abi::kNorms;
  std::set<const Group*> told;
  for (const NormReport& norm : norms) {
    const auto place = places.find(norm.what % abi::kMostCommunicators);
    if (place == places.end()) continue;
    const auto& [rank, group] = place->second;
    const bool first = told.insert(group).second;
    for (const noise::Bucket& bucket : group->ranks.add(rank, told_of(norm, lost && first))) {
      group->estimator.add(bucket);
    }
  }
}

void GradientNoise::tick(const Registry& registry) {
  std::erase_if(cursors_,
                [&](const auto& each) { return !registry.clients().contains(each.first); });
  for (auto& [key, group] : groups_) group.lives = false;
  for (const auto& [id, client] : registry.clients()) {
    if (is_asked_for(registry, *client)) look(*client);
  }
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
