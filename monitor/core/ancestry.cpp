#include "monitor/core/ancestry.h"

#include <cstdlib>
#include <map>
#include <string>

#include "monitor/platform/process_stat.h"

namespace switchyard::monitor {

pid_t process_parent(pid_t pid) {
  const std::string word = word_of_stat("/proc/" + std::to_string(pid) + "/stat", kStatParent);
  return static_cast<pid_t>(std::strtol(word.c_str(), nullptr, 10));
}

const Job* job_by_descent(const Registry& registry, pid_t pid) {
  std::map<pid_t, const Job*> owners;
  for (const auto& [key, job] : registry.jobs()) {
    if (job.creator > 0) owners.emplace(job.creator, &job);
  }
  for (const auto& [id, client] : registry.clients()) {
    const auto job = registry.jobs().find(client->job);
    if (client->peer.pid > 0 && job != registry.jobs().end()) {
      owners.emplace(client->peer.pid, &job->second);
    }
  }
  if (owners.empty()) return nullptr;
  constexpr int kMostAncestors = 32;  // a chain that is longer is not worth the time of the loop
  for (int i = 0; i < kMostAncestors && pid > 1; ++i) {
    const auto owner = owners.find(pid);
    if (owner != owners.end()) return owner->second;
    pid = process_parent(pid);
  }
  return nullptr;
}

}  // namespace switchyard::monitor
