// MonitorClient: one connection to the monitor; a request is a JSON object, so is its answer.
//
// Concept. Blocking, with a limit on every wait. The monitor's words are checked (magic, length,
// id, form) before they are used; whatever doesn't fit is an error that names the socket.
//
// Threading: one client belongs to one thread. The descriptor is close-on-exec.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/base/result.h"

namespace switchyard::tools {

class MonitorClient {
 public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kConnectLimit{2000};
  static constexpr Milliseconds kAnswerLimit{10000};
  // For a monitor whose process does not run meanwhile: it is stopped, or hangs.
  static constexpr Milliseconds kSilentLimit{2000};
  // For what is answered when memory has left, however much that is. The monitor answers as soon as
  // nothing of it has left for 60 s, and after an hour in any case.
  static constexpr Milliseconds kLeavingLimit{3'630'000};

  // Connects to `socket`. kMonitorUnreachable when nobody listens there, kNoPermission when it is
  // somebody who is not to be believed (trust.h).
  static Result<MonitorClient> connect(const std::string& socket,
                                       Milliseconds limit = kConnectLimit);

  // Connects to the first of candidate_sockets() that answers.
  static Result<MonitorClient> connect_any();
  static Result<MonitorClient> connect_any(const std::vector<std::string>& candidates);
  // The same for a listing: where no monitor runs, to one that only observes (observer.h).
  static Result<MonitorClient> connect_reader();

  MonitorClient(MonitorClient&& other) noexcept;
  MonitorClient& operator=(MonitorClient&& other) noexcept;
  MonitorClient(const MonitorClient&) = delete;
  MonitorClient& operator=(const MonitorClient&) = delete;
  ~MonitorClient();

  // Sends one request and waits for its answer. "ok": false becomes an Error with the monitor's
  // code and text. A long listing comes in parts, and is put together here; `limit` holds for each.
  Result<nlohmann::json> ask(const nlohmann::json& request, Milliseconds limit = kAnswerLimit);

  // One request to whoever connect_any() finds, or connect_reader() for a listing. Where no monitor
  // runs, a job that the request names is one that there is not.
  static Result<nlohmann::json> ask_any(const nlohmann::json& request,
                                        Milliseconds limit = kAnswerLimit);

  const std::string& socket() const { return socket_; }

 private:
  Result<nlohmann::json> ask_once(const nlohmann::json& request, Milliseconds limit);
  MonitorClient(int fd, std::string socket) : fd_(fd), socket_(std::move(socket)) {}

  int fd_ = -1;
  std::uint32_t next_id_ = 1;
  std::string socket_;
};

// For a job that is named where no monitor runs.
Error no_such_job(const std::string& target);

}  // namespace switchyard::tools
