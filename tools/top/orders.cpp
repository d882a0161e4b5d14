#include "tools/top/orders.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "switchyard/fd.h"
#include "switchyard/pidfd.h"
#include "tools/base/monitor_client.h"
#include "tools/base/output.h"
#include "tools/pause/pause.h"
#include "tools/run/island/island.h"
#include "tools/set/set.h"

namespace switchyard::tools::top {
namespace {

using nlohmann::json;

// The job as it is now; null: it is not there.
json job_of(MonitorClient& monitor, const std::string& id) {
  const auto listing = monitor.ask({{"op", "ps"}});
  if (!listing) return nullptr;
  for (const json& job : list_of(*listing, "jobs")) {
    if (text_of(job, "job") == id) return job;
  }
  return nullptr;
}

// The process that listens there, by the kernel; 0: none that this PID namespace sees.
pid_t listener_of(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof(address.sun_path)) return 0;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred peer{};
  socklen_t bytes = sizeof(peer);
  const bool known =
      fd && ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0;
  return known ? peer.pid : 0;
}

// Whether the PIDs that the monitor tells are those of this process. A socket that systemd made is
// systemd's to the kernel.
bool shares_pids(MonitorClient& monitor) {
  const pid_t peer = listener_of(monitor.socket());
  if (peer == 1) return true;
  const auto status = monitor.ask({{"op", "status"}});
  if (!status || peer == 0) return false;
  const auto about = status->find("monitor");
  if (about != status->end() && number_of(*about, "pid") == static_cast<std::uint64_t>(peer)) {
    return true;
  }
  struct stat ours {
  }, theirs{};
  return ::stat("/proc/self/ns/pid", &ours) == 0 &&
         ::stat(fmt::format("/proc/{}/ns/pid", peer).c_str(), &theirs) == 0 &&
         ours.st_ino == theirs.st_ino;
}

std::map<std::uint64_t, Fd> open_processes(const json& job) {
  std::map<std::uint64_t, Fd> open;
  for (const json& process : list_of(job, "processes")) {
    const std::uint64_t pid = number_of(process, "pid");
    Fd fd = open_pidfd(static_cast<pid_t>(pid));
    if (fd) open.emplace(pid, std::move(fd));
  }
  return open;
}

// A client of an MPS server that a signal ends in the middle of its work may harm the others.
void leave_island(const json& job) {
  const std::string name = text_of(job, "island", "");
  if (name.empty() || truth_of(job, "island_server")) return;
  for (const json& gpu : list_of(job, "gpus")) {
    for (const json& process : list_of(job, "processes")) {
      island::terminate_client(name, text_of(gpu, "uuid"),
                               static_cast<int>(number_of(process, "pid")));
    }
  }
}

std::string end_job(const Order& order) {
  auto monitor = MonitorClient::connect_any();
  if (!monitor) return fmt::format("{}: not ended: {}", order.name, monitor.error().text);
  if (!shares_pids(*monitor)) {
    return fmt::format("{}: not ended: the monitor is in another PID namespace; use `kill` there",
                       order.name);
  }
  const auto open = open_processes(job_of(*monitor, order.id));
  std::size_t sent = 0;
  int refused = 0;
  const json job = job_of(*monitor, order.id);
  leave_island(job);
  for (const json& process : list_of(job, "processes")) {
    const auto found = open.find(number_of(process, "pid"));
    if (found == open.end()) continue;
    if (signal_by(found->second.get(), SIGTERM)) {
      ++sent;
    } else if (errno != ESRCH) {
      refused = errno;
    }
  }
  if (refused != 0) return fmt::format("{}: not ended: {}", order.name, std::strerror(refused));
  if (sent == 0) return order.name + ": it has ended already";
  return fmt::format("{}: SIGTERM sent to {} process{}", order.name, sent, sent == 1 ? "" : "es");
}

template <typename Text>
std::string ask(const Order& order, json request, Text text) {
  request["target"] = order.id;
  const auto reply = MonitorClient::ask_any(request);
  return reply ? text(*reply) : reply.error().text;
}

}  // namespace

std::string carry_out(const Order& order) {
  switch (order.what) {
    case Order::What::kPause:
      return ask(order, {{"op", "pause"}},
                 [&](const json& reply) { return paused_text(order.name, reply); });
    case Order::What::kResume:
      return ask(order, {{"op", "resume"}},
                 [&](const json& reply) { return resumed_text(order.name, reply); });
    case Order::What::kSetPriority:
      return ask(order, {{"op", "set"}, {"priority", order.priority}}, [&](const json& reply) {
        return order.name + ": " + changes_text({{"priority", order.priority}}, reply);
      });
    case Order::What::kEnd:
      return end_job(order);
    case Order::What::kQuit:
      break;
  }
  return "";
}

// Where there can be no thread, finished() carries it out.
void UnderWay::begin(Order order) {
  answer_ = std::async([order = std::move(order)] { return carry_out(order); });
}

std::optional<std::string> UnderWay::finished() {
  const bool waits =
      !busy() || answer_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  return waits ? std::nullopt : std::optional(answer_.get());
}

}  // namespace switchyard::tools::top
