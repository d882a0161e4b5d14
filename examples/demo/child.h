// A child process with pipes to its standard input and output.
//
// Threading: a Child is used by one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace demo {

class Child {
 public:
  // Starts `command`, its program first. `quiet`: its standard error is dropped.
  explicit Child(const std::vector<std::string>& command, bool quiet = false);
  ~Child();  // ends the process if it still runs
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The next line of its output. False: it will write no more.
  bool read_line(std::string& line);

  // The lines that it writes within the next `seconds`; they are dropped.
  int lines_within(double seconds);

  // The name of the GPU, once the worker is ready; empty when it failed.
  std::string ready();

  // Tells a worker when to count: two instants of the monotonic clock, in nanoseconds.
  void go(long begin, long end);

  // All that it still prints, a number in each line.
  std::vector<double> numbers();

  // Waits for its end. Whether it ended with 0.
  bool succeeded();

 private:
  bool take_line(std::string& line);  // out of `read_`; false: no whole line is there
  bool read_more();                   // waits for output; false: there is none any more
  int wait();                         // the exit status as waitpid() tells it

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  std::string read_;
};

// Monotonic time in nanoseconds.
long now();

}  // namespace demo
