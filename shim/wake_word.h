// A word that a thread sleeps on until another wakes it, or its time is over.
//
//     sleeper:  seen = word.seen();  looks at what there is to do;  word.sleep(seen, limit)
//     other:    changes something;   word.wake()
//
// A change after seen() is not missed: then sleep() returns at once. Zeroes are a valid word.
//
// Threading: any thread. wake() is one system call.
#pragma once

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace switchyard::shim {

class WakeWord {
 public:
  std::uint32_t seen() const { return word_.load(std::memory_order_acquire); }

  void wake() {
    word_.fetch_add(1, std::memory_order_release);
    ::syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
  }

  void sleep(std::uint32_t seen, std::uint64_t limit_ns) {
    const timespec limit{static_cast<time_t>(limit_ns / 1'000'000'000),
                         static_cast<long>(limit_ns % 1'000'000'000)};
    ::syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace switchyard::shim
