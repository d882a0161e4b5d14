#include "shim/swap/memory/memory_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "shim/lock.h"
#include "shim/own_fd.h"

// What pthread_atfork calls: that one is in no shared object of every glibc.
extern "C" int __register_atfork(void (*prepare)(), void (*parent)(), void (*child)(), void* dso);

namespace switchyard::shim::swap::memory_fd {
namespace {

constexpr int kEnd = 8192;  // from here on none is kept
constexpr int kBits = 64;
// Of the numbers that the application may open, so many stay free where many are kept.
constexpr rlim_t kSpare = 256;

struct State {
  // Which are kept: a forked child finds no table in a state to be read.
  std::atomic<std::uint64_t> kept[kEnd / kBits] = {};
  OpenFile files[kEnd];  // what was kept there
  // Two, in this order. `forking` is held around frames and the ranges' lock. `keeping` guards the
  // kept descriptors, inside that lock, in a thread that frees.
  pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;
  pthread_once_t registered = PTHREAD_ONCE_INIT;
};
constinit State g_state;

std::uint64_t bit(int number) { return std::uint64_t{1} << (number % kBits); }

bool is_kept(int number) {
  return (g_state.kept[number / kBits].load(std::memory_order_relaxed) & bit(number)) != 0;
}

int lowest() { return std::max(lowest_own_number(), 1); }

void before_fork() {
  ::pthread_mutex_lock(&g_state.forking);
  ::pthread_mutex_lock(&g_state.keeping);
}
void in_parent() {
  ::pthread_mutex_unlock(&g_state.keeping);
  ::pthread_mutex_unlock(&g_state.forking);
}

// The program may have closed the number, and opened a file of its own there. A likely match is
// closed, too: the memory would never be freed. Files of one device look the same; these are the
// driver's.
void close_if_kept(int number) {
  if (g_state.files[number].match(number) != OpenFile::Match::kOther) close_file(number);
}

// The numbers are the parent's still: nothing has run in the child before.
void in_child() {
  g_state.forking = PTHREAD_MUTEX_INITIALIZER;
  g_state.keeping = PTHREAD_MUTEX_INITIALIZER;
  for (int number = 0; number < kEnd; ++number) {
    if (!is_kept(number)) continue;
    close_if_kept(number);
    g_state.kept[number / kBits].fetch_and(~bit(number), std::memory_order_relaxed);
  }
}

void register_once() { ::__register_atfork(before_fork, in_parent, in_child, nullptr); }

}  // namespace

NoFork::NoFork() {
  ::pthread_once(&g_state.registered, register_once);
  ::pthread_mutex_lock(&g_state.forking);
}

NoFork::~NoFork() { ::pthread_mutex_unlock(&g_state.forking); }

namespace {

// Under a number of [from, end). pre: `keeping` is held.
int keep_in(int fd, int from, int end) {
  for (;;) {
    const int kept = ::fcntl(fd, F_DUPFD_CLOEXEC, from);
    if (kept < 0) return 0;
    // The program closed a number that is kept: its keeper has it still, and will close it.
    const bool again = kept < kEnd && is_kept(kept);
    if (!again && kept < end && g_state.files[kept].look(kept)) {
      g_state.kept[kept / kBits].fetch_or(bit(kept), std::memory_order_relaxed);
      return kept;
    }
    close_file(kept);
    if (!again) return 0;
    from = kept + 1;
  }
}

// Under a number that the application's own limit does not let it open. The limit is raised for
// each file anew: between two files the driver unmaps a chunk, which takes far longer than this.
int keep_beyond(int fd) {
  const RaisedLimit raised(kEnd);
  return raised.first() != 0 ? keep_in(fd, raised.first(), kEnd) : 0;
}

}  // namespace

int keep(int fd) {
  ::pthread_once(&g_state.registered, register_once);
  const Locked locked(g_state.keeping);
  return keep_in(fd, lowest(), kEnd);
}

int keep_one_of_many(int fd) {
  ::pthread_once(&g_state.registered, register_once);
  const Locked locked(g_state.keeping);
  if (const int beyond = keep_beyond(fd)) return beyond;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t most = limit.rlim_cur - std::min(limit.rlim_cur, kSpare);
  return keep_in(fd, lowest(), static_cast<int>(std::min<rlim_t>(most, kEnd)));
}

int copy(int kept) {
  const Locked locked(g_state.keeping);
  const int copied = ::fcntl(kept, F_DUPFD_CLOEXEC, 0);
  if (copied < 0 || g_state.files[kept].match(copied) != OpenFile::Match::kOther) return copied;
  close_file(copied);
  return -1;
}

void close(int kept) {
  const Locked locked(g_state.keeping);
  g_state.kept[kept / kBits].fetch_and(~bit(kept), std::memory_order_relaxed);
  close_if_kept(kept);
}

CUresult import(int fd, CUmemGenericAllocationHandle& memory) {
  // The driver takes the descriptor as a pointer.
  auto* const as_pointer = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  const CUresult result = driver().cuMemImportFromShareableHandle(
      &memory, as_pointer, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) memory = 0;
  return result;
}

CUresult import_kept(int kept, CUmemGenericAllocationHandle& memory) {
  const auto is_ours = [kept] {
    return g_state.files[kept].match(kept) != OpenFile::Match::kOther;
  };
  if (!is_ours()) return CUDA_ERROR_OPERATING_SYSTEM;
  const CUresult result = import(kept, memory);
  // The application may have opened a file of its own there meanwhile.
  if (result != CUDA_SUCCESS || is_ours()) return result;
  driver().cuMemRelease(memory);
  memory = 0;
  return CUDA_ERROR_OPERATING_SYSTEM;
}

}  // namespace switchyard::shim::swap::memory_fd
