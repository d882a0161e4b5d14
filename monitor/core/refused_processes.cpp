#include "monitor/core/refused_processes.h"

#include <algorithm>

namespace switchyard::monitor {

bool RefusedProcesses::note(const Peer& peer, const std::string& why, std::uint32_t layout,
                            Time now) {
  std::erase_if(all_, [&](const auto& each) { return now - each.second.asked_at > kForgotten; });
  const auto known = all_.find({peer.pid, peer.uid});
  if (known == all_.end()) {
    const auto of_user = std::count_if(
        all_.begin(), all_.end(), [&](const auto& each) { return each.first.second == peer.uid; });
    if (static_cast<std::size_t>(of_user) >= kMostOfUser || all_.size() >= kMost) return false;
    all_.emplace(std::pair(peer.pid, peer.uid), Refused{why, layout, now});
    return true;
  }
  const bool other = known->second.why != why;
  known->second = {why, layout, now, known->second.job};
  return other;
}

std::map<JobKey, std::uint32_t> RefusedProcesses::layouts(
    const std::function<JobKey(pid_t)>& job_of, Time now) {
  std::map<JobKey, std::uint32_t> out;
  for (auto& [peer, refused] : all_) {
    if (refused.layout == 0 || now - refused.asked_at > kForgotten) continue;
    if (!refused.job) refused.job = job_of(peer.first);
    if (*refused.job != 0) out.try_emplace(*refused.job, refused.layout);
  }
  return out;
}

std::uint32_t RefusedProcesses::layout_of(pid_t pid, Time now) const {
  const auto first = all_.lower_bound({pid, 0});
  if (pid <= 0 || first == all_.end() || first->first.first != pid) return 0;
  return now - first->second.asked_at <= kForgotten ? first->second.layout : 0;
}

}  // namespace switchyard::monitor
