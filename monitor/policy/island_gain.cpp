#include "monitor/policy/island_gain.h"

#include <algorithm>
#include <utility>

namespace switchyard::monitor::policy {
namespace {

constexpr Time kLooksEvery = std::chrono::seconds(1);
constexpr unsigned kLeastLooks = 4;
constexpr unsigned kMostLooks = 10;

}  // namespace

void IslandGain::Mean::add(double sample) {
  looks = std::min(looks + 1, kMostLooks);
  value += (sample - value) / looks;
}

void IslandGain::look(const std::vector<Member>& members, bool others_work, Time now) {
  const Time span = now - looked_at_;
  if (looked_at_ != Time{0} && span < kLooksEvery) return;
  const bool first = std::exchange(looked_at_, now) == Time{0};
  std::map<std::uint64_t, double> rates;  // of those that worked
  std::set<std::uint64_t> there, working;
  for (const Member& member : members) {
    there.insert(member.job);
    const auto [at, fresh] = known_.try_emplace(member.job);
    const std::uint64_t before = std::exchange(at->second.work, member.work);
    if (fresh || first || member.work <= before) continue;
    working.insert(member.job);
    rates[member.job] = static_cast<double>(member.work - before) / seconds(span);
  }
  std::erase_if(known_, [&](const auto& each) { return !there.contains(each.first); });
  const bool same = std::exchange(working_, working) == working;
  if (!same) {
    for (auto& [job, each] : known_) each.together = {};
  }
  if (others_work || !same) return;
  for (const Member& member : members) {
    if (!rates.contains(member.job)) continue;
    Known& known = known_[member.job];
    (rates.size() == 1 ? known.alone : known.together).add(rates[member.job]);
    if (rates.size() == 1) known.busy.add(member.busy);
  }
}

std::optional<IslandGain::Figures> IslandGain::figures() const {
  if (working_.size() < 2) return std::nullopt;
  double island = 0, busy = 0;
  for (const std::uint64_t job : working_) {
    const Known& known = known_.at(job);
    const bool enough = known.alone.looks >= kLeastLooks && known.together.looks >= kLeastLooks;
    if (!enough || known.alone.value <= 0 || known.busy.value <= 0) return std::nullopt;
    island += known.together.value / known.alone.value;
    busy += known.busy.value;
  }
  return Figures{island, static_cast<double>(working_.size()) / std::max(busy, 1.0)};
}

}  // namespace switchyard::monitor::policy
