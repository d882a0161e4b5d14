#include "shim/client/service.h"

#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
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
  OwnFd poke;                           // where poke() writes, and the thread listens
  std::atomic<std::uint32_t> poked{0};  // 1: something is on its way there
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

// A socket that is connected to itself. It takes one of the program's descriptors, and unlike an
// eventfd it has an inode of its own (own_fd.h). Nobody else can send there. Without one the thread
// looks at the page at intervals.
void make_poke() {
  constexpr std::size_t kNameBytes = 16;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;  // and an abstract name, which begins with a zero
  constexpr socklen_t kBytes = offsetof(sockaddr_un, sun_path) + 1 + kNameBytes;
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  if (::getrandom(name.sun_path + 1, kNameBytes, GRND_NONBLOCK) != kNameBytes ||
      ::bind(fd, address, kBytes) != 0 || ::connect(fd, address, kBytes) != 0) {
    close_file(fd);
    return;
  }
  g_state.poke.adopt(fd);
  g_state.poked.store(0, std::memory_order_release);
}

// -1: there is none.
int poke_fd() {
  if (g_state.poke.get() < 0) make_poke();  // the program may have closed it
  return g_state.poke.get();
}

void monitor_gone(Watch& watch, const char* why) {
  lose_monitor(why);
  neighbours::monitor_gone();
  watch.gone(now_ms());
}

void listen_to_monitor(Watch& watch, const MonitorFds& fds, const pollfd (&files)[3]) {
  const std::uint64_t beat = page().head.heartbeat.load(std::memory_order_relaxed);
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
      drain(g_state.poke.get());
      // From here on this thread sees all that was written before the poke.
      g_state.poked.exchange(0, std::memory_order_acq_rel);
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
  const int fd = g_state.poke.get();
  if (fd < 0 || g_state.poked.exchange(1, std::memory_order_acq_rel) != 0) return;
  if (::send(fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    g_state.poked.store(0, std::memory_order_relaxed);
  }
}

namespace {
// A forked child has the parent's descriptor but not its thread.
void forget() {
  g_state.poke.close();
  renew(g_state);
}
}  // namespace
SWITCHYARD_RESET(kConnection, forget);

}  // namespace switchyard::shim::service
