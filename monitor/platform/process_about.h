// A process that is a stranger to the monitor, by /proc: its user, its container and its command
// line.
//
// Concept. A command line lies in the memory of the process, and reading it may take as long as the
// process likes. So it is read on a thread of its own.
//
// Threading: about_process() and the pure functions on any thread; CommandLines on one, behind
// which it has another.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "monitor/platform/place.h"

namespace switchyard::monitor {

struct ProcessAbout {
  std::uint64_t started = 0;  // in the kernel's ticks since boot: the same process has the same
  std::optional<uid_t> uid;   // its effective user; none: it has ended, or is beyond our view
  std::string name;           // printable
  std::string container;      // as Owner has it
  Place place;
};
ProcessAbout about_process(pid_t pid);
// 0: not known.
std::uint64_t process_started(pid_t pid);

// By the bytes of /proc/PID/cmdline: printable, at most 256 bytes.
std::string command_text(std::string bytes);

class CommandLines {
 public:
  // So many may wait to be read. Beyond that a command line stays unknown.
  static constexpr std::size_t kMost = 256;

  CommandLines();
  ~CommandLines();  // does not wait
  CommandLines(const CommandLines&) = delete;
  CommandLines& operator=(const CommandLines&) = delete;

  // `started`: of the process. Of another process that has its number by then nothing is told.
  void ask(pid_t pid, std::uint64_t started);
  // One that was read since the last call.
  struct Read {
    pid_t pid = 0;
    std::uint64_t started = 0;
    std::string text;
  };
  std::optional<Read> take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace switchyard::monitor
