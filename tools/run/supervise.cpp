#include "tools/run/supervise.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace switchyard::tools {
namespace {

bool is_pending(int signal) {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, signal) == 1;
}

class Supervisor {
 public:
  Result<int> run(const std::function<int()>& act, const std::function<bool(int)>& again) {
    // Before there is a child, so that none of its signals is lost.
    ::sigfillset(&all_);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all_, fault);
    ::sigprocmask(SIG_SETMASK, &all_, &before_);
    // Where our caller ignores its children's ends, the kernel would keep ours from us.
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &usual, &callers_);
    do {
      if (auto failed = start(act)) return *failed;
      while (!end_) serve();
    } while (again && again(*end_));
    return *end_;
  }

 private:
  std::optional<Error> start(const std::function<int()>& act) {
    end_.reset();
    stopped_ = false;
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ == 0) be_child(act, parent);
    if (child_ > 0) return std::nullopt;
    const int error = errno;
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    return Error{kRunRefused, fmt::format("cannot start the command as a child: fork: {}; run it "
                                          "without --report and --restart",
                                          std::strerror(error))};
  }

  // In the child.
  [[noreturn]] void be_child(const std::function<int()>& act, pid_t parent) const {
    ::sigaction(SIGCHLD, &callers_, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(128 + SIGKILL);  // it was killed before the line above
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    ::_exit(act());
  }

  void serve() {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&all_, &info);
    if (signal < 0) return;
    if (signal == SIGCHLD) {
      look();
    } else if (signal == SIGCONT) {
      // A caller that continues our group has continued the command, too. Once more would undo a
      // stop that came since.
      look();
      terminal_stops_ = false;
      if (stopped_ && !end_) ::kill(child_, SIGCONT);
    } else if (signal == SIGTSTP && info.si_code > 0 && stopped_) {
      stop();  // a second Ctrl-Z gives the shell back in any case
    } else if (info.si_code <= 0 || ::getpgid(child_) != ::getpgrp()) {
      ::kill(child_, signal);
    } else if (signal == SIGTSTP) {
      terminal_stops_ = true;
    }
  }

  // A caller that continued us meanwhile has not seen us stop, and would not do it again.
  static void stop() {
    if (!is_pending(SIGCONT)) ::kill(::getpid(), SIGSTOP);
  }

  void look() {
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG | WUNTRACED | WCONTINUED) == child_) {
      stopped_ = WIFSTOPPED(status);
      if (WIFCONTINUED(status)) continue;
      if (!stopped_) {
        end_ = status;
        return;
      }
      // A terminal has stopped its job, and its shell is to see that. Some programs stop themselves
      // by SIGSTOP then. Otherwise that is sent by number, and its sender continues the same process
      // again: nobody would continue us.
      if (WSTOPSIG(status) != SIGSTOP || terminal_stops_ || is_pending(SIGTSTP)) stop();
    }
  }

  sigset_t all_{}, before_{};
  struct sigaction callers_ {};
  pid_t child_ = 0;
  bool stopped_ = false;
  bool terminal_stops_ = false;  // since we went on, a Ctrl-Z has come
  std::optional<int> end_;
};

}  // namespace

Result<int> supervise(const std::function<int()>& act, const std::function<bool(int)>& again) {
  return Supervisor().run(act, again);
}

bool asked_to_end() {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    struct sigaction now {};
    ::sigaction(signal, nullptr, &now);
    // A blocked signal waits, even where it is ignored.
    if (now.sa_handler != SIG_IGN && is_pending(signal)) return true;
  }
  return false;
}

void end_like(int status) {
  if (!WIFSIGNALED(status)) std::_Exit(WEXITSTATUS(status));
  // The command has left its core, if any.
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int signal = WTERMSIG(status);
  ::signal(signal, SIG_DFL);
  sigset_t mask;
  ::sigemptyset(&mask);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace switchyard::tools
