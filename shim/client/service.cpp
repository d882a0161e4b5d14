#include "shim/client/service.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/clock.h"
#include "shim/gate/hold.h"
#include "shim/gate/numbers.h"
#include "shim/gate/view.h"
#include "shim/log.h"
#include "shim/slices/groups.h"
#include "shim/swap/admission.h"
#include "shim/swap/mover.h"
#include "shim/thread.h"

namespace switchyard::shim::service {
namespace {

constexpr int kLookMs = 500;   // how often it looks at the heartbeat
constexpr int kFollowMs = 20;  // the same while work stands before a retired view, or is drained
constexpr std::int64_t kFirstRetryMs = 100;
constexpr std::int64_t kLastRetryMs = 2000;

std::atomic<int> g_poke{-1};
std::atomic<std::int32_t> g_thread_of{0};  // the process that has a service thread

std::int64_t now_ms() { return static_cast<std::int64_t>(monotonic_ns() / 1'000'000); }

void drain(int fd) {
  std::uint64_t count = 0;
  if (fd >= 0) [[maybe_unused]]
    const ssize_t got = ::read(fd, &count, sizeof(count));
}

// What the thread knows between two looks.
struct Watch {
  std::uint64_t heartbeat = 0;
  std::int64_t heard_ms = 0;
  std::int64_t retry_ms = kFirstRetryMs;
  std::int64_t next_try_ms = 0;
};

void monitor_gone(Watch& watch, const char* why) {
  lose_monitor(why);
  // First the gates: that needs nobody. The slices are the driver's to set, and may take their
  // time.
  open_without_monitor();
  swap::mover::poke();
  groups::restore_default();
  watch.retry_ms = kFirstRetryMs;
  watch.next_try_ms = now_ms() + kFirstRetryMs;
}

void listen_to_monitor(Watch& watch, const Ears& ear, const pollfd (&files)[3]) {
  const std::uint64_t beat = page().heartbeat.load(std::memory_order_relaxed);
  if (beat != watch.heartbeat) {
    watch.heartbeat = beat;
    watch.heard_ms = now_ms();
  }
  if ((files[1].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) {
    monitor_gone(watch, "its socket closed");
  } else if (now_ms() - watch.heard_ms > kSilentMs) {
    monitor_gone(watch, "no heartbeat for 2 s");
  } else {
    if ((files[2].revents & POLLIN) != 0) {
      drain(ear.doorbell);
      swap::mover::poke();
    }
    groups::apply_wanted();
  }
}

void look_for_monitor(Watch& watch) {
  open_without_monitor();  // a pause may be over
  if (now_ms() < watch.next_try_ms) return;
  if (rejoin()) {
    watch.heartbeat = page().heartbeat.load(std::memory_order_relaxed);
    watch.heard_ms = now_ms();
    wake_monitor();
    return;
  }
  watch.retry_ms = std::min(watch.retry_ms * 2, kLastRetryMs);
  watch.next_try_ms = now_ms() + watch.retry_ms;
}

void* serve(void*) {
  Watch watch;
  watch.heard_ms = now_ms();
  for (;;) {
    const std::uint64_t now = monotonic_ns();
    const bool follows = view::follow(now);
    const bool drains = swap::admission::overrule(now);
    numbers::give_up_stale(now);
    const Ears ear = ears();
    const int poke_fd = g_poke.load(std::memory_order_relaxed);
    pollfd files[3] = {{poke_fd, POLLIN, 0}, {ear.socket, POLLRDHUP, 0}, {ear.doorbell, POLLIN, 0}};
    const int look = ear.socket >= 0 ? kLookMs : static_cast<int>(watch.retry_ms);
    const int pause = follows || drains ? std::min(kFollowMs, look) : look;
    if (::poll(files, 3, pause) < 0 && errno != EINTR) return nullptr;
    if ((files[0].revents & POLLIN) != 0) drain(poke_fd);
    if (ear.socket >= 0) {
      listen_to_monitor(watch, ear, files);
    } else {
      look_for_monitor(watch);
    }
  }
}

}  // namespace

void start() {
  // A forked child has the parent's word but not its thread.
  const auto self = static_cast<std::int32_t>(::getpid());
  std::int32_t owner = g_thread_of.load(std::memory_order_acquire);
  if (owner == self || !g_thread_of.compare_exchange_strong(owner, self)) return;
  g_poke.store(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), std::memory_order_release);
  if (!start_thread(serve)) {
    log_line(Level::kError, "no service thread (%m): slices stay as the driver sets them");
  }
}

void poke() {
  const int fd = g_poke.load(std::memory_order_acquire);
  const std::uint64_t one = 1;
  if (fd >= 0) [[maybe_unused]]
    const ssize_t written = ::write(fd, &one, sizeof(one));
}

}  // namespace switchyard::shim::service
