#include "shim/swap/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace switchyard::shim::swap::descriptors {
namespace {

// Numbers below that are the application's in any case; above the last one none is kept.
constexpr int kFirst = 1024;
constexpr int kEnd = 8192;
constexpr int kBits = 64;

// Which are kept: a forked child finds no table in a state to be read.
std::atomic<std::uint64_t> g_kept[kEnd / kBits] = {};

std::uint64_t bit(int number) { return std::uint64_t{1} << (number % kBits); }

int lowest() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFirst;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, kFirst));
}

}  // namespace

int keep(int fd) {
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
  g_kept[kept / kBits].fetch_and(~bit(kept), std::memory_order_relaxed);
  ::close(kept);
}

void close_all() {
  for (int number = 0; number < kEnd; ++number) {
    if ((g_kept[number / kBits].load(std::memory_order_relaxed) & bit(number)) != 0) close(number);
  }
}

}  // namespace switchyard::shim::swap::descriptors
