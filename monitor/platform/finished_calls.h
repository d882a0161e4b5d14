// Calls that the loop is to make because another thread is done with something.
//
// Concept. A thread adds a call, and a descriptor becomes readable. The loop waits for it among its
// others, and makes the calls that have come.
//
// Threading: add() and drop() from any thread, run() on the loop's.
#pragma once

#include <sys/eventfd.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "switchyard/fd.h"

namespace switchyard::monitor {

class FinishedCalls {
 public:
  void add(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    ::eventfd_write(event_.get(), 1);
  }
  // Readable when run() has something to call.
  int readable() const { return event_.get(); }
  void run() {
    for (const auto& each : take()) each();
  }
  // Forgets those that were not made.
  void drop() { take(); }

 private:
  std::vector<std::function<void()>> take() {
    const std::lock_guard lock(mutex_);
    eventfd_t count = 0;
    ::eventfd_read(event_.get(), &count);
    return std::exchange(calls_, {});
  }

  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
  Fd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace switchyard::monitor
