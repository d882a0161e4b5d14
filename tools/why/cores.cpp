#include "tools/why/cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::map<pid_t, std::uint64_t> of_threads(const std::string& process) {
  std::map<pid_t, std::uint64_t> out;
  std::error_code gone;
  for (const auto& task : fs::directory_iterator(process + "/task", gone)) {
    std::uint64_t ran = 0, waited = 0;
    std::ifstream file(task.path() / "schedstat");
    if (file >> ran >> waited) out[std::atoi(task.path().filename().c_str())] = waited;
  }
  return out;
}

}  // namespace

CoreWaits core_waits_of_members(const json& jobs, const std::string& root) {
  CoreWaits out;
  for (const json& job : jobs) {
    if (text_of(job, "island", "").empty() || truth_of(job, "island_server")) continue;
    for (const json& process : list_of(job, "processes")) {
      const auto pid = static_cast<pid_t>(number_of(process, "pid"));
      const std::string folder = fmt::format("{}/{}", root, pid);
      std::string name;
      std::getline(std::ifstream(folder + "/comm"), name);
      if (!name.empty() && name == text_of(process, "name")) out[pid] = of_threads(folder);
    }
  }
  return out;
}

double waited_for_cores(const CoreWaits& before, const CoreWaits& after, pid_t pid,
                        double seconds) {
  const auto earlier = before.find(pid), later = after.find(pid);
  if (earlier == before.end() || later == after.end() || seconds <= 0) return 0;
  std::uint64_t most = 0;
  for (const auto& [thread, waited] : later->second) {
    const auto was = earlier->second.find(thread);
    if (was != earlier->second.end() && waited > was->second) {
      most = std::max(most, waited - was->second);
    }
  }
  return std::min(static_cast<double>(most) / 1e9 / seconds, 1.0);
}

}  // namespace switchyard::tools
