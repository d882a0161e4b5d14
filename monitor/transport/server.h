// The loop: sockets, timers, signals and dying processes become calls of the monitor.
//
// Concept. One io_context on one thread. A tick four times a second and more keeps heartbeats and
// accounts fresh. Between ticks one timer looks when the monitor has asked for it, and at
// everything a moment after a change. A client that rings is looked at at once.
//
// Users' requests are served in turns (request_turns.h), one request at a time, so that timers and
// sockets are looked at in between. Answers that wait are tried again a few at a time. A connection
// stands in the kernel's queue behind those of all users, so that queue is emptied in each round. A
// user with too many is hung up on there, and to serve a connection is a request like others.
//
// Threading: run() on one thread; nothing else.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "monitor/control/event_keeper.h"
#include "monitor/monitor.h"
#include "monitor/platform/asio.h"
#include "monitor/platform/process_watch.h"
#include "monitor/platform/service_manager.h"
#include "monitor/transport/request_turns.h"
#include "monitor/transport/session.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

class Server final : public EventLoop {
 public:
  Server(asio::io_context& io, Monitor& monitor, SessionLimits limits = {});

  // Takes over a listening unix socket.
  void listen(int fd);
  // Answers whoever asks who governs a GPU (claim.h).
  void answer_claims(std::vector<int> fds, std::string text);
  // Tells it on each tick that the loop lives.
  void reports_to(ServiceManager& manager) { manager_ = &manager; }
  // Lets the history answer; it must live as long as run().
  void listens_to(history::Store& store);
  // Until a signal says so or the monitor is done.
  void run();
  void stop();

  Monitor& monitor() override { return monitor_; }
  void look_soon() override;
  void look_at_those_of(ClientId client) override;
  Watch when_dead(pid_t pid, Fd pidfd, Dead then) override;
  void in_turn(uid_t uid, std::function<void()> request) override;
  void until(std::function<bool()> done) override;
  void after(Time span, std::function<void()> then) override;

 private:
  void accept();
  void accept_waiting();
  void admit(Fd socket);
  // True at most once a minute for each user: a flood of refusals must not fill the log.
  bool may_log_refusal(uid_t uid);
  void accept_claim(std::size_t at);
  void hear_root(Local::socket socket, pid_t pid);
  void tick();
  void give_back_memory();
  void serve_turn();
  void try_again_soon();
  void try_again();
  void listen_to_closer();
  void listen_to_history(history::Store& store);
  void look();
  // The timer rings at `at`, or earlier if it was to ring earlier; 0: nothing new.
  void look_again(Time at);

  asio::io_context& io_;
  ServiceManager* manager_ = nullptr;
  Monitor& monitor_;
  SessionLimits limits_;
  Local::acceptor acceptor_;
  std::vector<std::unique_ptr<Local::acceptor>> claims_;
  std::string claim_text_;
  asio::signal_set signals_;
  asio::steady_timer tick_;
  asio::steady_timer look_;
  asio::steady_timer accept_pause_;
  asio::steady_timer again_;
  asio::posix::stream_descriptor closed_;
  asio::posix::stream_descriptor history_;
  ProcessWatches watches_;
  EventKeeper event_keeper_;
  Turns turns_;
  std::map<uid_t, Time> refusal_logged_at_;
  std::deque<std::function<bool()>> waiting_;  // for until()
  Time look_at_{0};                            // when look_ rings; 0: it does not
  Time looked_at_{0};
  bool look_at_all_ = false;
  std::size_t most_clients_ = 0;  // since memory was given back last
};

}  // namespace switchyard::monitor
