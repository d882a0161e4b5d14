#include "monitor/session.h"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

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

std::vector<Fd> take_descriptors(const msghdr& message) {
  std::vector<Fd> taken;
  const cmsghdr* head = message.msg_controllen != 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
    return taken;
  }
  const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
    taken.emplace_back(fd);
  }
  return taken;
}

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
  close_elsewhere(std::exchange(descriptors_, {}));
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
  socket_.async_wait(Local::socket::wait_read, [self = shared_from_this()](ErrorCode error) {
    if (error) return self->close();
    self->readable();
  });
}

// Takes descriptors only from a client: those of anybody else the kernel drops by itself.
void Session::readable() {
  if (closed_) return;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::kMostDescriptors)] = {};
  iovec vector{buffer_.data(), buffer_.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = client_ != 0 ? sizeof(control) : 0;
  const ssize_t got = ::recvmsg(socket_.native_handle(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return read();
  if (got <= 0) return close();
  std::vector<Fd> came = take_descriptors(message);
  // Not all could be taken: some are as good as none.
  if ((message.msg_flags & MSG_CTRUNC) != 0) close_elsewhere(std::exchange(came, {}));
  // They come with the first byte of their frame, and one frame is answered before the next.
  const bool out_of_place = !came.empty() && (reader_.in_the_middle() || !descriptors_.empty());
  std::move(came.begin(), came.end(), std::back_inserter(descriptors_));
  if (out_of_place) {
    spdlog::warn("pid {} of {} sent descriptors out of place: its connection is closed", peer_.pid,
                 user_name(peer_.uid));
    return close();
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
  if (const auto frame = reader_.next()) return handle(*frame);
  read();
}

void Session::handle(const Frame& frame) {
  asked_ = true;
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

void Session::charge(const Frame& frame, const wire::Charge& charge) {
  Monitor& monitor = yard_.monitor();
  const wire::Charged charged = frame.kind == wire::kCharge
                                    ? monitor.charge(client_, charge, steady_now())
                                    : monitor.refresh(client_, charge, steady_now());
  // Another may have to give the room.
  const bool waits = charged.verdict == wire::kWait;
  if (frame.kind == wire::kRefresh || waits) yard_.look_soon();
  answer(make_frame(wire::kCharged, frame.id, charged));
}

void Session::share(const Frame& frame, const wire::Share& asked) {
  SharedMemory& room = yard_.monitor().shared_memory();
  if (frame.kind == wire::kOpenShared) {
    std::vector<int> descriptors;
    const wire::Shared shared = room.open(peer_.uid, asked, descriptors);
    const std::string bytes = make_frame(wire::kShared, frame.id, shared);
    if (descriptors.empty()) return answer(bytes);
    if (!send(bytes, descriptors)) return close();
    room.sent(asked, shared);
    // What came with the last request may already be the next one.
    return asio::post(socket_.get_executor(), [self = shared_from_this()] { self->arrived(0); });
  }
  wire::Shared shared{};
  shared.verdict = frame.kind == wire::kShare ? room.share(client_, peer_.uid, asked, descriptors_)
                                              : room.end(client_, asked.key);
  close_elsewhere(std::exchange(descriptors_, {}));
  answer(make_frame(wire::kShared, frame.id, shared));
}

void Session::command(const Frame& frame) {
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
                           static_cast<std::uint32_t>(::getpid()), wire::kSharesMemory};
  const int descriptors[] = {page.memfd(), page.doorbell(), page.wake()};
  return send(make_frame(wire::kWelcome, frame.id, body), descriptors);
}

bool Session::send(const std::string& bytes, std::span<const int> descriptors) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * wire::kMostDescriptors)] = {};
  iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  // The buffer of one who has read the answers so far is empty, so all of it fits at once.
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
