// Tells when processes die: one pidfd for each that somebody watches, however many watch it.
//
// Threading: the loop's one thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>

#include "monitor/platform/asio.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

// Ends when its last copy goes.
using Watch = std::shared_ptr<void>;

// Is told the handle of the process (process_end.h); -1: it had none.
using Dead = std::function<void(int pidfd)>;

class ProcessWatches {
 public:
  explicit ProcessWatches(asio::io_context& io);
  ~ProcessWatches();
  ProcessWatches(const ProcessWatches&) = delete;
  ProcessWatches& operator=(const ProcessWatches&) = delete;

  // Calls `then` once the process is dead, soon when it already is, unless the watch has ended.
  // Null: it can't be watched, and `then` is never called. `pidfd`: its handle, where there is one;
  // by its number alone another process may be meant.
  [[nodiscard]] Watch when_dead(pid_t pid, Fd pidfd, Dead then);
  // How many processes are watched: descriptors.
  std::size_t processes() const;

 private:
  struct Process;
  // A number that is in use again is there twice for a moment.
  using Processes = std::multimap<pid_t, std::weak_ptr<Process>>;
  std::shared_ptr<Process> find(pid_t pid) const;
  Watch call_soon(Dead then);

  asio::io_context& io_;
  std::shared_ptr<Processes> processes_;  // a watch may outlive us
};

}  // namespace switchyard::monitor
