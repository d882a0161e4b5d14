#include "tools/pause/watchdogs.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <set>
#include <string_view>

#include "tools/base/output.h"

namespace switchyard::tools {
namespace {

constexpr double kHeartbeat = 480, kProcessGroup = 600, kVllmCall = 300;

std::optional<std::string> value_in(const Watched& process, std::string_view name) {
  if (!process.environment) return std::nullopt;
  for (const std::string& each : *process.environment) {
    if (each.size() > name.size() && each[name.size()] == '=' && each.starts_with(name)) {
      return each.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

// `usual` where it says nothing that is a time.
double seconds_in(const Watched& process, std::string_view name, double usual) {
  const auto text = value_in(process, name);
  double seconds = 0;
  if (!text) return usual;
  const char* const end = text->data() + text->size();
  const auto read = std::from_chars(text->data(), end, seconds);
  return read.ec == std::errc() && read.ptr == end && seconds > 0 ? seconds : usual;
}

bool is_vllm(const Watched& process) {
  std::string name = process.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  const auto starts = [](const std::string& each) { return each.starts_with("VLLM_"); };
  return name.find("vllm") != std::string::npos ||
         (process.environment &&
          std::any_of(process.environment->begin(), process.environment->end(), starts));
}

std::optional<std::vector<std::string>> environment_of(pid_t pid) {
  const std::string folder = "/proc/" + std::to_string(pid);
  struct stat owner {};
  if (pid <= 0 || ::stat(folder.c_str(), &owner) != 0 || owner.st_uid != ::geteuid()) return {};
  std::ifstream file(folder + "/environ");
  if (!file) return {};
  std::vector<std::string> out;
  for (std::string each; std::getline(file, each, '\0');) out.push_back(each);
  return out;
}

}  // namespace

std::optional<Watchdog> first_watchdog(const std::vector<Watched>& processes) {
  std::optional<Watchdog> out;
  const auto add = [&](const char* name, const char* changed_by, double seconds) {
    if (!out || seconds < out->seconds) out = Watchdog{name, changed_by, seconds, true};
  };
  for (const Watched& each : processes) {
    if (is_vllm(each)) {
      add("vLLM's calls of its workers", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
          seconds_in(each, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", kVllmCall));
    }
    if (!each.ranks) continue;
    if (value_in(each, "TORCH_NCCL_ENABLE_MONITORING") != "0") {
      add("PyTorch's NCCL heartbeat", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
          seconds_in(each, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", kHeartbeat));
    }
    add("PyTorch's process group", "init_process_group(timeout=...)", kProcessGroup);
  }
  if (out) {
    out->known = std::all_of(processes.begin(), processes.end(), [](const Watched& each) {
      return each.environment || !(each.ranks || is_vllm(each));
    });
  }
  return out;
}

std::vector<Watched> watched(const nlohmann::json& job) {
  std::set<std::uint64_t> ranks;
  for (const auto& communicator : list_of(job, "communicators")) {
    if (number_of(communicator, "size") < 2) continue;
    for (const auto& rank : list_of(communicator, "ranks")) ranks.insert(number_of(rank, "pid"));
  }
  std::vector<Watched> out;
  for (const auto& process : list_of(job, "processes")) {
    const std::uint64_t pid = number_of(process, "pid");
    out.push_back(
        {ranks.contains(pid), text_of(process, "name"), environment_of(static_cast<pid_t>(pid))});
  }
  return out;
}

std::string safe_text(const Watchdog& watchdog) {
  return fmt::format("safe for {}{}, then {} may end it ({})", human_seconds(watchdog.seconds),
                     watchdog.known ? "" : " by what is known (not every environment can be read)",
                     watchdog.name, watchdog.changed_by);
}

nlohmann::json as_json(const std::optional<Watchdog>& watchdog) {
  if (!watchdog) return nullptr;
  return {{"name", watchdog->name},
          {"changed_by", watchdog->changed_by},
          {"safe_seconds", watchdog->seconds},
          {"environment_read", watchdog->known}};
}

}  // namespace switchyard::tools
