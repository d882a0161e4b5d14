#include "monitor/transport/session.h"

#include <errno.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <utility>

#include "monitor/control/reply.h"
#include "monitor/platform/process_end.h"
#include "monitor/platform/receive.h"
#include "switchyard/descriptors.h"

namespace switchyard::monitor {
namespace {

// What keeps a created job alive when its creator can't be watched, until its first process joins.
constexpr Time kUnseenCreator = std::chrono::seconds(60);
// Tools wait for an answer for ten seconds.
constexpr Time kHistoryAnswers = std::chrono::seconds(8);

// No peer takes a larger frame, so a larger answer is none.
std::string json_frame(std::uint32_t id, std::string json) {
  if (json.size() > wire::kMaxFrame) {
    json = dump(refusal(
        kFailure, fmt::format("the answer has {} bytes, and one frame takes {}: use a 'switchyard' "
                              "of the monitor's version {}, which asks for long listings in parts",
                              json.size(), wire::kMaxFrame, kVersion)));
  }
  return make_frame(wire::kJson, id, json);
}

}  // namespace

Session::Session(Local::socket socket, Admission admission, EventLoop& event_loop,
                 SessionLimits limits)
    : socket_(std::move(socket)),
      event_loop_(event_loop),
      limits_(limits),
      peer_(admission.peer),
      seat_(std::move(admission.seat)),
      refused_(std::move(admission.refused)),
      deadline_(socket_.get_executor()),
      wake_pause_(socket_.get_executor()) {}

void Session::start() { read(); }

void Session::close() {
  if (closed_) return;
  closed_ = true;
  deadline_.cancel();
  wake_pause_.cancel();
  Monitor& monitor = event_loop_.monitor();
  Closer& closer = monitor.closer();
  closer.close(peer_.account(), std::exchange(descriptors_, {}), std::exchange(held_, nullptr));
  if (client_ != 0) leave();
  ErrorCode ignored;
  if (wake_) closer.hang_up(peer_.account(), wake_->release(), seat_);
  wake_.reset();
  const int socket = socket_.release(ignored);
  if (socket >= 0) closer.hang_up(peer_.account(), socket, seat_);
  seat_.reset();
}

// The process may live on. While it does, the monitor keeps its watch, if there is room for one.
void Session::leave() {
  Monitor& monitor = event_loop_.monitor();
  struct Kept {
    Users::Seat seat;
    Watch watch;
  };
  auto kept =
      std::make_shared<Kept>(Kept{monitor.users().hold(peer_.account(), 1), std::move(watch_)});
  Client* client = monitor.registry().client(client_);
  if (client != nullptr && kept->seat == nullptr) client->watched = false;
  if (kept->seat == nullptr) kept.reset();
  monitor.left(client_, std::move(kept));
  event_loop_.look_soon();
}

void Session::watch_deadline() {
  if (client_ != 0 && !reader_.in_the_middle()) {
    deadline_.cancel();
    return;
  }
  close_after(asked_ && !reader_.in_the_middle() ? limits_.idle_tool : limits_.frame);
}

void Session::close_after(std::chrono::milliseconds span) {
  deadline_.expires_after(span);
  deadline_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->close();
  });
}

void Session::read() {
  if (closed_) return;
  watch_deadline();
  socket_.async_wait(Local::socket::wait_read, [self = shared_from_this()](ErrorCode error) {
    if (error) return self->close();
    self->readable();
  });
}

// Takes descriptors only from a client.
void Session::readable() {
  if (closed_) return;
  std::vector<Fd> came;
  bool lost = false;
  const ssize_t got = receive(socket_.native_handle(), buffer_, came, lost);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return read();
  if (got <= 0) {
    event_loop_.monitor().closer().close(peer_.account(), std::move(came));
    return close();
  }
  if (!came.empty()) {
    const bool wanted = client_ != 0 && !lost && came.size() <= wire::kMostDescriptors;
    auto held = wanted ? event_loop_.monitor().users().hold(peer_.account(), came.size()) : nullptr;
    // They come with the first byte of their frame, and one frame is answered before the next.
    if (held != nullptr && (reader_.in_the_middle() || !descriptors_.empty())) {
      event_loop_.monitor().closer().close(peer_.account(), std::move(came), std::move(held));
      spdlog::warn("pid {} of {} sent descriptors out of place: its connection is closed",
                   peer_.pid, user_name(peer_.uid));
      return close();
    }
    if (held != nullptr) {
      descriptors_ = std::move(came);
      held_ = std::move(held);
    } else {
      // Some of them are as good as none.
      event_loop_.monitor().closer().close(peer_.account(), std::move(came));
    }
  }
  arrived(static_cast<std::size_t>(got));
}

void Session::arrived(std::size_t bytes) {
  if (closed_) return;
  if (bytes > 0 && !reader_.feed(std::span(buffer_.data(), bytes))) {
    spdlog::warn("pid {} of {} sent {}: its connection is closed", peer_.pid, user_name(peer_.uid),
                 reader_.error());
    return close();
  }
  auto frame = reader_.next();
  if (!frame) return read();
  asked_ = true;
  // The frame is here. How long its answer takes is the monitor's affair; answer() limits the rest.
  deadline_.cancel();
  event_loop_.in_turn(peer_.account(), [self = shared_from_this(), frame = std::move(*frame)] {
    if (!self->closed_) self->handle(frame);
  });
}

void Session::handle(const Frame& frame) {
  if (!refused_.empty()) return refuse(frame);
  const bool client = client_ != 0;
  const bool charges = frame.kind == wire::kCharge || frame.kind == wire::kRefresh;
  const bool shares = frame.kind == wire::kShare || frame.kind == wire::kOpenShared ||
                      frame.kind == wire::kEndShare;
  const auto charged = read_charge(frame.payload);
  const auto shared = read_share(frame.payload);
  const bool bare = descriptors_.empty();
  if (frame.kind == wire::kHello && !client) {
    hello(frame);
  } else if (charges && client && charged && bare) {
    charge(frame, *charged);
  } else if (shares && client && shared && (bare || frame.kind == wire::kShare)) {
    share(frame, *shared);
  } else if (frame.kind == wire::kJson && !client) {
    command(frame);
  } else {
    spdlog::warn(
        "pid {} of {} sent a frame of kind {} with {} bytes out of place: its connection "
        "is closed",
        peer_.pid, user_name(peer_.uid), frame.kind, frame.payload.size());
    close();
  }
}

void Session::refuse(const Frame& frame) {
  if (frame.kind == wire::kJson) {
    return answer(json_frame(frame.id, dump(refusal(kRefusedByPolicy, refused_))), true);
  }
  answer(make_frame(wire::kRefused, frame.id, refused_.substr(0, 1000)), true);
}

void Session::command(const Frame& frame) {
  Answer out = answer_command(event_loop_.monitor(), peer_, frame.payload, steady_now());
  if (out.created != 0) {
    const auto gone = [&event_loop = event_loop_, job = out.created, pid = out.creator](int pidfd) {
      event_loop.monitor().creator_died(job, wait_status_of(pidfd, pid));
    };
    Watch watch = event_loop_.when_dead(out.creator, {}, gone);
    if (watch == nullptr) event_loop_.after(kUnseenCreator, [gone] { gone(-1); });
    Job* job = event_loop_.monitor().registry().find(out.created);
    if (job != nullptr) job->creator_watch = std::move(watch);
  }
  if (out.report) return ask_history(frame.id, std::move(*out.report));
  if (out.looks) event_loop_.look_soon();
  if (out.awaits != Awaits::kNothing) {
    const Time until = steady_now() + patience(out.awaits);
    return answer_when_ready(frame.id, out.awaits, out.job, until);
  }
  answer(json_frame(frame.id, std::move(out.json)));
}

// The history has a thread of its own, and a disk that may stand still.
void Session::ask_history(std::uint32_t id, history::Query query) {
  auto answered = std::make_shared<bool>(false);
  const auto tell = [weak = weak_from_this(), answered, id](std::string json) {
    const auto self = weak.lock();
    if (std::exchange(*answered, true) || self == nullptr || self->closed_) return;
    self->answer(json_frame(id, std::move(json)));
  };
  std::string why;
  if (!event_loop_.monitor().history()->ask(std::move(query), tell, why)) {
    return tell(dump(refusal(kRefusedByPolicy, why)));
  }
  // Nobody else holds the session meanwhile.
  event_loop_.after(kHistoryAnswers, [self = shared_from_this(), tell] {
    tell(dump(refusal(kTimedOut, "the disk that has the history does not answer")));
  });
}

bool Session::send(const std::string& bytes, std::span<const int> descriptors) {
  // The buffer of one who has read the answers so far is empty, so all of it fits at once.
  return send_with(socket_.native_handle(), bytes.data(), bytes.size(), descriptors.data(),
                   static_cast<unsigned>(descriptors.size()),
                   MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

bool Session::hung_up() {
  pollfd entry{socket_.native_handle(), 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void Session::answer_when_ready(std::uint32_t id, Awaits awaits, JobKey job, Time until) {
  event_loop_.until([self = shared_from_this(), id, awaits, job, until] {
    if (self->closed_) return true;
    const Time now = steady_now();
    const auto json = answer_if_ready(self->event_loop_.monitor(), awaits, job, now, now >= until);
    if (json) self->answer(json_frame(id, *json));
    if (!json && self->hung_up()) self->close();
    return json.has_value() || self->closed_;
  });
}

void Session::answer(std::string frame, bool then_close) {
  out_ = std::move(frame);
  close_after(limits_.frame);
  asio::async_write(socket_, asio::buffer(out_),
                    [self = shared_from_this(), then_close](ErrorCode error, std::size_t) {
                      if (error || then_close) return self->close();
                      // What came with the last request may already be the next one.
                      self->arrived(0);
                    });
}

}  // namespace switchyard::monitor
