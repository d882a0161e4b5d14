// The part of Session for the process of a job: it joins, asks for memory, shares some, and rings.
#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "monitor/transport/session.h"

namespace switchyard::monitor {
namespace {

// A client that was asked to ring, or whose memory moves, is heard again soon; one that rings
// unasked not so soon.
constexpr auto kAskedPause = std::chrono::microseconds(200);
constexpr auto kUnaskedPause = std::chrono::milliseconds(5);

}  // namespace

Time pause_after_wake(const Client& client) {
  // While memory moves, each chunk that has left is the next one's room.
  const bool asked = std::any_of(client.lanes.begin(), client.lanes.end(), [](const auto& lane) {
    return lane.second.asked_to_wake || lane.second.order.tell_waits ||
           !lane.second.residency.resident();
  });
  return asked ? Time(kAskedPause) : Time(kUnaskedPause);
}

void Session::charge(const Frame& frame, const wire::Charge& charge) {
  Monitor& monitor = event_loop_.monitor();
  const wire::Charged charged = frame.kind == wire::kCharge
                                    ? monitor.charge(client_, charge, steady_now())
                                    : monitor.refresh(client_, charge, steady_now());
  // Another may have to give the room.
  const bool waits = charged.verdict == wire::kWait;
  if (frame.kind == wire::kRefresh || waits) event_loop_.look_soon();
  answer(make_frame(wire::kCharged, frame.id, charged));
}

void Session::share(const Frame& frame, const wire::Share& asked) {
  SharedMemory& room = event_loop_.monitor().shared_memory();
  if (frame.kind == wire::kOpenShared) {
    std::vector<int> descriptors;
    const wire::Shared shared = room.open(peer_.uid, asked, descriptors);
    const std::string bytes = make_frame(wire::kShared, frame.id, shared);
    if (descriptors.empty()) return answer(bytes);
    if (!send(bytes, descriptors)) return close();
    room.sent(peer_.uid, asked, shared);
    // What came with the last request may already be the next one.
    return asio::post(socket_.get_executor(), [self = shared_from_this()] { self->arrived(0); });
  }
  wire::Shared shared{};
  Closer& closer = event_loop_.monitor().closer();
  if (frame.kind == wire::kShare) {
    shared.verdict = room.share(client_, peer_.owner(), asked, descriptors_);
    closer.close(peer_.account(), std::exchange(descriptors_, {}), std::exchange(held_, nullptr));
    return answer(make_frame(wire::kShared, frame.id, shared));
  }
  shared.verdict = room.end(client_, peer_.uid, asked.key);
  const std::string bytes = make_frame(wire::kShared, frame.id, shared);
  if (shared.verdict != wire::kTaken) return answer(bytes);
  // A client that ends a share gives the memory back next: the driver must see no descriptor of it.
  closer.close(peer_.account(), {}, nullptr, [weak = weak_from_this(), bytes] {
    const auto self = weak.lock();
    if (self != nullptr && !self->closed_) self->answer(bytes);
  });
  deadline_.expires_after(limits_.frame);
  deadline_.async_wait([self = shared_from_this()](ErrorCode error) {
    if (!error) self->close();
  });
}

void Session::hello(const Frame& frame) {
  bool dead = false;
  Fd process = open_peer(socket_.native_handle(), dead);
  // A child of it has the socket. Its number may be another process's.
  if (dead) return close();
  std::string why;
  const auto hello = read_hello(frame.payload, why);
  Client* client = hello ? event_loop_.monitor().join(peer_, *hello, steady_now(), why) : nullptr;
  if (client == nullptr) {
    const std::uint32_t layout = other_layout(frame.payload);
    const Time now = steady_now();
    if (event_loop_.monitor().refused_processes().note(peer_, why, layout, now)) {
      HistoryEvent event = event_of(EventKind::kProcessRefused, 0, peer_, now);
      event.value = layout;
      event_loop_.monitor().journal().take(event);
      spdlog::warn("pid {} of {} is refused: {}", peer_.pid, user_name(peer_.uid), why);
    }
    return answer(make_frame(wire::kRefused, frame.id, why.substr(0, 1000)), true);
  }
  client_ = client->id;
  // The watch comes before anything that may fail. Without it the monitor never hears that the
  // process has ended, and keeps the client for ever.
  watch_ = event_loop_.when_dead(
      peer_.pid, std::move(process),
      [&event_loop = event_loop_, id = client_, weak = weak_from_this()](int) {
        // A child that inherited the socket may hold it open for long.
        if (const auto self = weak.lock()) self->close();
        event_loop.monitor().died(id);
        event_loop.look_soon();
      });
  client->watched = watch_ != nullptr;
  if (!welcome(frame, *client)) return close();
  client->page->drop_sent();
  // A descriptor of our own, so that neither the page nor the loop closes the other's.
  const int wake = ::fcntl(client->page->wake(), F_DUPFD_CLOEXEC, 3);
  if (wake < 0) return close();
  wake_.emplace(socket_.get_executor(), wake);
  listen_to_wake();
  event_loop_.look_soon();
  read();
}

bool Session::welcome(const Frame& frame, const Client& client) {
  const ClientPage& page = *client.page;
  const std::uint32_t features =
      wire::kSharesMemory | (client.other_settings ? wire::kOtherSettings : 0);
  const wire::Welcome body{abi::kLayoutVersion, page.bytes(),
                           static_cast<std::uint32_t>(::getpid()), features};
  const int descriptors[] = {page.memfd(), page.clients_doorbell(), page.clients_wake()};
  return send(make_frame(wire::kWelcome, frame.id, body), descriptors);
}

void Session::listen_to_wake() {
  wake_->async_wait(asio::posix::stream_descriptor::wait_read,
                    [weak = weak_from_this()](ErrorCode error) {
                      const auto self = weak.lock();
                      if (!error && self != nullptr && !self->closed_) self->rung();
                    });
}

void Session::rung() {
  Client* client = event_loop_.monitor().registry().client(client_);
  if (client == nullptr) return;
  std::vector<Fd> came;
  client->page->answer_wake(came);
  event_loop_.monitor().closer().close(peer_.account(), std::move(came));
  // A look costs the more the more clients there are: many that ring keep no other user waiting.
  event_loop_.in_turn(peer_.account(), [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && !self->closed_) self->look();
  });
}

void Session::look() {
  event_loop_.look_at_those_of(client_);
  // The look may have ended it.
  const Client* client = event_loop_.monitor().registry().client(client_);
  if (client == nullptr) return;
  wake_pause_.expires_after(pause_after_wake(*client));
  wake_pause_.async_wait([weak = weak_from_this()](ErrorCode error) {
    const auto self = weak.lock();
    if (!error && self != nullptr && self->wake_) self->listen_to_wake();
  });
}

}  // namespace switchyard::monitor
