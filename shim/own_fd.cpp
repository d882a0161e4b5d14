#include "shim/own_fd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "shim/no_cancel.h"

namespace switchyard::shim {
namespace {

constexpr int kFirst = 1024;  // numbers below that are the program's in any case

bool status(int fd, struct stat& info) { return ::syscall(SYS_fstat, fd, &info) == 0; }

constexpr std::int64_t kNone = -1;        // another kind of file, or an older kernel
constexpr std::int64_t kUnreadable = -2;  // no /proc, or the program has no descriptor left

// Only eventfds have one. No stdio, no allocation: it may run after a fork.
std::int64_t eventfd_id(int fd) {
  const NoCancel none;
  char path[40];
  ::snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return kUnreadable;
  char text[512];
  const ssize_t got = ::read(file, text, sizeof(text) - 1);
  close_file(file);
  if (got <= 0) return kUnreadable;
  text[got] = '\0';
  constexpr char kKey[] = "eventfd-id:";
  const char* found = ::strstr(text, kKey);
  return found == nullptr ? kNone : ::strtoll(found + sizeof(kKey) - 1, nullptr, 10);
}

}  // namespace

void close_file(int fd) {
#ifdef __SANITIZE_THREAD__
  const NoCancel none;
  ::close(fd);  // the sanitizer does not see the bare system call
#else
  ::syscall(SYS_close, fd);
#endif
}

bool OpenFile::look(int number) {
  struct stat info {};
  if (!status(number, info)) return false;
  device = info.st_dev;
  inode = info.st_ino;
  mode = info.st_mode & S_IFMT;
  id = mode == 0 ? eventfd_id(number) : kNone;
  return true;
}

OpenFile::Match OpenFile::match(int number) const {
  struct stat info {};
  if (number < 0 || !status(number, info) || info.st_dev != device || info.st_ino != inode ||
      (info.st_mode & S_IFMT) != mode) {
    return Match::kOther;
  }
  if (mode != 0) return Match::kSure;
  const std::int64_t now = id < 0 ? kUnreadable : eventfd_id(number);
  if (now == kUnreadable) return Match::kLikely;
  return now == id ? Match::kSure : Match::kOther;
}

OpenFile::Match OwnFd::match(int number) const {
  const OpenFile file{device_.load(std::memory_order_relaxed),
                      inode_.load(std::memory_order_relaxed), mode_.load(std::memory_order_relaxed),
                      id_.load(std::memory_order_relaxed)};
  return file.match(number);
}

int OwnFd::get() const {
  const int number = number_.load(std::memory_order_acquire);
  return match(number) != OpenFile::Match::kOther ? number : -1;
}

void OwnFd::adopt(int fd) {
  const int before = number_.load(std::memory_order_relaxed);
  if (match(before) == OpenFile::Match::kSure &&
      ::syscall(SYS_dup3, fd, before, O_CLOEXEC) == before) {
    close_file(fd);
    fd = before;
  } else {
    fd = move_up(fd);
  }
  OpenFile file;
  // No number while the identity changes: whoever looks meanwhile finds no descriptor.
  number_.store(-1, std::memory_order_release);
  if (!file.look(fd)) return;
  device_.store(file.device, std::memory_order_relaxed);
  inode_.store(file.inode, std::memory_order_relaxed);
  mode_.store(file.mode, std::memory_order_relaxed);
  id_.store(file.id, std::memory_order_relaxed);
  number_.store(fd, std::memory_order_release);
}

void OwnFd::close() {
  const int number = number_.exchange(-1, std::memory_order_acq_rel);
  if (match(number) == OpenFile::Match::kSure) close_file(number);
}

int lowest_own_number() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFirst;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, kFirst));
}

int move_up(int fd) {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, lowest_own_number());
  if (moved < 0) return fd;
  close_file(fd);
  return moved;
}

RaisedLimit::RaisedLimit(int end) {
  const auto most = static_cast<rlim_t>(end);
  rlimit now{};
  if (::getrlimit(RLIMIT_NOFILE, &now) != 0) return;
  if (now.rlim_cur >= most || now.rlim_max <= now.rlim_cur) return;
  raised_ = {std::min(now.rlim_max, most), now.rlim_max};
  // The program may have set another limit since: what this call replaces is what comes back.
  if (::prlimit(0, RLIMIT_NOFILE, &raised_, &before_) != 0) return;
  first_ = std::max(static_cast<int>(std::min(before_.rlim_cur, most)), 1);
}

RaisedLimit::~RaisedLimit() {
  rlimit last{};
  if (first_ == 0 || ::prlimit(0, RLIMIT_NOFILE, &before_, &last) != 0) return;
  const bool ours = last.rlim_cur == raised_.rlim_cur && last.rlim_max == raised_.rlim_max;
  if (!ours) ::setrlimit(RLIMIT_NOFILE, &last);  // the program has set its own meanwhile
}

}  // namespace switchyard::shim
