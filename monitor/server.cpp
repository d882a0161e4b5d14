#include "monitor/server.h"

#include <spdlog/spdlog.h>

#include <csignal>

namespace switchyard::monitor {
namespace {

constexpr auto kTick = std::chrono::milliseconds(200);
// Looks follow each other no faster than this, whoever rings.
constexpr Time kLookPause = std::chrono::milliseconds(1);
constexpr auto kConfirmPause = std::chrono::milliseconds(5);
constexpr Time kHurry = std::chrono::milliseconds(300);

}  // namespace

Server::Server(asio::io_context& io, Monitor& monitor)
    : io_(io),
      monitor_(monitor),
      acceptor_(io),
      signals_(io, SIGINT, SIGTERM),
      tick_(io),
      look_(io),
      accept_pause_(io) {}

void Server::listen(int fd) {
  acceptor_.assign(Local(), fd);
  accept();
}

void Server::accept() {
  acceptor_.async_accept([this](ErrorCode error, Local::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      std::make_shared<Session>(std::move(socket), *this)->start();
      return accept();
    }
    // Out of descriptors: the connection waits, and so do we instead of spinning.
    spdlog::warn("accepting a connection: {}", error.message());
    accept_pause_.expires_after(std::chrono::milliseconds(100));
    accept_pause_.async_wait([this](ErrorCode paused) {
      if (!paused) accept();
    });
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
    if (error) return;
    ErrorCode ignored;
    socket.non_blocking(true, ignored);
    socket.send(asio::buffer(claim_text_), MSG_NOSIGNAL | MSG_DONTWAIT, ignored);
    accept_claim(at);
  });
}

bool Server::when_dead(pid_t pid, std::function<void()> then) {
  bool dead = false;
  Fd pidfd = open_process(pid, dead);
  if (dead) {
    asio::post(io_, std::move(then));
    return true;
  }
  if (!pidfd) return false;
  auto watch = std::make_shared<asio::posix::stream_descriptor>(io_, pidfd.release());
  watch->async_wait(asio::posix::stream_descriptor::wait_read,
                    [watch, then = std::move(then)](ErrorCode error) {
                      if (!error) then();
                    });
  return true;
}

void Server::after(Time span, std::function<void()> then) {
  auto timer = std::make_shared<asio::steady_timer>(io_, span);
  timer->async_wait([timer, then = std::move(then)](ErrorCode error) {
    if (!error) then();
  });
}

void Server::look_soon() {
  hurry_until_ = steady_now() + kHurry;
  if (look_pending_) return;
  look_pending_ = true;
  const Time pause = std::max(Time{0}, looked_at_ + kLookPause - steady_now());
  look_.expires_after(pause);
  look_.async_wait([this](ErrorCode error) {
    if (!error) look();
  });
}

void Server::look() {
  look_pending_ = false;
  looked_at_ = steady_now();
  const bool unconfirmed = monitor_.look(looked_at_);
  if (!unconfirmed || looked_at_ >= hurry_until_) return;
  look_pending_ = true;
  look_.expires_after(kConfirmPause);
  look_.async_wait([this](ErrorCode error) {
    if (!error) look();
  });
}

void Server::tick() {
  const Time now = steady_now();
  monitor_.tick(now);
  if (!look_pending_) look();
  if (monitor_.done(now)) {
    spdlog::info("the last job has gone: good bye");
    return stop();
  }
  tick_.expires_after(kTick);
  tick_.async_wait([this](ErrorCode error) {
    if (!error) tick();
  });
}

void Server::stop() { io_.stop(); }

void Server::run() {
  signals_.async_wait([this](ErrorCode error, int signal) {
    if (error) return;
    spdlog::info("signal {}: good bye", signal);
    stop();
  });
  tick();
  io_.run();
}

}  // namespace switchyard::monitor
