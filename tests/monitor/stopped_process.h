// A process that a signal has stopped, for whoever reads /proc.
//
// Threading: one thread.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace switchyard::monitor::test {

class StoppedProcess {
 public:
  StoppedProcess() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }
  StoppedProcess(const StoppedProcess&) = delete;
  StoppedProcess& operator=(const StoppedProcess&) = delete;
  ~StoppedProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void goes_on() const {
    ::kill(pid_, SIGCONT);
    ::waitpid(pid_, nullptr, WCONTINUED);
  }

 private:
  pid_t pid_;
};

}  // namespace switchyard::monitor::test
