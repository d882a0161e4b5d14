#include "tools/base/unserved.h"

#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <optional>

#include "switchyard/claim.h"
#include "switchyard/fd.h"
#include "switchyard/paths.h"
#include "switchyard/printable.h"
#include "tools/base/nvml_report.h"
#include "tools/base/output.h"
#include "tools/base/sockets.h"

namespace switchyard::tools {
namespace {

constexpr int kAnswerMs = 500;

std::string user_name(uid_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry != nullptr ? printable(entry->pw_name) : std::to_string(uid);
}

// Empty when the process has ended.
std::string process_name(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return printable(name);
}

// Not the owner of /proc/PID: a process can make that root.
std::optional<uid_t> process_uid(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string word; file >> word;) {
    uid_t real = 0;
    uid_t effective = 0;
    if (word == "Uid:" && file >> real >> effective) return effective;
  }
  return std::nullopt;
}

// "the monitor of alice (pid 7)", for whoever claims the GPU; empty: nobody does that we can see.
std::string holder_of(const std::string& uuid) {
  sockaddr_un address{};
  const socklen_t length = claim_address(uuid, address);
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred holder{};
  socklen_t bytes = sizeof(holder);
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &holder, &bytes) != 0) {
    return {};
  }
  // Anybody can claim a GPU: only root's words and one's own are worth the wait.
  char words[256] = "";
  pollfd answer{fd.get(), POLLIN, 0};
  if ((holder.uid == 0 || holder.uid == ::geteuid()) && ::poll(&answer, 1, kAnswerMs) > 0) {
    [[maybe_unused]] const ssize_t got = ::recv(fd.get(), words, sizeof(words) - 1, 0);
  }
  return fmt::format("the monitor of {} (pid {}{}{})", user_name(holder.uid), holder.pid,
                     words[0] != '\0' ? ", " : "", printable(words));
}

}  // namespace

bool is_unserved(const Error& error) {
  return error.code == kMonitorUnreachable && monitor_absent();
}

void say_unserved() {
  if (system_monitor_serves(own_socket())) {
    complain("the system monitor is down (root: 'systemctl status switchyardd')");
  } else {
    complain("no monitor runs here; the next `switchyard run -- COMMAND` starts one");
  }
  for (const NvmlGpu& gpu : ask_nvml().gpus) {
    const std::string holder = holder_of(gpu.uuid);
    if (holder.empty()) continue;
    complain(
        fmt::format("GPU {} is managed by {}; for all users: 'sudo systemctl enable --now "
                    "switchyardd'",
                    gpu.index, holder));
  }
}

bool say_observed(const nlohmann::json& listing) {
  const auto monitor = listing.find("monitor");
  if (monitor == listing.end() || !truth_of(*monitor, "observes")) return false;
  complain(fmt::format("no monitor manages jobs here; {} of {} (pid {}) only observes",
                       text_of(*monitor, "socket"), text_of(*monitor, "user"),
                       number_of(*monitor, "pid")));
  return true;
}

nlohmann::json list_gpus_unserved(std::string& problem) {
  const NvmlReport report = ask_nvml();
  problem = report.problem;
  nlohmann::json gpus = nlohmann::json::array();
  for (const NvmlGpu& gpu : report.gpus) {
    gpus.push_back({{"index", gpu.index},
                    {"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"driver_version", report.driver_version},
                    {"memory_total_bytes", gpu.total_bytes},
                    {"memory_used_bytes", gpu.used_bytes}});
  }
  return {{"monitor", nullptr}, {"gpus", std::move(gpus)}};
}

nlohmann::json list_unserved() {
  nlohmann::json outside = nlohmann::json::array();
  for (const NvmlGpu& gpu : ask_nvml().gpus) {
    if (gpu.processes.empty()) continue;
    const std::string holder = holder_of(gpu.uuid);
    for (const NvmlProcess& process : gpu.processes) {
      const auto uid = process_uid(process.pid);
      outside.push_back(
          {{"pid", process.pid},
           {"name", process_name(process.pid)},
           {"user", uid ? nlohmann::json(user_name(*uid)) : nlohmann::json()},
           {"uid", uid ? nlohmann::json(*uid) : nlohmann::json()},
           {"container", nullptr},
           {"pod", nullptr},
           {"unit", nullptr},
           {"command", nullptr},
           {"gpu_uuid", gpu.uuid},
           {"gpu_index", gpu.index},
           {"memory_used_bytes", process.bytes},
           {"share_got_ratio", nullptr},
           {"share_got_estimated", true},
           {"since_seconds", nullptr},
           {"library_layout", nullptr},
           {"hint", holder.empty() ? nlohmann::json() : nlohmann::json("GPU of " + holder)}});
    }
  }
  return {{"monitor", nullptr}, {"jobs", nlohmann::json::array()}, {"outside", std::move(outside)}};
}

}  // namespace switchyard::tools
