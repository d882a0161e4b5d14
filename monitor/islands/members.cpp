#include "monitor/islands/members.h"

#include <fmt/format.h>

namespace switchyard::monitor {

struct IslandMembers {
  static std::uint64_t& island_of(Job& job) { return job.island.write(); }
};

namespace islands {
namespace {

// Neither a job nor a client has such a number.
constexpr std::uint64_t kIslandBit = std::uint64_t{1} << 63;

bool is_of(const Job& job, const Owner& owner, const std::string& island) {
  return *job.island != 0 && job.knobs.co_run == island && owner_of(job) == owner;
}

// A member of the island that has another class; null: there is none.
const Job* of_another_class(const Registry& registry, const Owner& owner, const std::string& island,
                            Priority wanted) {
  for (const auto& [key, job] : registry.jobs()) {
    const bool member = is_of(job, owner, island) && !serves(job);
    if (member && job.knobs.priority != wanted) return &job;
  }
  return nullptr;
}

std::string refuse_beside(const Job& other, const std::string& island, Priority wanted) {
  return fmt::format(
      "island '{}' has job '{}' of priority {}, so none of priority {}: its jobs have the GPU at "
      "the same time; leave --co-run out, or name another island",
      island, other.name, to_string(other.knobs.priority), to_string(wanted));
}

}  // namespace

std::string refuse(const Registry& registry, const Owner& owner, const Knobs& knobs) {
  if (knobs.co_run.empty() || !knobs.island_gpu.empty()) return {};
  if (knobs.idle_release.contexts) {
    return "a job in an island keeps its contexts: --idle-release TIME without ,contexts";
  }
  if (const Job* other = of_another_class(registry, owner, knobs.co_run, knobs.priority)) {
    return refuse_beside(*other, knobs.co_run, knobs.priority);
  }
  const auto& jobs = registry.jobs();
  const auto members = std::count_if(jobs.begin(), jobs.end(), [&](const auto& each) {
    return is_of(each.second, owner, knobs.co_run) && !serves(each.second);
  });
  if (static_cast<std::size_t>(members) < kMostMembers) return {};
  return fmt::format("island '{}' has {} jobs, and its server takes no more: name another island",
                     knobs.co_run, members);
}

void enter(const Registry& registry, Job& job) {
  if (job.knobs.co_run.empty()) return;
  std::uint64_t& island = IslandMembers::island_of(job);
  for (const auto& [key, other] : registry.jobs()) {
    if (key != job.key && is_of(other, owner_of(job), job.knobs.co_run)) island = *other.island;
  }
  if (island == 0) island = kIslandBit | job.key;
}

std::vector<JobKey> others_of(const Registry& registry, const Job& job) {
  std::vector<JobKey> out;
  for (const auto& [key, other] : registry.jobs()) {
    const bool same = is_member(job) && is_member(other) && *other.island == *job.island;
    if (same && key != job.key) out.push_back(key);
  }
  return out;
}

}  // namespace islands
}  // namespace switchyard::monitor
