#include "tools/run/autostart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "switchyard/fd.h"
#include "switchyard/folders.h"
#include "switchyard/paths.h"
#include "tools/base/output.h"
#include "tools/base/places.h"
#include "tools/base/sockets.h"
#include "tools/run/close_from.h"
#include "tools/run/environment.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr char kLogSize[] = "1MiB";          // and as much of FILE.old; it may lie in memory
constexpr Milliseconds kStartLimit{30000};   // NVML of a machine with eight GPUs takes seconds
constexpr Milliseconds kSystemLimit{10000};  // systemd restarts the system monitor after 2 s
constexpr Milliseconds kLoserLimit{5000};    // ours ended: how long the winner may take to listen

// The folder of a user's own socket, as paths.h wants it. Its owner is checked, for anybody may
// make a folder in /tmp.
std::optional<Error> prepare_folder(const std::string& socket) {
  const std::string folder = fs::path(socket).parent_path().string();
  if (folder.empty()) return std::nullopt;
  // Before anything is made or opened there.
  const auto foreign = foreign_part_of(folder);
  if (foreign && is_foreign(foreign->owner)) {
    return Error{kMonitorUnreachable,
                 fmt::format("{} belongs to another user (uid {}), so no monitor is started there; "
                             "choose another place with SWITCHYARD_SOCKET",
                             foreign->path, foreign->owner)};
  }
  struct stat about {};
  const mode_t mode = socket == kSystemSocket ? 0755 : 0700;  // root's monitor serves everybody
  if (::mkdir(folder.c_str(), mode) != 0 && errno != EEXIST) {
    return Error{kMonitorUnreachable, fmt::format("cannot make {} for the monitor's socket: {}; "
                                                  "choose another place with SWITCHYARD_SOCKET",
                                                  folder, std::strerror(errno))};
  }
  const bool ours = fs::path(folder).filename().string().rfind("switchyard-", 0) == 0;
  if (ours && (::lstat(folder.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
               about.st_uid != ::geteuid() || (about.st_mode & 022) != 0)) {
    return Error{kMonitorUnreachable,
                 fmt::format("{} is not a folder of yours alone, so no monitor is started there; "
                             "remove it or set SWITCHYARD_SOCKET",
                             folder)};
  }
  return std::nullopt;
}

std::string log_path(const std::string& socket) {
  return fs::path(socket).replace_extension(".log").string();
}

std::uintmax_t log_size(const std::string& path) {
  std::string why;
  struct stat info {};
  const Fd log = open_own_file(path.c_str(), O_RDONLY, why);
  return log && ::fstat(log.get(), &info) == 0 ? static_cast<std::uintmax_t>(info.st_size) : 0;
}

// The last line of the monitor's log that was written after `from`.
std::string last_words(const std::string& path, std::uintmax_t from) {
  std::string why;
  const Fd opened = open_own_file(path.c_str(), O_RDONLY, why);
  if (!opened) return {};
  std::ifstream log("/proc/self/fd/" + std::to_string(opened.get()));
  log.seekg(static_cast<std::streamoff>(from));
  std::string last;
  for (std::string line; std::getline(log, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// What the child does between fork and exec. Only the three standard descriptors and `lifeline`
// stay open: a monitor that held the caller's pipe would keep `$(switchyard run ...)` waiting.
[[noreturn]] void become_monitor(const char* program, const std::string& path, int log,
                                 int lifeline) {
  if (::setsid() < 0 || ::fork() != 0) ::_exit(0);  // the second child is nobody's to wait for
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, 0);
  ::dup2(log >= 0 ? log : null, 1);
  ::dup2(log >= 0 ? log : null, 2);
  // dup2 onto the same number leaves "close on exec" set. Without the lifeline, the caller would
  // take the monitor for dead.
  if (::dup2(lifeline, 3) != 3 || ::fcntl(3, F_SETFD, 0) != 0) ::_exit(127);
  close_from(4);
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::umask(0077);
  if (::chdir("/") != 0) ::_exit(127);
  if (log >= 0) {
    ::execl(program, "switchyardd", "--log-file", path.c_str(), "--log-size", kLogSize,
            static_cast<char*>(nullptr));
  }
  ::execl(program, "switchyardd", static_cast<char*>(nullptr));
  ::_exit(127);
}

// Starts the monitor; the descriptor becomes readable (end of file) when it ends.
Result<Fd> spawn_monitor(const std::string& program, const std::string& socket) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return Error{kFailure, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  }
  Fd reading(ends[0]);
  Fd writing(ends[1]);
  std::string why;  // without a log it starts all the same
  const std::string path = log_path(socket);
  const Fd log = open_own_file(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, why);
  const pid_t child = ::fork();
  if (child < 0) {
    return Error{kFailure, fmt::format("cannot start the monitor: {}", std::strerror(errno))};
  }
  if (child == 0) {
    leave_job();  // the monitor is no client, and its knobs are not a job's
    ::setenv("SWITCHYARD_SOCKET", socket.c_str(), 1);
    // A service that runs the job is not this monitor.
    for (const char* variable : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) {
      ::unsetenv(variable);
    }
    become_monitor(program.c_str(), path, log.get(), writing.get());
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return reading;
}

bool ended(const Fd& lifeline) {
  pollfd entry{lifeline.get(), POLLIN, 0};
  return lifeline && ::poll(&entry, 1, 0) > 0;
}

// A connection that the monitor has answered on. One that is about to end, or that listens and then
// finds the GPU taken, may still accept.
Result<MonitorClient> connect_living(const std::string& socket) {
  auto client = MonitorClient::connect(socket);
  if (!client) return client;
  if (auto answer = client->ask({{"op", "version"}}); !answer) return answer.error();
  return client;
}

class Starter {
 public:
  explicit Starter(std::string socket) : socket_(std::move(socket)) {}

  Result<MonitorClient> run() {
    if (auto refused = prepare_folder(socket_)) return *refused;
    const std::string lock_path = socket_ + ".start";  // ".lock" is the monitor's own
    std::string why;  // without it two may start one each, of which one is refused
    const Fd lock = open_own_file(lock_path.c_str(), O_RDWR | O_CREAT, why);
    auto deadline = Clock::now() + kStartLimit;
    bool started = false;
    Fd lifeline;
    for (Milliseconds pause{2};; pause = std::min(pause * 2, Milliseconds(50))) {
      auto client = connect_living(socket_);
      if (client || client.error().code == kNoPermission) return client;
      const bool ours = !lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
      if (!started && ours) {
        // The one before us may have started it between our connect and our lock.
        if (auto second = connect_living(socket_)) return second;
        if (auto refused = start(lifeline)) return *refused;
        started = true;
      }
      if (started && ended(lifeline) && !gave_up_) {
        gave_up_ = true;
        deadline = std::min(deadline, Clock::now() + kLoserLimit);
        if (lock) deadline = Clock::now();  // nobody else starts one while we hold the lock
      }
      if (Clock::now() >= deadline) return no_monitor();
      std::this_thread::sleep_for(pause);
    }
  }

 private:
  std::optional<Error> start(Fd& lifeline) {
    auto program = find_monitor_program();
    if (!program) return program.error();
    log_start_ = log_size(log_path(socket_));
    auto spawned = spawn_monitor(*program, socket_);
    if (!spawned) return spawned.error();
    lifeline = std::move(*spawned);
    return std::nullopt;
  }

  Error no_monitor() const {
    const std::string words = last_words(log_path(socket_), log_start_);
    return {kMonitorUnreachable,
            words.empty()
                ? fmt::format("the monitor did not come up at {}; start `switchyardd` by hand to "
                              "see why",
                              socket_)
                : fmt::format("the monitor did not come up at {}; it said: {}", socket_, words)};
  }

  std::string socket_;
  std::uintmax_t log_start_ = 0;
  bool gave_up_ = false;
};

}  // namespace

Result<MonitorClient> wait_for_system_monitor(const std::string& socket, Milliseconds limit) {
  complain(fmt::format("the system monitor does not answer; waiting up to {} s for it",
                       std::chrono::duration_cast<std::chrono::seconds>(limit).count()));
  const auto deadline = Clock::now() + limit;
  for (;;) {
    auto client = connect_living(socket);
    if (client || client.error().code != kMonitorUnreachable) return client;
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(Milliseconds(50));
  }
  return Error{kTimedOut,
               fmt::format("the system monitor is down (root: 'systemctl status switchyardd'; no "
                           "other is started while {} exists)",
                           kSystemMark)};
}

Result<MonitorClient> connect_or_start() {
  for (const std::string& socket : candidate_sockets()) {
    auto client = connect_living(socket);
    if (client || client.error().code != kMonitorUnreachable) return client;
  }
  const std::string socket = own_socket();
  if (socket.empty()) return MonitorClient::connect_any();  // says what is wrong with the path
  if (system_monitor_serves(socket)) return wait_for_system_monitor(kSystemSocket, kSystemLimit);
  return Starter(socket).run();
}

}  // namespace switchyard::tools
