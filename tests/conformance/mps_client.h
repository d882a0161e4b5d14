// A process of a test that obeys one line after another: a client of an MPS daemon, or none.
//
//   init            cuInit
//   sees            the number of GPUs, the UUID of the first, and whether it is under MPS
//   begin           a context, the kernels, and memory
//   work            a kernel whose result is checked
//   take MIB        allocates so much, and keeps it
//   fault           a kernel that writes where nothing is
//   meet SIDE N FIRST PATIENCE   a kernel that waits for that of the other side, N times
//
// Each line is answered by the name of the driver's error, and by what is asked. A process ends at
// the end of its input.
//
// Threading: one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace conformance {

class Client {
 public:
  // `more`: NAME=VALUE. `shared`: of the memory in which `meet` meets; -1: it will not.
  explicit Client(const std::vector<std::string>& more = {}, int shared = -1);
  ~Client() { end(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& line) const;
  std::string receive();  // "no answer": it has ended, or takes too long
  std::string ask(const std::string& line) {
    send(line);
    return receive();
  }
  // init and begin: the first that is no success.
  std::string begin();
  void kill();
  // Its exit status.
  int end();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int to_ = -1, from_ = -1;
};

// Memory that processes share, for `meet`.
int meeting_place();

int mps_child();  // mps_client.cpp

}  // namespace conformance
