#include "shim/client/client.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim/client/frames.h"
#include "shim/client/hello.h"
#include "shim/client/monitor_socket.h"
#include "shim/client/neighbours.h"
#include "shim/client/process.h"
#include "shim/client/served_page.h"
#include "shim/client/service.h"
#include "shim/client/settings.h"
#include "shim/driver.h"
#include "shim/lock.h"
#include "shim/log.h"
#include "shim/no_cancel.h"
#include "shim/own_fd.h"
#include "shim/reset.h"
#include "switchyard/paths.h"

namespace switchyard::shim {
namespace {

enum Fd { kSocket = 0, kDoorbell = 1, kWake = 2, kFds = 3 };

struct State {
  OwnFd own[kFds];
  std::atomic<std::uint32_t> observer{0};
  std::atomic<std::uint32_t> connections{0};  // so far
  std::atomic<std::uint32_t> sharing{0};  // the connection, if the monitor shares memory; else 0
  std::atomic<bool> refused{false};       // a monitor answered, and its reason was told
  std::uint32_t last_id = 1;              // of a request
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

// Whether a monitor has had this process as a client.
bool was_client() {
  return page().head.magic.load(std::memory_order_acquire) == abi::kMagic &&
         g_state.observer.load(std::memory_order_relaxed) == 0;
}

// A program that only asks NVML has nothing to lose, and its user nothing to know.
Level refusal_level() {
  return process().uses_cuda.load(std::memory_order_relaxed) != 0 ? Level::kWarn : Level::kInfo;
}

// The answer to Hello with its descriptors: {page, doorbell, wake}. False: refused or broken.
bool receive_welcome(int fd, wire::Welcome& welcome, int (&fds)[kFds]) {
  wire::FrameHeader header{};
  Descriptors along;
  const bool received = receive_header(fd, header, along);
  if (along.count == kFds) {
    for (int i = 0; i < kFds; ++i) fds[i] = along.fd[i];
  } else {
    along.close();
  }
  if (!received) return false;
  if (header.kind == wire::kRefused && header.length < 1024) {
    char text[1024] = {};
    if (receive_all(fd, text, header.length)) {
      log_line(refusal_level(), "the monitor refused this process: %s; it runs unmanaged", text);
      g_state.refused.store(true, std::memory_order_relaxed);
    }
    return false;
  }
  return header.kind == wire::kWelcome && receive_payload(fd, header, &welcome, sizeof(welcome)) &&
         fds[kFds - 1] >= 0;
}

void close_all(int (&fds)[kFds]) {
  for (const int fd : fds) {
    if (fd >= 0) close_file(fd);
  }
}

// Whether the variables fit into the card; says which does not.
bool card_fits() {
  static Once said;
  JobCard card{};
  const TooLong found = read_before(card);
  if (found.name == nullptr) return true;
  log_once(said, refusal_level(),
           "%s has more than %zu characters: this process runs unmanaged; use a shorter value",
           found.name, found.most);
  g_state.refused.store(true, std::memory_order_relaxed);
  return false;
}

// Says if not. A monitor would refuse all memory on a GPU that Hello did not name.
bool gpus_have_names() {
  static Once said;
  if (!known_gpus().nameless) return true;
  log_once(said, refusal_level(),
           "the driver does not tell the UUIDs of all GPUs: this process runs unmanaged; it needs "
           "a driver of CUDA 11.4 or newer, and GPUs that answer");
  g_state.refused.store(true, std::memory_order_relaxed);
  return false;
}

void say_settings_are_ignored() {
  static Once said;
  char names[256];
  char job[sizeof(JobCard::name)];
  list_promises(names);
  read_card_value(page().card.text, "name", job);
  log_once(said, refusal_level(),
           "job '%s' has the settings of whoever made it, and not all of this process's (%s): see "
           "`switchyard set`",
           job, names);
}

// pre: `lock` is held. Connects, says Hello and takes the page over.
bool connect_and_join(std::uint32_t flags) {
  if ((flags & wire::kRejoin) == 0 && !card_fits()) return false;
  if ((flags & wire::kObserver) == 0 && !gpus_have_names()) return false;
  const int fd = connect_monitor(was_client());
  if (fd < 0) return false;
  wire::Hello hello{};
  fill_hello(hello, flags);
  wire::Welcome welcome{};
  int fds[kFds] = {-1, -1, -1};
  if (!send_frame(fd, wire::kHello, 1, &hello, sizeof(hello)) ||
      !receive_welcome(fd, welcome, fds) || !accept_page(fds[0], welcome) ||
      !neighbours::move_to_page(fds[0], hello)) {
    close_all(fds);
    close_file(fd);
    return false;
  }
  close_file(fds[0]);  // the mapping keeps the page
  fds[kSocket] = fd;
  g_state.observer.store(flags & wire::kObserver, std::memory_order_relaxed);
  // The socket last: whoever sees it takes the rest for there, too.
  for (int i = kFds - 1; i >= 0; --i) g_state.own[i].adopt(fds[i]);
  const std::uint32_t connection = g_state.connections.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool shares = (welcome.features & wire::kSharesMemory) != 0;
  g_state.sharing.store(shares ? connection : 0, std::memory_order_release);
  process().joined.store(1, std::memory_order_release);
  char job[sizeof(JobCard::job)];
  read_card_value(page().card.text, "job", job);
  log_line(Level::kInfo, "joined monitor %u as job '%s'", welcome.monitor_pid, job);
  if ((welcome.features & wire::kOtherSettings) != 0) say_settings_are_ignored();
  return true;
}

// The doorbell and the wake stay open, so that their numbers stay ours: a thread may be about to
// write to one without our lock. The next connection replaces them.
void close_connection() {
  process().joined.store(0, std::memory_order_release);
  g_state.sharing.store(0, std::memory_order_release);
  g_state.own[kSocket].close();
}

bool is_open() { return g_state.own[kSocket].get() >= 0; }

struct Asked {
  wire::Kind kind;
  const void* payload;
  std::size_t bytes;
};
struct Answered {
  wire::Kind kind;
  void* payload;
  std::size_t bytes;
};

// One bounded round trip. `descriptors` go along, and then are those that came back.
bool exchange(const Asked& asked, const Answered& answer, Descriptors& descriptors) {
  const NoCancel whole;
  const Locked locked(g_state.lock);
  const int fd = g_state.own[kSocket].get();
  wire::FrameHeader header{};
  const std::uint32_t id = ++g_state.last_id;
  const bool sent =
      fd >= 0 && send_frame(fd, asked.kind, id, asked.payload, asked.bytes, descriptors);
  descriptors.close();
  if (fd < 0) return false;
  if (sent && receive_header(fd, header, descriptors) && header.kind == answer.kind &&
      header.id == id && receive_payload(fd, header, answer.payload, answer.bytes)) {
    return true;
  }
  descriptors.close();
  // Out of step or too late: no later answer can be trusted. The service thread joins again.
  ::shutdown(fd, SHUT_RDWR);
  return false;
}

// Once: whoever started the process may count on what it asked for.
void say_unmanaged() {
  static Once said;
  if (g_state.refused.load(std::memory_order_relaxed)) return;
  char path[kSocketPathBytes] = "";
  char promises[256] = "";
  if (!socket_path(path, socket_before())) {
    ::snprintf(path, sizeof(path), "a path that is too long");
  }
  if (list_promises(promises)) {
    log_once(said, Level::kWarn,
             "no monitor answers at %s: this process runs unmanaged, and %s is not kept; "
             "`switchyard run` starts a monitor",
             path, promises);
  } else {
    log_once(said, Level::kWarn,
             "no monitor answers at %s: this process runs unmanaged; `switchyard run` starts a "
             "monitor",
             path);
  }
}

}  // namespace

bool join() {
  if (disabled()) return false;
  const NoCancel whole;
  begin_process();
  JobCard card;
  read_card(card);
  process().uses_cuda.store(1, std::memory_order_relaxed);
  bool joined = false;
  {
    const Locked locked(g_state.lock);
    if (is_open() && !observing()) return true;
    // Libraries call cuInit again, also while the monitor is away: what is charged goes along.
    const std::uint32_t flags = was_client() ? wire::kRejoin : 0;
    if (is_open()) close_connection();  // an observer that turns to CUDA becomes a client
    ask_for_gpus();
    joined = connect_and_join(flags);
    // The choice goes along, and a mover may have answered the monitor already.
    if (joined && flags == 0) neighbours::joined(known_gpus().seen);
  }
  if (!joined) say_unmanaged();
  // A job that `switchyard run` started belongs to a monitor, even if that is just restarting.
  // `switchyard run` has told it already.
  if (card.job[0] == '\0') say_unknown_variables();
  say_wrong_log();
  if (joined || card.job[0] != '\0') service::start();
  return joined;
}

void join_later(const std::uint8_t (&uuid)[16]) {
  if (disabled()) return;
  const NoCancel whole;
  begin_process();
  JobCard card;
  read_card(card);
  process().uses_cuda.store(1, std::memory_order_relaxed);
  {
    const Locked locked(g_state.lock);
    know_gpu(uuid);
  }
  service::start();
}

bool observe() {
  if (disabled()) return false;
  begin_process();
  const NoCancel whole;
  JobCard card;
  read_card(card);
  const Locked locked(g_state.lock);
  if (is_open()) return true;
  return process().uses_cuda.load(std::memory_order_relaxed) == 0 &&
         connect_and_join(wire::kObserver);
}

bool observing() { return g_state.observer.load(std::memory_order_relaxed) != 0; }

bool request(wire::Kind kind, int lane, std::uint64_t bytes, wire::Charged& answer) {
  if (process().joined.load(std::memory_order_relaxed) != 0 && !observing()) service::start();
  const wire::Charge charge{static_cast<std::uint32_t>(lane), 0, bytes};
  Descriptors none;
  const bool answered =
      exchange({kind, &charge, sizeof(charge)}, {wire::kCharged, &answer, sizeof(answer)}, none);
  none.close();
  return answered;
}

std::uint32_t sharing_monitor() { return g_state.sharing.load(std::memory_order_acquire); }

bool share(wire::Kind kind, const wire::Share& asked, Descriptors& descriptors,
           wire::Shared& answer) {
  return exchange({kind, &asked, sizeof(asked)}, {wire::kShared, &answer, sizeof(answer)},
                  descriptors);
}

namespace {
// Whether the monitor of this page has ever ordered a move.
bool is_ordered_to_move() {
  for (const abi::Lane& lane : page().lanes) {
    if (lane.shall_be_on.load(std::memory_order_relaxed) != 0) return true;
  }
  return false;
}
}  // namespace

void exchange_gpus(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]) {
  const Locked locked(g_state.lock);
  exchange_known_gpus(one, other);
  const int fd = g_state.own[kSocket].get();
  if (fd < 0 || is_ordered_to_move()) return;
  // Another monitor ordered it. This one came meanwhile, and was told the GPUs of before.
  ::shutdown(fd, SHUT_RDWR);
}

void wake_monitor() {
  const int fd = g_state.own[kWake].get();
  if (fd < 0) return;
  const NoCancel whole;
  const std::uint64_t one = 1;
  // A full queue already means "look". An older monitor sent an eventfd, non-blocking as well.
  if (::send(fd, &one, sizeof(one), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == ENOTSOCK) {
    [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
  }
}

namespace {
void drop_inherited_connection() {
  for (OwnFd& own : g_state.own) own.close();
  renew(g_state);
  forget_gpus();
}
}  // namespace
SWITCHYARD_RESET(kConnection, drop_inherited_connection);

MonitorFds monitor_fds() {
  if (!g_state.own[kSocket].is_set()) return {-1, -1, false};
  const MonitorFds found{g_state.own[kSocket].get(), g_state.own[kDoorbell].get(), false};
  const bool lost = found.socket < 0 || found.doorbell < 0 || g_state.own[kWake].get() < 0;
  return lost ? MonitorFds{-1, -1, true} : found;
}

void lose_monitor(const char* why) {
  const NoCancel whole;
  const Locked locked(g_state.lock);
  if (!g_state.own[kSocket].is_set()) return;
  log_line(Level::kWarn, "lost the monitor (%s): the job goes on with its last limits", why);
  close_connection();
}

bool rejoin() {
  const Locked locked(g_state.lock);
  const bool was_joined = page().head.magic.load(std::memory_order_acquire) == abi::kMagic;
  return is_open() || connect_and_join(was_joined ? wire::kRejoin : 0);
}

}  // namespace switchyard::shim
