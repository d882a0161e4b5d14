#include "monitor/session.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "monitor/holds.h"

namespace switchyard::monitor {
namespace {

constexpr auto kFrameDeadline = std::chrono::seconds(10);
constexpr auto kIdleTool = std::chrono::minutes(10);
// What keeps a created job alive when its creator can't be watched, until its first process joins.
constexpr Time kUnseenCreator = std::chrono::seconds(60);
// A client that was asked to ring, or whose memory moves, is heard again soon; one that rings
// unasked not so soon.
constexpr auto kAskedPause = std::chrono::microseconds(200);
constexpr auto kUnaskedPause = std::chrono::milliseconds(5);
// How often an answer that waits looks whether it is ready.
constexpr Time kReadyPause = std::chrono::milliseconds(2);

}  // namespace

Session::Session(Local::socket socket, Yard& yard)
    : socket_(std::move(socket)),
      yard_(yard),
      deadline_(socket_.get_executor()),
      wake_pause_(socket_.get_executor()) {}

void Session::start() {
  const auto peer = peer_of(socket_.native_handle());
  if (!peer) return close();
  peer_ = *peer;
  read();
}

void Session::close() {
  if (closed_) return;
  closed_ = true;
  deadline_.cancel();
  wake_pause_.cancel();
  wake_.reset();
  ErrorCode ignored;
  socket_.close(ignored);
  if (client_ != 0) {
    yard_.monitor().left(client_);
    yard_.look_soon();
  }
}

void Session::watch_deadline() {
  if (client_ != 0 && !reader_.in_the_middle()) {
    deadline_.cancel();
    return;
  }
  if (asked_ && !reader_.in_the_middle()) {
    deadline_.expires_after(kIdleTool);
  } else {
    deadline_.expires_after(kFrameDeadline);
  }
  deadline_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->close();
  });
}

void Session::read() {
  if (closed_) return;
  watch_deadline();
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](ErrorCode error, std::size_t bytes) {
                            if (error) return self->close();
                            self->arrived(bytes);
                          });
}

void Session::arrived(std::size_t bytes) {
  if (closed_) return;
  if (bytes > 0 && !reader_.feed(std::span(buffer_.data(), bytes))) {
    spdlog::warn("pid {} of {} sent {}: its connection is closed", peer_.pid, user_name(peer_.uid),
                 reader_.error());
    return close();
  }
  if (const auto frame = reader_.next()) return handle(*frame);
  read();
}

void Session::handle(const Frame& frame) {
  asked_ = true;
  const auto charge = read_charge(frame.payload);
  if (frame.kind == wire::kHello && client_ == 0) {
    hello(frame);
  } else if ((frame.kind == wire::kCharge || frame.kind == wire::kRefresh) && client_ != 0 &&
             charge) {
    Monitor& monitor = yard_.monitor();
    const wire::Charged charged = frame.kind == wire::kCharge
                                      ? monitor.charge(client_, *charge, steady_now())
                                      : monitor.refresh(client_, *charge, steady_now());
    // Another may have to give the room.
    const bool waits = charged.verdict == wire::kWait;
    if (frame.kind == wire::kRefresh || waits) yard_.look_soon();
    answer(make_frame(wire::kCharged, frame.id, charged));
  } else if (frame.kind == wire::kJson && client_ == 0) {
    const Answer out = answer_command(yard_.monitor(), peer_, frame.payload, steady_now());
    if (out.created != 0) {
      const auto gone = [&yard = yard_, job = out.created] { yard.monitor().creator_died(job); };
      if (!yard_.when_dead(out.creator, gone)) yard_.after(kUnseenCreator, gone);
    }
    yard_.look_soon();
    if (out.awaits != Awaits::kNothing) {
      const Time until = steady_now() + patience(out.awaits);
      return answer_when_ready(frame.id, out.awaits, out.job, until);
    }
    answer(make_frame(wire::kJson, frame.id, out.json));
  } else {
    spdlog::warn(
        "pid {} of {} sent a frame of kind {} with {} bytes out of place: its connection "
        "is closed",
        peer_.pid, user_name(peer_.uid), frame.kind, frame.payload.size());
    close();
  }
}

void Session::hello(const Frame& frame) {
  std::string why;
  const auto hello = read_hello(frame.payload, why);
  Client* client = hello ? yard_.monitor().join(peer_, *hello, steady_now(), why) : nullptr;
  if (client == nullptr) {
    spdlog::warn("pid {} of {} is refused: {}", peer_.pid, user_name(peer_.uid), why);
    return answer(make_frame(wire::kRefused, frame.id, why.substr(0, 1000)), true);
  }
  client_ = client->id;
  if (!welcome(frame, *client->page)) return close();
  client->page->drop_memfd();
  // A descriptor of our own, so that neither the page nor the loop closes the other's.
  const int wake = ::fcntl(client->page->wake(), F_DUPFD_CLOEXEC, 3);
  if (wake < 0) return close();
  wake_.emplace(socket_.get_executor(), wake);
  listen_to_wake();
  client->watched =
      yard_.when_dead(peer_.pid, [&yard = yard_, id = client_, weak = weak_from_this()] {
        // A child that inherited the socket may hold it open for long.
        if (const auto self = weak.lock()) self->close();
        yard.monitor().died(id);
        yard.look_soon();
      });
  yard_.look_soon();
  read();
}

bool Session::welcome(const Frame& frame, ClientPage& page) {
  const wire::Welcome body{abi::kLayoutVersion, abi::kPageBytes,
                           static_cast<std::uint32_t>(::getpid()), 0};
  std::string bytes = make_frame(wire::kWelcome, frame.id, body);
  const int fds[] = {page.memfd(), page.doorbell(), page.wake()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  iovec vector{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(head), fds, sizeof(fds));
  // The first answer on this connection: its buffer is empty, so all of it fits at once.
  return ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

void Session::listen_to_wake() {
  wake_->async_wait(asio::posix::stream_descriptor::wait_read,
                    [weak = weak_from_this()](ErrorCode error) {
                      const auto self = weak.lock();
                      if (!error && self != nullptr && !self->closed_) self->rung();
                    });
}

void Session::rung() {
  Client* client = yard_.monitor().roster().client(client_);
  if (client == nullptr) return;
  client->page->answer_wake();
  yard_.look_at_those_of(client_);
  // While memory moves, each chunk that has left is the next one's room.
  const bool asked = std::any_of(client->lanes.begin(), client->lanes.end(), [](const auto& lane) {
    return lane.second.asked_to_wake || !lane.second.residency.resident();
  });
  wake_pause_.expires_after(asked ? kAskedPause : kUnaskedPause);
  wake_pause_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self != nullptr && self->wake_) self->listen_to_wake();
  });
}

void Session::answer_when_ready(std::uint32_t id, Awaits awaits, JobKey job, Time until) {
  if (closed_) return;
  const Time now = steady_now();
  if (auto json = answer_awaited(yard_.monitor(), awaits, job, now, now >= until)) {
    return answer(make_frame(wire::kJson, id, *json));
  }
  yard_.after(kReadyPause, [self = shared_from_this(), id, awaits, job, until] {
    self->answer_when_ready(id, awaits, job, until);
  });
}

void Session::answer(std::string frame, bool then_close) {
  out_ = std::move(frame);
  deadline_.expires_after(kFrameDeadline);
  deadline_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->close();
  });
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this(), then_close](ErrorCode error, std::size_t) {
                      if (error || then_close) return self->close();
                      // What came with the last request may already be the next one.
                      self->arrived(0);
                    });
}

}  // namespace switchyard::monitor
