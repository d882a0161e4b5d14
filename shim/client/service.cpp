#include "shim/client/service.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "shim/client/client.h"
#include "shim/client/neighbours.h"
#include "shim/client/process.h"
#include "shim/client/watch.h"
#include "shim/clock.h"
#include "shim/log.h"
#include "shim/own_fd.h"
#include "shim/reset.h"
#include "shim/thread.h"

namespace switchyard::shim::service {
namespace {

constexpr int kBlindMs = 100;  // between two looks while poll() refuses
constexpr int kClosed = POLLRDHUP | POLLHUP | POLLERR | POLLNVAL;

struct State {
  OwnFd poke_out;  // where poke() writes,
  OwnFd poke_in;   // and the thread listens
  std::atomic<std::uint32_t> started{0};
};
constinit State g_state;

std::int64_t now_ms() { return static_cast<std::int64_t>(monotonic_ns() / 1'000'000); }

// Whatever it holds. pre: `fd` was looked up after poll(): the program may have closed ours
// meanwhile.
void drain(int fd) {
  char bytes[256];
  if (fd >= 0) [[maybe_unused]]
    const ssize_t got = ::read(fd, bytes, sizeof(bytes));
}

// A pair of sockets: unlike an eventfd, each has an inode of its own (own_fd.h). Without one the
// thread looks at the page at intervals.
void make_poke() {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return;
  g_state.poke_in.adopt(pair[0]);
  g_state.poke_out.adopt(pair[1]);
}

// -1: there is none.
int poke_fd() {
  // The program may have closed either.
  if (g_state.poke_in.get() < 0 || g_state.poke_out.get() < 0) make_poke();
  return g_state.poke_in.get();
}

void monitor_gone(Watch& watch, const char* why) {
  lose_monitor(why);
  neighbours::monitor_gone();
  watch.gone(now_ms());
}

void listen_to_monitor(Watch& watch, const MonitorFds& fds, const pollfd (&files)[3]) {
  const std::uint64_t beat = page().heartbeat.load(std::memory_order_relaxed);
  if (fds.lost) {
    monitor_gone(watch, "the program closed a descriptor of this library");
  } else if (((files[1].revents | files[2].revents) & kClosed) != 0) {
    monitor_gone(watch, "its socket closed");
  } else if (!watch.hears(now_ms(), beat)) {
    monitor_gone(watch, "no heartbeat for 2 s");
  } else {
    if ((files[2].revents & POLLIN) != 0) {
      drain(monitor_fds().doorbell);
      process().mover.wake();
    }
    neighbours::heed_monitor();
  }
}

void look_for_monitor(Watch& watch) {
  neighbours::without_monitor();  // a pause may be over
  if (!watch.tries(now_ms())) return;
  if (rejoin()) {
    wake_monitor();
  } else {
    watch.failed(now_ms());
  }
}

// poll() refuses where RLIMIT_NOFILE is lower than the count of files, and where memory lacks. The
// doorbell counts as rung then; a dead monitor is noticed by its heartbeat.
void wait_blindly(int pause, pollfd& doorbell) {
  const int wait = std::min(pause, kBlindMs);
  const timespec time{0, wait * 1'000'000L};
  ::nanosleep(&time, nullptr);
  doorbell.revents = POLLIN;
}

void* serve(void*) {
  Watch watch(now_ms());
  for (;;) {
    const bool soon = neighbours::look(monotonic_ns());
    const int poked = poke_fd();
    const MonitorFds fds = monitor_fds();
    pollfd files[3] = {{poked, POLLIN, 0}, {fds.socket, POLLRDHUP, 0}, {fds.doorbell, POLLIN, 0}};
    const int pause = fds.lost ? 0 : watch.sleep_ms(fds.socket >= 0, soon);
    if (::poll(files, 3, pause) < 0 && errno != EINTR) wait_blindly(pause, files[2]);
    if ((files[0].revents & kClosed) != 0) {
      make_poke();
    } else if ((files[0].revents & POLLIN) != 0) {
      drain(g_state.poke_in.get());
    }
    if (fds.socket >= 0 || fds.lost) {
      listen_to_monitor(watch, fds, files);
    } else {
      look_for_monitor(watch);
    }
  }
}

}  // namespace

void start() {
  if (g_state.started.load(std::memory_order_acquire) != 0 || g_state.started.exchange(1) != 0)
    return;
  make_poke();  // before the thread runs: what is poked meanwhile is not lost
  if (start_thread(serve)) return;
  // The next request to the monitor tries again.
  g_state.started.store(0, std::memory_order_release);
  static Once said;
  log_once(said, Level::kError, "starting the service thread failed: slices stay at the default");
}

void poke() {
  const int fd = g_state.poke_out.get();
  // A full socket already means "look".
  if (fd >= 0) [[maybe_unused]]
    const ssize_t sent = ::send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

namespace {
// A forked child has the parent's descriptors but not its thread.
void forget() {
  g_state.poke_in.close();
  g_state.poke_out.close();
  renew(g_state);
}
}  // namespace
SWITCHYARD_RESET(kConnection, forget);

}  // namespace switchyard::shim::service
