// One connection: frames in, frames out, one request at a time. A shim's connection carries its
// client's eventfd and pidfd along.
//
// Concept. The next request is read when the last answer is out, so a peer that doesn't read its
// answers stops only itself, and what the monitor keeps for it is bounded. A peer that begins a
// frame has ten seconds to end it; a shim that was welcomed may be silent for ever.
//
// Threading: the loop's one thread. A session lives as long as something is pending on it, and ends
// through close(); when the loop itself is torn down it just goes, with nobody left to tell.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "monitor/asio.h"
#include "monitor/commands.h"
#include "monitor/fd.h"
#include "monitor/frames.h"
#include "monitor/monitor.h"

namespace switchyard::monitor {

// What a session needs from the loop.
class Yard {
 public:
  virtual ~Yard() = default;
  virtual Monitor& monitor() = 0;
  // Something changed: decide soon.
  virtual void look_soon() = 0;
  // A client rang: decide at once.
  virtual void look_at_those_of(ClientId client) = 0;
  // Calls `then` once the process is dead, soon when it already is. False: it can't be watched, and
  // `then` is never called.
  [[nodiscard]] virtual bool when_dead(pid_t pid, std::function<void()> then) = 0;
  // Calls `then` after so long.
  virtual void after(Time span, std::function<void()> then) = 0;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Local::socket socket, Yard& yard);
  void start();

 private:
  void read();
  void readable();
  void arrived(std::size_t bytes);
  void handle(const Frame& frame);
  void charge(const Frame& frame, const wire::Charge& charge);
  void share(const Frame& frame, const wire::Share& asked);
  void command(const Frame& frame);
  void hello(const Frame& frame);
  bool welcome(const Frame& frame, ClientPage& page);
  // In one piece, with descriptors. False: it can't be.
  bool send(const std::string& bytes, std::span<const int> descriptors);
  void listen_to_wake();
  void rung();
  // Answers once the job is where it was asked to be, or what is known at `until`.
  void answer_when_ready(std::uint32_t id, Awaits awaits, JobKey job, Time until);
  void answer(std::string frame, bool then_close = false);
  void watch_deadline();
  void close();

  Local::socket socket_;
  Yard& yard_;
  Peer peer_;
  FrameReader reader_;
  std::array<char, 4096> buffer_;
  std::vector<Fd> descriptors_;  // that came with the frame that is arriving
  std::string out_;
  asio::steady_timer deadline_;
  asio::steady_timer wake_pause_;
  std::optional<asio::posix::stream_descriptor> wake_;
  ClientId client_ = 0;  // 0: a tool, or nobody yet
  bool asked_ = false;   // it sent a whole request before
  bool closed_ = false;
};

}  // namespace switchyard::monitor
