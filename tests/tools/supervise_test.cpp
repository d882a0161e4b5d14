// A command that runs as a child behaves to our caller as if this process had become it.
#include "tools/run/supervise.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tools/base/command.h"
#include "tools/run/program.h"

namespace switchyard::tools {
namespace {

using Words = std::vector<std::string>;

constexpr std::chrono::seconds kLimit{20};

// Reads from a pipe or a terminal until `text` has come. False when the limit passes.
bool comes(int fd, const std::string& text) {
  std::string seen;
  const auto until = std::chrono::steady_clock::now() + kLimit;
  while (seen.find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() > until) return false;
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    char piece[256];
    const ssize_t bytes = ::read(fd, piece, sizeof(piece));
    if (bytes <= 0) return false;
    seen.append(piece, static_cast<std::size_t>(bytes));
  }
  return true;
}

// The status of `pid` within the limit; -1: none came, and it was killed.
int status_of(pid_t pid, int options = 0) {
  const auto until = std::chrono::steady_clock::now() + kLimit;
  int status = 0;
  while (std::chrono::steady_clock::now() < until) {
    if (::waitpid(pid, &status, options | WNOHANG) == pid) return status;
    ::usleep(2000);
  }
  ::kill(pid, SIGKILL);
  ::waitpid(pid, &status, 0);
  return -1;
}

bool becomes_stopped(pid_t pid) {
  const auto until = std::chrono::steady_clock::now() + kLimit;
  while (std::chrono::steady_clock::now() < until) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    stat >> number >> name >> state;
    if (state == "T") return true;
    ::usleep(2000);
  }
  return false;
}

[[noreturn]] void supervise_and_end(const Words& command) {
  const auto status = supervise([&] { return fail(execute(command)); });
  if (!status) ::_exit(99);
  end_like(*status);
}

// The caller of the tests may ignore some: Python SIGPIPE, nohup SIGHUP, make 32 and 33, which
// signal() leaves to the C library. A shell cannot trap those.
void forget_the_signals_of_the_caller() {
  struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    unsigned long mask;
  } as_usual{};
  for (int number = 1; number <= SIGRTMAX; ++number) {
    ::syscall(SYS_rt_sigaction, number, &as_usual, nullptr, sizeof(as_usual.mask));
  }
}

// A process that supervises a shell, whose output is a pipe.
class Supervised {
 public:
  explicit Supervised(const std::string& script) : Supervised(Words{"/bin/sh", "-c", script}) {}
  explicit Supervised(const Words& command, void (*before)() = nullptr) {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(pipe_[1]);
      return;
    }
    ::dup2(pipe_[1], STDOUT_FILENO);
    ::dup2(pipe_[1], STDERR_FILENO);
    forget_the_signals_of_the_caller();
    if (before != nullptr) before();
    supervise_and_end(command);
  }
  ~Supervised() { ::close(pipe_[0]); }

  bool says(const std::string& text) const { return comes(pipe_[0], text); }
  // The first word that it says, as a number.
  pid_t number() const {
    std::string text;
    char letter = 0;
    pollfd ready{pipe_[0], POLLIN, 0};
    while (::poll(&ready, 1, 20'000) > 0 && ::read(pipe_[0], &letter, 1) == 1 && letter != '\n') {
      text += letter;
    }
    return static_cast<pid_t>(std::strtol(text.c_str(), nullptr, 10));
  }
  // Whether all that wrote to its output has ended.
  bool is_over() const {
    pollfd ready{pipe_[0], POLLIN, 0};
    char letter = 0;
    while (::poll(&ready, 1, 20'000) > 0) {
      if (::read(pipe_[0], &letter, 1) <= 0) return true;
    }
    return false;
  }
  int end() const { return status_of(pid_); }
  pid_t pid() const { return pid_; }

 private:
  int pipe_[2] = {-1, -1};
  pid_t pid_ = -1;
};

TEST(Supervise, TheExitCodeIsTheCommands) {
  const int status = Supervised("exit 7").end();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST(Supervise, ACommandThatASignalEndsEndsUsByTheSame) {
  for (const int signal : {SIGKILL, SIGTERM, SIGSEGV}) {
    const int status = Supervised("ulimit -c 0; kill -" + std::to_string(signal) + " $$").end();
    ASSERT_TRUE(WIFSIGNALED(status)) << signal;
    EXPECT_EQ(WTERMSIG(status), signal);
  }
}

TEST(Supervise, ACommandThatCannotBeExecutedSaysSo) {
  const Supervised none(Words{"/dev/null"});
  EXPECT_TRUE(none.says("cannot run '/dev/null'"));
  EXPECT_EQ(WEXITSTATUS(none.end()), 126);
}

TEST(Supervise, ASignalOfAProcessIsTheCommands) {
  for (const char* name : {"TERM", "HUP", "INT", "USR1", "WINCH"}) {
    const Supervised shell("trap 'echo got; exit 5' " + std::string(name) +
                           "; echo ready; while :; do sleep 0.01; done");
    ASSERT_TRUE(shell.says("ready"));
    const Words names = {"TERM", "HUP", "INT", "USR1", "WINCH"};
    const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGUSR1, SIGWINCH};
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == name) ::kill(shell.pid(), numbers[i]);
    }
    EXPECT_TRUE(shell.says("got")) << name;
    EXPECT_EQ(WEXITSTATUS(shell.end()), 5) << name;
  }
}

TEST(Supervise, WhoKillsUsKillsTheCommand) {
  const Supervised shell("echo ready; exec sleep 100");
  ASSERT_TRUE(shell.says("ready"));
  ::kill(shell.pid(), SIGKILL);
  EXPECT_TRUE(shell.is_over());
  EXPECT_EQ(WTERMSIG(shell.end()), SIGKILL);
}

TEST(Supervise, ACallerThatIgnoresEndsOfChildrenHearsOfThisOne) {
  const Supervised shell(Words{"/bin/sh", "-c", "exit 3"}, [] { ::signal(SIGCHLD, SIG_IGN); });
  EXPECT_EQ(WEXITSTATUS(shell.end()), 3);
}

TEST(Supervise, TheCommandHasTheSignalsOfItsCaller) {
  // The masks of blocked and ignored signals.
  const Words look = {"/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"};
  const auto before = [] {
    ::signal(SIGCHLD, SIG_IGN);
    sigset_t blocked;
    ::sigemptyset(&blocked);
    ::sigaddset(&blocked, SIGUSR2);
    ::sigprocmask(SIG_SETMASK, &blocked, nullptr);
  };
  const Supervised grep(look, before);
  EXPECT_TRUE(grep.says("SigBlk:\t0000000000000800\nSigIgn:\t0000000000010000\n"));
  EXPECT_EQ(WEXITSTATUS(grep.end()), 0);
}

TEST(Supervise, OfACommandThatIsStoppedByItsNumberThereIsNoStopOfOurs) {
  const Supervised shell("trap 'echo on' CONT; echo $$; while :; do sleep 0.01; done");
  const pid_t command = shell.number();
  ASSERT_GT(command, 0);
  for (int i = 0; i <= 20; ++i) {
    ::kill(command, SIGSTOP);
    ASSERT_TRUE(becomes_stopped(command)) << i;
    ::kill(i % 2 == 0 ? command : shell.pid(), SIGCONT);
    ASSERT_TRUE(shell.says("on")) << i;
  }
  ::kill(shell.pid(), SIGTERM);
  const int status = status_of(shell.pid(), WUNTRACED);
  EXPECT_FALSE(WIFSTOPPED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(Supervise, WhatASignalAskedBetweenTwoRunsIsNotRunOnceMore) {
  const auto runs_with = [](void (*before)()) {
    const pid_t us = ::fork();
    if (us == 0) {
      forget_the_signals_of_the_caller();
      before();
      int runs = 0;
      const auto status = supervise([] { return 0; },
                                    [&](int) {
                                      ::kill(::getpid(), SIGHUP);
                                      return ++runs == 1 && !asked_to_end();
                                    });
      ::_exit(status ? runs : 99);
    }
    return WEXITSTATUS(status_of(us));
  };
  EXPECT_EQ(runs_with([] {}), 1);
  EXPECT_EQ(runs_with([] { ::signal(SIGHUP, SIG_IGN); }), 2) << "nohup";
}

TEST(Supervise, ACommandThatIsStartedOnceMoreIsAwaitedAndItsEndIsTheOneThatCounts) {
  const pid_t us = ::fork();
  if (us == 0) {
    forget_the_signals_of_the_caller();
    int runs = 0;
    const auto status =
        supervise([&] { return runs == 0 ? 7 : 3; }, [&](int) { return ++runs == 1; });
    ::_exit(status ? WEXITSTATUS(*status) : 99);
  }
  EXPECT_EQ(WEXITSTATUS(status_of(us)), 3);
}

// A shell on a terminal of its own: a process group in its foreground, which it waits for. Says
// "stopped" and goes on with it once a line was typed, and says how it ended.
[[noreturn]] void shell_of(const std::string& terminal, const Words& command) {
  ::setsid();
  forget_the_signals_of_the_caller();
  const int fd = ::open(terminal.c_str(), O_RDWR);
  ::ioctl(fd, TIOCSCTTY, 0);
  for (const int stream : {0, 1, 2}) ::dup2(fd, stream);
  ::signal(SIGTTOU, SIG_IGN);
  const pid_t job = ::fork();
  if (job == 0) {
    ::setpgid(0, 0);
    ::tcsetpgrp(0, ::getpid());
    ::signal(SIGTTOU, SIG_DFL);
    supervise_and_end(command);
  }
  for (;;) {
    const int status = status_of(job, WUNTRACED);
    if (status != -1 && WIFSTOPPED(status)) {
      ::tcsetpgrp(0, ::getpid());
      ::dprintf(1, "[stopped]\n");
      char letter = 0;
      if (::read(0, &letter, 1) != 1) ::_exit(1);
      ::tcsetpgrp(0, job);
      ::kill(-job, SIGCONT);
      continue;
    }
    ::dprintf(1, "[end %d]\n", status);
    ::_exit(0);
  }
}

// Such a shell with a script, which must not say in a trap that it goes on: bash takes no signal
// whose trap still runs. Both are -1 where there is no terminal.
struct OnATerminal {
  explicit OnATerminal(const std::string& script)
      : terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return;
    const std::string name = ::ptsname(terminal);
    shell = ::fork();
    // dash waits for vfork, whose child would be stopped, too: nothing could stop it then.
    if (shell == 0) shell_of(name, {"/bin/bash", "-c", script});
  }
  ~OnATerminal() { ::close(terminal); }

  int terminal;
  pid_t shell = -1;
};

TEST(Supervise, OnATerminalCtrlZAndCtrlCReachTheCommandOnceAndTheShellSeesThem) {
  const OnATerminal all(
      "trap 'n=x$n' INT; trap 'c=1' CONT; trap 'echo had=$n; exit 4' USR1; echo ready; "
      "while :; do sleep 0.01; [ -z \"$c\" ] || { c=; echo on; }; "
      "[ -z \"$n\" ] || { sleep 0.3; kill -USR1 $$; }; done");
  const int terminal = all.terminal;
  ASSERT_TRUE(comes(terminal, "ready"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(::write(terminal, "\x1a", 1), 1);
    ASSERT_TRUE(comes(terminal, "[stopped]")) << i;
    EXPECT_EQ(::write(terminal, "\n", 1), 1);
    EXPECT_TRUE(comes(terminal, "on\r\n"));
  }
  EXPECT_EQ(::write(terminal, "\x03", 1), 1);
  EXPECT_TRUE(comes(terminal, "had=x\r\n[end 1024]")) << "once, and exit code 4";
  EXPECT_NE(status_of(all.shell), -1);
}

// As programs do that restore the screen first. A child of the script's would be stopped, too, and
// hold up the trap.
TEST(Supervise, ACommandThatStopsItselfAtCtrlZGivesTheShellBack) {
  const OnATerminal all(
      "trap 'kill -STOP $$' TSTP; trap 'c=1' CONT; trap 'exit 4' INT; echo ready; "
      "while :; do [ -z \"$c\" ] || { c=; echo on; }; done");
  ASSERT_TRUE(comes(all.terminal, "ready"));
  EXPECT_EQ(::write(all.terminal, "\x1a", 1), 1);
  ASSERT_TRUE(comes(all.terminal, "[stopped]"));
  EXPECT_EQ(::write(all.terminal, "\n", 1), 1);
  EXPECT_TRUE(comes(all.terminal, "on\r\n"));
  EXPECT_EQ(::write(all.terminal, "\x03", 1), 1);
  EXPECT_TRUE(comes(all.terminal, "[end 1024]"));
  EXPECT_NE(status_of(all.shell), -1);
}

TEST(Supervise, CtrlZGivesTheShellBackAlsoWhenTheCommandStandsStillAlready) {
  const std::string file = ::testing::TempDir() + "stands-" + std::to_string(::getpid());
  const OnATerminal all("echo $$ > " + file + "; echo ready; kill -STOP $$; echo on; exit 4");
  ASSERT_TRUE(comes(all.terminal, "ready"));
  pid_t command = 0;
  std::ifstream(file) >> command;
  ::unlink(file.c_str());
  ASSERT_TRUE(becomes_stopped(command));
  EXPECT_EQ(::write(all.terminal, "\x1a", 1), 1);
  ASSERT_TRUE(comes(all.terminal, "[stopped]"));
  EXPECT_EQ(::write(all.terminal, "\n", 1), 1);
  EXPECT_TRUE(comes(all.terminal, "[end 1024]"));
  EXPECT_NE(status_of(all.shell), -1);
}

}  // namespace
}  // namespace switchyard::tools
