#include "tools/base/monitor_client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>

#include "switchyard/paths.h"
#include "switchyard/trust.h"
#include "switchyard/wire.h"
#include "tools/base/interrupt.h"
#include "tools/base/sockets.h"
#include "tools/base/unserved.h"

namespace switchyard::tools {
namespace {

using Clock = std::chrono::steady_clock;

// A monitor that knows nothing of parts sends all jobs in one frame. This is enough for 50,000.
constexpr std::uint32_t kLargestAnswer = 64u << 20;

constexpr std::chrono::milliseconds kLookAtPulse{200};

// Whether the monitor at the other end runs at all. It wakes up several times a second; one that is
// stopped or stands in the driver does not. A slow one is waited for. So is a process of another
// name, or of another PID namespace: before its first monitor, a socket of systemd is systemd's.
class Pulse {
 public:
  explicit Pulse(int fd) {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0) pid_ = peer.pid;
    last_ = sample();
  }

  bool stands_still() {
    const std::string now = sample();
    if (now != last_ || !is_monitor()) moved_at_ = Clock::now();
    last_ = now;
    return Clock::now() - moved_at_ >= MonitorClient::kSilentLimit;
  }

 private:
  bool is_monitor() const {
    std::ifstream name(fmt::format("/proc/{}/comm", pid_));
    std::string word;
    return std::getline(name, word) && word == "switchyardd";
  }

  // How often it gave up its CPU, and how much of that it had.
  std::string sample() const {
    std::string text;
    std::ifstream status(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(status, line);) {
      if (line.find("ctxt_switches") != std::string::npos) text += line;
    }
    std::ifstream schedule(fmt::format("/proc/{}/schedstat", pid_));
    std::string word;
    if (schedule >> word) text += word;
    return text;
  }

  pid_t pid_ = 0;
  std::string last_;
  Clock::time_point moved_at_ = Clock::now();
};

// pre: fd is non-blocking. False when `deadline` passes first, the peer stands still, or Ctrl-C
// ends the wait.
bool wait_for(int fd, short events, Clock::time_point deadline) {
  std::optional<Pulse> pulse;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || Interruptible::came()) return false;
    pollfd entry{fd, events, 0};
    // Ctrl-C may come just before it sleeps.
    const auto pause = std::min<std::int64_t>(left, kLookAtPulse.count());
    const int ready = ::poll(&entry, 1, static_cast<int>(pause));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (!pulse) pulse.emplace(fd);
    if (pulse->stands_still()) return false;
  }
}

// 0, or the errno that stopped it; ETIMEDOUT when `deadline` passed, EPIPE when the peer closed.
int transfer(int fd, char* data, std::size_t size, bool out, Clock::time_point deadline) {
  while (size > 0) {
    const ssize_t moved = out ? ::send(fd, data, size, MSG_NOSIGNAL) : ::recv(fd, data, size, 0);
    if (moved > 0) {
      data += moved;
      size -= static_cast<std::size_t>(moved);
    } else if (moved == 0) {
      return EPIPE;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, out ? POLLOUT : POLLIN, deadline)) return ETIMEDOUT;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

Error no_answer(const std::string& socket, int error) {
  if (error == ETIMEDOUT) {
    return {kTimedOut, fmt::format("the monitor at {} does not answer: it is stopped, hangs or is "
                                   "overloaded; jobs go on; its owner can restart it",
                                   socket)};
  }
  return {kMonitorUnreachable,
          fmt::format("the monitor at {} closed the connection ({}); try again", socket,
                      std::strerror(error))};
}

Error not_listening(const std::string& socket, int error) {
  if (error == EACCES || error == EPERM) {
    return {kNoPermission,
            fmt::format("cannot connect to the monitor at {}: {}; it belongs to somebody else: "
                        "choose another with --socket or SWITCHYARD_SOCKET",
                        socket, std::strerror(error))};
  }
  return {kMonitorUnreachable,
          fmt::format("no monitor answers at {} ({}); `switchyard run` starts one, and so does "
                      "`switchyardd`",
                      socket, std::strerror(error))};
}

std::string user_text(unsigned uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry != nullptr ? fmt::format("user {} (uid {})", entry->pw_name, uid)
                          : fmt::format("the user with uid {}", uid);
}

std::optional<Error> refusal(const std::string& socket, Distrust distrust) {
  if (distrust.what == Distrust::kNothing) return std::nullopt;
  const std::string folder = socket.substr(0, socket.rfind('/'));
  const std::string text =
      distrust.what == Distrust::kFolder
          ? fmt::format(
                "the folder {} belongs to {} or can be changed by others, so no monitor in "
                "it is used; remove the folder, or choose another place with "
                "SWITCHYARD_SOCKET",
                folder, user_text(distrust.owner))
          : fmt::format(
                "{} listens at {}, not root and not you, so this monitor is not used; "
                "remove the socket, or name it with --socket or SWITCHYARD_SOCKET if you "
                "trust that user",
                user_text(distrust.owner), socket);
  return Error{kNoPermission, text};
}

}  // namespace

Result<MonitorClient> MonitorClient::connect(const std::string& socket, Milliseconds limit) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.empty() || socket.size() >= sizeof(address.sun_path)) {
    return Error{kUsage, fmt::format("the socket path '{}' must have 1 to {} characters: see "
                                     "--socket and SWITCHYARD_SOCKET",
                                     socket, sizeof(address.sun_path) - 1)};
  }
  std::memcpy(address.sun_path, socket.data(), socket.size());
  if (auto refused = refusal(socket, distrust_folder(address.sun_path))) return *refused;
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return Error{kFailure, fmt::format("cannot make a socket: {}", std::strerror(errno))};
  }
  MonitorClient client(fd, socket);
  // While the backlog is full, the kernel lets those that wait in connect() in by turns. A program
  // that does not wait there would hardly ever get in beside them.
  const auto left = std::max<std::int64_t>(limit.count(), 1);
  const timeval patience{left / 1000, left % 1000 * 1000};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  const auto deadline = Clock::now() + limit;
  while (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EAGAIN) return no_answer(socket, ETIMEDOUT);
    if (errno != EINTR || Clock::now() >= deadline) return not_listening(socket, errno);
  }
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  if (auto refused = refusal(socket, distrust_listener(address.sun_path, fd))) return *refused;
  return client;
}

Result<MonitorClient> MonitorClient::connect_any() { return connect_any(candidate_sockets()); }

Result<MonitorClient> MonitorClient::connect_any(const std::vector<std::string>& candidates) {
  if (candidates.empty()) {
    return Error{kUsage,
                 fmt::format("the path in {} is too long for a socket, which has {} characters at "
                             "most; choose a shorter one with --socket",
                             socket_named() ? "SWITCHYARD_SOCKET" : "XDG_RUNTIME_DIR",
                             kSocketPathBytes - 1)};
  }
  auto first = connect(candidates.front());
  for (std::size_t i = 1; i < candidates.size() && !first; ++i) {
    auto next = connect(candidates[i]);
    // Report distrust rather than a monitor that has gone.
    if (next || next.error().code == kNoPermission) first = std::move(next);
  }
  return first;
}

Result<MonitorClient> MonitorClient::connect_reader() {
  auto monitor = connect_any();
  if (monitor || !is_unserved(monitor.error())) return monitor;
  for (const std::string& socket : observer_sockets()) {
    auto observer = connect(socket);
    if (observer) return observer;
  }
  return monitor;
}

Error no_such_job(const std::string& target) {
  return {kNoSuchJobOrGpu, fmt::format("no job '{}': no monitor runs here", target)};
}

Result<nlohmann::json> MonitorClient::ask_any(const nlohmann::json& request, Milliseconds limit) {
  const std::string op = request.value("op", "");
  const bool reads = op == "ps" || op == "status" || op == "report";
  auto monitor = reads ? connect_reader() : connect_any();
  if (monitor) return monitor->ask(request, limit);
  const auto target = request.find("target");
  if (target == request.end() || !is_unserved(monitor.error())) return monitor.error();
  return no_such_job(target->get<std::string>());
}

MonitorClient::MonitorClient(MonitorClient&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      next_id_(other.next_id_),
      socket_(std::move(other.socket_)) {}

MonitorClient& MonitorClient::operator=(MonitorClient&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(next_id_, other.next_id_);
  std::swap(socket_, other.socket_);
  return *this;
}

MonitorClient::~MonitorClient() {
  if (fd_ >= 0) ::close(fd_);
}

Result<nlohmann::json> MonitorClient::ask(const nlohmann::json& request, Milliseconds limit) {
  const std::string op = request.value("op", "");
  if (op != "ps" && op != "report") return ask_once(request, limit);
  const char* const list = op == "ps" ? "jobs" : "rows";
  nlohmann::json part = request;
  part["after"] = 0;
  nlohmann::json jobs = nlohmann::json::array();
  for (;;) {
    auto reply = ask_once(part, limit);
    if (!reply) return reply;
    const auto listed = reply->find(list);
    const bool lists = listed != reply->end() && listed->is_array();
    if (lists) {
      for (nlohmann::json& job : *listed) jobs.push_back(std::move(job));
    }
    const auto more = reply->find("more_after");
    if (more == reply->end() || !more->is_number_unsigned() || *more <= part["after"]) {
      if (lists) *listed = std::move(jobs);
      return reply;
    }
    part["after"] = *more;
  }
}

Result<nlohmann::json> MonitorClient::ask_once(const nlohmann::json& request, Milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const std::string body = request.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  wire::FrameHeader header{wire::kMagic, wire::kJson, static_cast<std::uint32_t>(body.size()),
                           next_id_++};
  std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
  frame += body;
  if (int error = transfer(fd_, frame.data(), frame.size(), true, deadline)) {
    return no_answer(socket_, error);
  }
  wire::FrameHeader answer{};
  if (int error =
          transfer(fd_, reinterpret_cast<char*>(&answer), sizeof(answer), false, deadline)) {
    return no_answer(socket_, error);
  }
  if (answer.magic != wire::kMagic || answer.kind != wire::kJson || answer.id != header.id) {
    return Error{kFailure, fmt::format("what answers at {} is no monitor of this version; restart "
                                       "switchyardd after an upgrade",
                                       socket_)};
  }
  if (answer.length > kLargestAnswer) {
    return Error{kFailure, fmt::format("the answer of the monitor at {} has {} bytes; this program "
                                       "takes at most {}: end some jobs, or use a newer monitor",
                                       socket_, answer.length, kLargestAnswer)};
  }
  std::string text(answer.length, '\0');
  if (int error = transfer(fd_, text.data(), text.size(), false, deadline)) {
    return no_answer(socket_, error);
  }
  auto reply = nlohmann::json::parse(text, nullptr, false);
  if (!reply.is_object()) {
    return Error{kFailure, fmt::format("the monitor at {} answered with something that is no JSON "
                                       "object; restart switchyardd after an upgrade",
                                       socket_)};
  }
  const auto ok = reply.find("ok");
  if (ok != reply.end() && ok->is_boolean() && ok->get<bool>()) return reply;
  const auto code = reply.find("code");
  const auto why = reply.find("error");
  return Error{code != reply.end() && code->is_number_integer() ? code->get<int>() : int{kFailure},
               why != reply.end() && why->is_string() ? why->get<std::string>()
                                                      : "the monitor refused and did not say why"};
}

}  // namespace switchyard::tools
