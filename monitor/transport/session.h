// One connection: frames in, frames out, one request at a time. A shim's connection carries its
// client's bells (client_page.h) and pidfd along.
//
// Concept. The next request is read when the last answer is out. So a peer that doesn't read its
// answers stops only itself, and the memory that the monitor keeps for it is bounded. A peer that
// begins a frame has ten seconds to end it, and as long to take an answer. In between the monitor
// may take its time: some answers wait for memory to leave. A shim that was welcomed may be silent
// for ever.
//
// Threading: the loop's one thread. A session lives as long as something is pending on it, and ends
// through close(). When the loop itself is torn down it just goes, because nothing is left to tell.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "monitor/control/commands.h"
#include "monitor/core/frames.h"
#include "monitor/monitor.h"
#include "monitor/platform/asio.h"
#include "monitor/platform/process_watch.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

// What a session needs from the loop.
class EventLoop {
 public:
  virtual ~EventLoop() = default;
  virtual Monitor& monitor() = 0;
  // Something changed: decide soon.
  virtual void look_soon() = 0;
  // A client rang: decide at once.
  virtual void look_at_those_of(ClientId client) = 0;
  // process_watch.h
  [[nodiscard]] virtual Watch when_dead(pid_t pid, Fd pidfd, Dead then) = 0;
  // Calls `request` when it is this user's turn.
  virtual void in_turn(uid_t uid, std::function<void()> request) = 0;
  // Calls `done` every few milliseconds, until it says so. Monitor::follow_residency() was called.
  virtual void until(std::function<bool()> done) = 0;
  // Calls `then` after so long.
  virtual void after(Time span, std::function<void()> then) = 0;
};

// How long a client that has rung isn't heard again.
Time pause_after_wake(const Client& client);

struct SessionLimits {
  std::chrono::milliseconds frame = std::chrono::seconds(10);      // for a frame, from end to end
  std::chrono::milliseconds idle_tool = std::chrono::minutes(10);  // between two requests
};

// The process at the other end, and whether its user may have one more connection.
struct Admission {
  Peer peer;
  Users::Seat seat;     // of the connection
  std::string refused;  // why its user may have no further connection; empty: it may
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Local::socket socket, Admission admission, EventLoop& event_loop, SessionLimits limits);
  void start();

 private:
  void read();
  void readable();
  void arrived(std::size_t bytes);
  void handle(const Frame& frame);
  void refuse(const Frame& frame);
  void charge(const Frame& frame, const wire::Charge& charge);
  void share(const Frame& frame, const wire::Share& asked);
  void command(const Frame& frame);
  void ask_history(std::uint32_t id, history::Query query);
  void hello(const Frame& frame);
  bool welcome(const Frame& frame, const Client& client);
  // In one piece, with descriptors. False: it can't be.
  bool send(const std::string& bytes, std::span<const int> descriptors);
  void listen_to_wake();
  void rung();
  void look();
  // Answers once the job is where it was asked to be, or what is known at `until`.
  void answer_when_ready(std::uint32_t id, Awaits awaits, JobKey job, Time until);
  void answer(std::string frame, bool then_close = false);
  void watch_deadline();
  void close_after(std::chrono::milliseconds span);
  bool hung_up();
  void leave();
  void close();

  Local::socket socket_;
  EventLoop& event_loop_;
  SessionLimits limits_;
  Peer peer_;
  FrameReader reader_;
  std::array<char, 4096> buffer_;
  std::vector<Fd> descriptors_;  // that came with the frame that is arriving
  Users::Seat seat_;             // of the connection
  Users::Seat held_;             // of the descriptors
  std::string refused_;          // Admission::refused
  Watch watch_;                  // of the client's process
  std::string out_;
  asio::steady_timer deadline_;
  asio::steady_timer wake_pause_;
  std::optional<asio::posix::stream_descriptor> wake_;
  ClientId client_ = 0;  // 0: a tool, or nobody yet
  bool asked_ = false;   // it sent a whole request before
  bool closed_ = false;
};

}  // namespace switchyard::monitor
