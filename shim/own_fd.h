// A descriptor of ours among the descriptors of the program.
//
// Concept. All descriptor numbers belong to the program: it may close any of them and open a file
// of its own there. So each use compares the open file with what was adopted, and a file that
// differs is left alone. Device and inode identify a socket, a pipe or a memfd. All eventfds,
// epolls and their like share one inode; the kernel's `eventfd-id` tells eventfds apart. Where
// there is none (gVisor, kernels before 5.2), such a file is used as long as nothing differs, but
// it is never closed or replaced.
//
// A number above the program's usual ones makes it rare that the program closes or reuses it.
//
// Threading: number() and get() from any thread, also in a signal handler or after fork. adopt(),
// close() and forget() are serialised by the owner.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <cstdint>

#include "shim/no_copy.h"

namespace switchyard::shim {

// What tells the open file under a number from others. It can be compared in a forked child, too.
struct OpenFile {
  // kLikely: nothing differs, but other files look the same.
  enum class Match { kOther, kLikely, kSure };

  // Asks what is open there now. False: nothing.
  bool look(int number);
  Match match(int number) const;

  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint32_t mode = 0;  // type of the file; 0: an anonymous inode
  std::int64_t id = 0;     // eventfd-id; negative: unknown
};

// Closes a file of ours. Unlike close() it is no point where a thread is cancelled. There is no
// unwinding here, so what that thread holds of ours would be held for ever.
void close_file(int fd);

class OwnFd {
 public:
  // The number while our file is open there; else -1.
  int get() const;

  // Takes `fd` over. Where the former file is provably still ours, the new one replaces it under
  // the same number. A thread that is about to write there without a lock then writes into the new
  // file.
  void adopt(int fd);

  // Closes the file if it is provably ours, and forgets it.
  void close();

  // True while there is a number, whether or not the file is still ours.
  bool is_set() const { return number_.load(std::memory_order_acquire) >= 0; }

 private:
  OpenFile::Match match(int number) const;

  std::atomic<int> number_{-1};
  std::atomic<std::uint64_t> device_{0};  // as OpenFile has them
  std::atomic<std::uint64_t> inode_{0};
  std::atomic<std::uint32_t> mode_{0};
  std::atomic<std::int64_t> id_{-1};
};

// From here on numbers are above those that programs use: in the upper half of what may be opened.
int lowest_own_number();

// `fd` under such a number; `fd` itself where there is none.
int move_up(int fd);

// While it lives, numbers below `end` may be opened that the program's soft limit forbids. A file
// that is opened there stays open. Other threads may see the raised limit, and a vfork keeps it: so
// it lives for a few system calls only. A limit that the program sets meanwhile stays.
class RaisedLimit : NoCopy {
 public:
  explicit RaisedLimit(int end);
  ~RaisedLimit();

  // The lowest of these numbers; 0: there are none.
  int first() const { return first_; }

 private:
  rlimit before_{};
  rlimit raised_{};
  int first_ = 0;
};

}  // namespace switchyard::shim
