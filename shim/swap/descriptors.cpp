#include "shim/swap/descriptors.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "shim/lock.h"

// What pthread_atfork calls: that one is in no shared object of every glibc.
extern "C" int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso);

namespace switchyard::shim::swap::descriptors {
namespace {

// Numbers below that are the application's in any case; above the last one none is kept.
constexpr int kFirst = 1024;
constexpr int kEnd = 8192;
constexpr int kBits = 64;

// Which are kept: a forked child finds no table in a state to be read.
std::atomic<std::uint64_t> g_kept[kEnd / kBits] = {};

// Two, in this order: the first is held around frames and the ranges' lock, and the second, of what
// is kept, inside that lock, by whoever frees.
pthread_mutex_t g_forking = PTHREAD_MUTEX_INITIALIZER;
pthread_mutex_t g_keeping = PTHREAD_MUTEX_INITIALIZER;
pthread_once_t g_registered = PTHREAD_ONCE_INIT;

std::uint64_t bit(int number) { return std::uint64_t{1} << (number % kBits); }

int lowest() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFirst;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, kFirst));
}

void before_fork() {
  ::pthread_mutex_lock(&g_forking);
  ::pthread_mutex_lock(&g_keeping);
}
void in_parent() {
  ::pthread_mutex_unlock(&g_keeping);
  ::pthread_mutex_unlock(&g_forking);
}

// The numbers are the parent's still: nothing has run in the child before.
void in_child() {
  g_forking = PTHREAD_MUTEX_INITIALIZER;
  g_keeping = PTHREAD_MUTEX_INITIALIZER;
  for (int number = 0; number < kEnd; ++number) {
    std::atomic<std::uint64_t>& kept = g_kept[number / kBits];
    if ((kept.load(std::memory_order_relaxed) & bit(number)) == 0) continue;
    ::close(number);
    kept.fetch_and(~bit(number), std::memory_order_relaxed);
  }
}

void register_once() { ::__register_atfork(before_fork, in_parent, in_child, nullptr); }

}  // namespace

NoFork::NoFork() {
  ::pthread_once(&g_registered, register_once);
  ::pthread_mutex_lock(&g_forking);
}

NoFork::~NoFork() { ::pthread_mutex_unlock(&g_forking); }

int keep(int fd) {
  ::pthread_once(&g_registered, register_once);
  const Locked locked(g_keeping);
  const int kept = ::fcntl(fd, F_DUPFD_CLOEXEC, std::max(lowest(), 1));
  if (kept < 0) return 0;
  if (kept >= kEnd) {
    ::close(kept);
    return 0;
  }
  g_kept[kept / kBits].fetch_or(bit(kept), std::memory_order_relaxed);
  return kept;
}

void close(int kept) {
  const Locked locked(g_keeping);
  g_kept[kept / kBits].fetch_and(~bit(kept), std::memory_order_relaxed);
  ::close(kept);
}

}  // namespace switchyard::shim::swap::descriptors
