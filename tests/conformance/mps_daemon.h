// An MPS control daemon of a test's own, by the program of the driver at hand.
//
// Concept. The daemon has a pipe folder and a log folder of its own and sees one GPU, by its UUID.
// No other daemon of the machine is touched. A watcher waits until the test's process closes its
// end of a pipe. Then it ends the daemon, its servers and the folders. It is a process of its own,
// so nothing stays, also when the test fails or is killed.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace conformance {

// Waits for it, as long as a loaded machine may need. False: it did not come true.
template <class Condition>
bool eventually(Condition condition, int seconds = 40) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Of the control program: beside the driver at hand, else on PATH. Empty: there is none.
std::string mps_control_program();

class MpsDaemon {
 public:
  struct Answer {
    int status = -1;  // the program's exit status; -1: it did not end in time
    std::string text;
  };

  explicit MpsDaemon(const std::string& gpu_uuid);
  ~MpsDaemon() { end(); }
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  Answer start() const { return control("", {"-d"}); }
  // One command, on the program's standard input.
  Answer ask(const std::string& command) const { return control(command + "\n", {}); }
  // The pids of `get_server_list`, and of `get_client_list` of a server.
  std::vector<pid_t> servers() const;
  std::vector<pid_t> clients(pid_t server) const;
  // The one server's pid; 0: there is not exactly one.
  pid_t server() const;
  pid_t pid() const;  // of the file that the daemon wrote; 0: there is none
  // The daemon and its servers, as far as they live.
  std::vector<pid_t> programs() const;
  // NAME=VALUE of a client.
  std::vector<std::string> environment() const;
  void end();
  // What the watcher does: it waits for the end of its standard input, and then for theirs.
  static int watch(const std::string& folder);

 private:
  MpsDaemon() = default;  // the watcher's
  Answer control(const std::string& input, const std::vector<std::string>& arguments) const;

  std::string folder_, uuid_;
  pid_t watcher_ = 0;
  int watched_ = -1;  // the watcher acts once it is closed
};

}  // namespace conformance
