// A child process with pipes for its three streams, for checks and tests that need one.
//
// Concept. Every wait has a limit. A child that is still there when its Child goes away is killed,
// so that nothing hangs and nothing is left behind.
//
// Threading: one Child belongs to one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::tools {

class Child {
 public:
  using Clock = std::chrono::steady_clock;

  struct End {
    bool exited = false;  // by itself, in time
    int status = -1;      // its exit status; 128+N for a signal
    std::string out;
    std::string err;
  };

  // `changes` to the environment; an empty value unsets. A child that can't be started ends with
  // status 127.
  static Child start(const std::vector<std::string>& command,
                     const std::vector<std::pair<std::string, std::string>>& changes = {});

  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }  // -1 once it was waited for

  bool write_line(const std::string& text);

  // The next line of its stdout without the newline; false when it closed or `limit` passed.
  bool read_line(std::string& line, std::chrono::milliseconds limit);

  // Closes its stdin and waits until it ended; kills it when `limit` passes.
  End finish(std::chrono::milliseconds limit);

 private:
  Child() = default;
  bool pump(Clock::time_point deadline);  // false: nothing more will come in time
  void close_all();

  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::string out_text_;
  std::string err_text_;
};

}  // namespace switchyard::tools
