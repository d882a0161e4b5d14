#include "monitor/transport/server.h"

#include <fcntl.h>
#include <malloc.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "monitor/transport/listen_socket.h"
#include "monitor/transport/takeover.h"
#include "switchyard/paths.h"

namespace switchyard::monitor {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
// Looks at everything follow each other no faster than this, whoever asks; and the more clients
// there are the more slowly, for so many each.
constexpr Time kLookPause = std::chrono::milliseconds(1);
constexpr std::size_t kLookClients = 64;
// And looks by the timer no faster than this, whatever the policy wants.
constexpr Time kShortestPause = std::chrono::microseconds(100);
// Answers that wait are tried again so many at a time,
constexpr std::size_t kMostAgain = 64;
// and no later than this.
constexpr Time kLongestAgain = std::chrono::milliseconds(200);
// Connections that are accepted in one round: all that the kernel lets wait, and some that came.
constexpr int kMostAccepted = kBacklog + 100;
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // when that failed
// Of so many clients half have left.
constexpr std::size_t kWorthGivingBack = 32;
constexpr Time kRefusalLogged = std::chrono::minutes(1);
constexpr auto kNobody = static_cast<uid_t>(-1);  // of a connection that is not accepted
constexpr Time kRootSpeaksWithin = std::chrono::seconds(1);

}  // namespace

Server::Server(asio::io_context& io, Monitor& monitor, SessionLimits limits)
    : io_(io),
      monitor_(monitor),
      limits_(limits),
      acceptor_(io),
      signals_(io, SIGINT, SIGTERM),
      tick_(io),
      look_(io),
      accept_pause_(io),
      again_(io),
      closed_(io, ::fcntl(monitor.closer().finished(), F_DUPFD_CLOEXEC, 3)),
      history_(io),
      watches_(io) {}

void Server::listen(int fd) {
  acceptor_.assign(Local(), fd);
  accept();
}

void Server::accept() {
  acceptor_.async_wait(Local::acceptor::wait_read, [this](ErrorCode error) {
    if (!error) accept_waiting();
  });
}

void Server::accept_waiting() {
  for (int left = kMostAccepted; left > 0; --left) {
    Fd socket(::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      admit(std::move(socket));
      continue;
    }
    if (errno == EAGAIN) return accept();
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // Out of descriptors: the connection waits, and so do we instead of spinning.
    const int error = errno;
    if (may_log_refusal(kNobody)) spdlog::warn("accepting a connection: {}", std::strerror(error));
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait([this](ErrorCode paused) {
      if (!paused) accept();
    });
    return;
  }
  asio::post(io_, [this] { accept_waiting(); });
}

void Server::admit(Fd socket) {
  auto peer = peer_of(socket.get());
  if (!peer) return monitor_.closer().hang_up(0, socket.release());
  peer->container = container_of_peer(socket.get(), peer->pid);
  Users& users = monitor_.users();
  Admission admission{*peer, users.connect(peer->account()), {}};
  if (admission.seat == nullptr) {
    admission.seat = users.refuse(peer->account());
    if (admission.seat == nullptr)
      return monitor_.closer().hang_up(peer->account(), socket.release());
    admission.refused = users.too_many_connections(peer->owner());
    if (may_log_refusal(peer->account())) {
      spdlog::warn("pid {} is refused: {}", peer->pid, admission.refused);
    }
  }
  // To serve it costs more than to accept it, so that waits for its user's turn.
  struct Admitted {
    Fd socket;
    Admission admission;
  };
  auto admitted = std::make_shared<Admitted>(Admitted{std::move(socket), std::move(admission)});
  in_turn(peer->account(), [this, admitted] {
    Local::socket taken(io_);
    ErrorCode error;
    taken.assign(Local(), admitted->socket.get(), error);
    if (error) return;
    admitted->socket.release();
    std::make_shared<Session>(std::move(taken), std::move(admitted->admission), *this, limits_)
        ->start();
  });
}

void Server::answer_claims(std::vector<int> fds, std::string text) {
  claim_text_ = std::move(text);
  for (const int fd : fds) {
    claims_.push_back(std::make_unique<Local::acceptor>(io_));
    claims_.back()->assign(Local(), fd);
    accept_claim(claims_.size() - 1);
  }
}

void Server::accept_claim(std::size_t at) {
  claims_[at]->async_accept([this, at](ErrorCode error, Local::socket socket) {
    if (error == asio::error::operation_aborted) return;
    // Out of descriptors, say: whoever asks waits, as long as that lasts.
    if (error) return after(kAcceptPause, [this, at] { accept_claim(at); });
    ErrorCode ignored;
    socket.non_blocking(true, ignored);
    socket.send(asio::buffer(claim_text_), MSG_NOSIGNAL | MSG_DONTWAIT, ignored);
    const auto peer = peer_of(socket.native_handle());
    if (peer && peer->uid == 0 && ::geteuid() != 0) {
      hear_root(std::move(socket), peer->pid);
    } else {
      monitor_.closer().hang_up(peer ? peer->uid : 0, socket.release(ignored));
    }
    accept_claim(at);
  });
}

// Root's monitor may say on its connection to a claim that it takes the GPUs over (takeover.h).
void Server::hear_root(Local::socket socket, pid_t pid) {
  auto asking = std::make_shared<Local::socket>(std::move(socket));
  after(kRootSpeaksWithin, [asking] {
    ErrorCode ignored;
    asking->close(ignored);
  });
  asking->async_wait(Local::socket::wait_read, [this, asking, pid](ErrorCode error) {
    if (error || !wants_gpus(asking->native_handle())) return;
    asking->send(asio::buffer(std::string_view(kHandsOver)), MSG_NOSIGNAL | MSG_DONTWAIT, error);
    spdlog::warn(
        "root's monitor (pid {}) takes the GPUs over: this one ends, its jobs rejoin at {}", pid,
        kSystemSocket);
    monitor_.end();
  });
}

Watch Server::when_dead(pid_t pid, Fd pidfd, Dead then) {
  return watches_.when_dead(pid, std::move(pidfd), std::move(then));
}

void Server::in_turn(uid_t uid, std::function<void()> request) {
  if (turns_.empty()) asio::post(io_, [this] { serve_turn(); });
  turns_.add(uid, std::move(request));
}

void Server::serve_turn() {
  const auto request = turns_.next();
  // Posted before: a request that is added meanwhile must find it so.
  if (!turns_.empty()) asio::post(io_, [this] { serve_turn(); });
  request();
}

void Server::until(std::function<bool()> done) {
  waiting_.push_back(std::move(done));
  if (waiting_.size() == 1) try_again_soon();
}

void Server::try_again_soon() {
  // All jobs are looked at with them.
  const Time pause = look_pause(monitor_.registry().clients().size());
  again_.expires_after(std::min(pause, kLongestAgain));
  again_.async_wait([this](ErrorCode error) {
    if (!error) try_again();
  });
}

void Server::try_again() {
  monitor_.follow_residency(steady_now());
  for (std::size_t left = std::min(waiting_.size(), kMostAgain); left > 0; --left) {
    const auto done = std::move(waiting_.front());
    waiting_.pop_front();
    if (!done()) waiting_.push_back(done);
  }
  if (!waiting_.empty()) try_again_soon();
}

bool Server::may_log_refusal(uid_t uid) {
  const Time now = steady_now();
  const auto [last, first] = refusal_logged_at_.emplace(uid, now);
  if (!first && now - last->second < kRefusalLogged) return false;
  last->second = now;
  return true;
}

void Server::listen_to_closer() {
  closed_.async_wait(asio::posix::stream_descriptor::wait_read, [this](ErrorCode error) {
    if (error) return;
    monitor_.closer().finish();
    listen_to_closer();
  });
}

void Server::listens_to(history::Store& store) {
  history_.assign(::fcntl(store.finished(), F_DUPFD_CLOEXEC, 3));
  listen_to_history(store);
}

void Server::listen_to_history(history::Store& store) {
  history_.async_wait(asio::posix::stream_descriptor::wait_read, [this, &store](ErrorCode error) {
    if (error) return;
    store.finish();
    listen_to_history(store);
  });
}

void Server::after(Time span, std::function<void()> then) {
  auto timer = std::make_shared<asio::steady_timer>(io_, span);
  timer->async_wait([timer, then = std::move(then)](ErrorCode error) {
    if (!error) then();
  });
}

void Server::look_soon() {
  look_at_all_ = true;
  const std::size_t part = monitor_.registry().clients().size() / kLookClients;
  look_again(looked_at_ + kLookPause * (1 + static_cast<Time::rep>(part)));
}

void Server::look_at_those_of(ClientId client) {
  look_again(monitor_.look_at_those_of(client, steady_now()));
}

void Server::look_again(Time at) {
  if (at == Time{0}) return;
  at = std::max(at, steady_now() + kShortestPause);
  if (look_at_ != Time{0} && look_at_ <= at) return;
  look_at_ = at;
  look_.expires_at(
      asio::steady_timer::time_point(std::chrono::duration_cast<asio::steady_timer::duration>(at)));
  look_.async_wait([this](ErrorCode error) {
    if (!error) look();
  });
}

void Server::look() {
  const Time now = steady_now();
  look_at_ = Time{0};
  const bool all = std::exchange(look_at_all_, false);
  if (all) looked_at_ = now;
  look_again(all ? monitor_.look(now) : monitor_.look_at_due(now));
}

void Server::tick() {
  const Time now = steady_now();
  if (manager_ != nullptr) manager_->lives(now);
  monitor_.tick(now);
  event_keeper_.tick(monitor_, now);
  give_back_memory();
  look_soon();
  if (monitor_.done(now)) {
    spdlog::info("it was told to stop, or the last job has gone: good bye");
    return stop();
  }
  tick_.expires_after(kTick);
  tick_.async_wait([this](ErrorCode error) {
    if (!error) tick();
  });
}

// Small pieces of what they had lie between those of others, so the allocator keeps it by itself.
void Server::give_back_memory() {
  const std::size_t clients = monitor_.registry().clients().size();
  most_clients_ = std::max(most_clients_, clients);
  if (most_clients_ < kWorthGivingBack || clients >= most_clients_ / 2) return;
  most_clients_ = clients;
  ::malloc_trim(0);
}

void Server::stop() { io_.stop(); }

void Server::run() {
  signals_.async_wait([this](ErrorCode error, int signal) {
    if (error) return;
    spdlog::info("signal {}: good bye", signal);
    stop();
  });
  listen_to_closer();
  tick();
  io_.run();
  event_keeper_.finish(monitor_, steady_now());
}

}  // namespace switchyard::monitor
