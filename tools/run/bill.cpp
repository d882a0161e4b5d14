#include "tools/run/bill.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "switchyard/fd.h"
#include "switchyard/pidfd.h"
#include "tools/base/command.h"
#include "tools/base/monitor_client.h"
#include "tools/report/bill.h"
#include "tools/run/close_from.h"
#include "tools/run/restart.h"
#include "tools/run/supervise.h"

namespace switchyard::tools {
namespace {

void tell_bill(const std::string& socket, const std::string& job) {
  auto monitor = MonitorClient::connect(socket);
  if (!monitor) return complain(fmt::format("no bill: {}", monitor.error().text));
  const auto rows = await_bills(*monitor, {{"op", "report"}, {"by", "job"}, {"job", job}});
  if (!rows) return complain(fmt::format("no bill: {}", rows.error().text));
  if (rows->empty()) return complain("no bill: the history does not know the job");
  complain(ended_bill_text(rows->front()));
}

struct Told {
  std::string job, socket;
};

// What tell_job() wrote, once nobody can write any more. Nullopt: nothing, for there is no job.
std::optional<Told> read_told(int told_to) {
  char text[512];
  const ssize_t bytes = ::read(told_to, text, sizeof(text));
  const std::string told(text, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  const std::size_t blank = told.find(' ');
  if (blank == std::string::npos) return std::nullopt;
  return Told{told.substr(0, blank), told.substr(blank + 1)};
}

void tell_bill_of(int told_to) {
  if (const auto told = read_told(told_to)) tell_bill(told->socket, told->job);
}

// Whether what ended so shall run once more.
bool follows(const std::optional<Told>& told, int status, Stays stays, unsigned& restarts) {
  if (told && stays.bill) tell_bill(told->socket, told->job);
  if (!told || !stays.restart || status == 0 || restarts == kMostRestarts) return false;
  const auto why = why_island_failed(told->socket, told->job);
  if (!why || asked_to_end()) return false;
  complain(fmt::format("{}: run once more ({} of {})", *why, ++restarts, kMostRestarts));
  return true;
}

int fail_without(const char* what) {
  return fail({kRunRefused, fmt::format("--report needs {}, and there is none ({}): leave it out",
                                        what, std::strerror(errno))});
}

// Nobody waits for this process, and it keeps nobody waiting who reads the command's output.
[[noreturn]] void await_and_tell(int command, int told_to) {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  if (const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC)); null) {
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
  }
  close_from(STDERR_FILENO + 1, command, told_to);
  [[maybe_unused]] const int root = ::chdir("/");  // its folder may be unmounted
  pollfd entry{command, POLLIN, 0};
  while (::poll(&entry, 1, -1) < 0 && errno == EINTR) continue;
  tell_bill_of(told_to);
  std::_Exit(0);
}

}  // namespace

int run_and_stay(const std::function<int(int tells)>& run, Stays stays) {
  int pipe[2];
  // Without waiting: a command that never was a job tells nothing.
  if (::pipe2(pipe, O_CLOEXEC | O_NONBLOCK) != 0) return fail_without("a pipe");
  unsigned restarts = 0;
  const auto status =
      supervise([&] { return run(pipe[1]); },
                [&](int ended) { return follows(read_told(pipe[0]), ended, stays, restarts); });
  if (!status) return fail(status.error());
  end_like(*status);
}

int run_and_tell_bill_after(const std::function<int(int tells)>& run) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return fail_without("a pipe");
  const Fd command = open_pidfd(::getpid());
  if (!command) return fail_without("Linux 5.3");
  const pid_t child = ::fork();
  if (child < 0) return fail_without("a process");
  if (child == 0) {
    ::setsid();
    ::close(pipe[1]);
    // The command must not find a child that it never started.
    if (::fork() != 0) std::_Exit(0);
    await_and_tell(command.get(), pipe[0]);
  }
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  return run(pipe[1]);
}

void tell_job(int tells, const std::string& job, const std::string& socket) {
  ::dprintf(tells, "%s %s", job.c_str(), socket.c_str());
}

}  // namespace switchyard::tools
