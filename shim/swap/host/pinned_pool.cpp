#include "shim/swap/host/pinned_pool.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>

#include "shim/lock.h"
#include "shim/log.h"
#include "shim/memory/relaxed.h"
#include "shim/reset.h"
#include "shim/size_text.h"
#include "shim/swap/host/host_memory_limits.h"
#include "switchyard/abi.h"

namespace switchyard::shim::swap::pinned_pool {
namespace {

constexpr std::uint64_t kPage = 2ull << 20;
constexpr std::uint64_t kSmallPage = 4096;
constexpr unsigned kPages = kSlab / kPage;
constexpr unsigned kTouchers = 4;

// 256 MiB and which of its pages are handed out.
struct Slab {
  unsigned char* base = nullptr;
  unsigned free_pages = 0;
  std::uint64_t taken[kPages / 64] = {};
  bool unpinned = false;  // the mover's alone

  bool holds(const void* at) const {
    const auto* there = static_cast<const unsigned char*>(at);
    return there >= base && there < base + kSlab;
  }
  bool is_taken(unsigned page) const { return (taken[page / 64] >> page % 64 & 1) != 0; }
  void flip(unsigned first, unsigned pages) {
    for (unsigned page = first; page < first + pages; ++page) taken[page / 64] ^= 1ull << page % 64;
  }
  // The first page of the first run of `pages` free ones; kPages: there is none.
  unsigned find_run(unsigned pages) const {
    unsigned run = 0;
    for (unsigned page = 0; page < kPages; ++page) {
      run = is_taken(page) ? 0 : run + 1;
      if (run == pages) return page + 1 - pages;
    }
    return kPages;
  }
};

struct Pool {
  Slab slabs[kMostSlabs];
  unsigned count = 0;
  std::uint64_t free_pages = 0;

  // The place behind the last slab: not found.
  Slab* find(const void* at) {
    return std::find_if(slabs, end(), [at](const Slab& slab) { return slab.holds(at); });
  }
  Slab* find_unpinned() {
    return std::find_if(slabs, end(), [](const Slab& slab) { return slab.unpinned; });
  }
  Slab* end() { return slabs + count; }
  // All of a slab, or none of it: so that nobody takes of what is being given back.
  void hand_out_all(Slab& slab, bool out) {
    slab.flip(0, kPages);
    slab.free_pages = out ? 0 : kPages;
    free_pages = out ? free_pages - kPages : free_pages + kPages;
  }
};

struct State {
  Pool pools[abi::kMaxGpus];
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
};
constinit State g_state;

unsigned pages_of(std::uint64_t bytes) {
  return static_cast<unsigned>((bytes + kPage - 1) / kPage);
}

// At a multiple of 2 MiB, so that huge pages can stand behind all of it.
unsigned char* map_slab() {
  void* raw = ::mmap(nullptr, kSlab + kPage, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  auto* begin = static_cast<unsigned char*>(raw);
  const std::uint64_t before = -reinterpret_cast<std::uintptr_t>(begin) % kPage;
  if (before != 0) ::munmap(begin, before);
  ::munmap(begin + before + kSlab, kPage - before);
  begin += before;
  // After a fork the child's first write would leave the parent with another page than the GPU's.
  if (::madvise(begin, kSlab, MADV_DONTFORK) != 0) {
    static Once said;
    log_once(
        said, Level::kWarn,
        "swap: the kernel does not keep host memory from forked children (madvise: error %d), so "
        "none is used",
        errno);
    ::munmap(begin, kSlab);
    return nullptr;
  }
  // A kernel that refuses these makes moves slower and core files larger.
  (void)::madvise(begin, kSlab, MADV_HUGEPAGE);
  (void)::madvise(begin, kSlab, MADV_DONTDUMP);
  return begin;
}

// Nobody else has these pages yet, and to watch them costs tsan ten times as much as to touch them.
__attribute__((no_sanitize("thread"))) void* touch(void* part) {
  auto* begin = static_cast<volatile unsigned char*>(part);
  for (std::uint64_t at = 0; at < kSlab / kTouchers; at += kSmallPage) begin[at] = 0;
  return nullptr;
}

// The kernel zeroes each page at its first touch: one CPU alone takes four times as long. These
// threads have the signal mask of the mover's, which lets none through.
void touch_all(unsigned char* slab) {
  pthread_t threads[kTouchers];
  bool started[kTouchers] = {};
  for (unsigned i = 0; i < kTouchers; ++i) {
    unsigned char* part = slab + i * (kSlab / kTouchers);
    started[i] = i != 0 && ::pthread_create(&threads[i], nullptr, touch, part) == 0;
  }
  for (unsigned i = 0; i < kTouchers; ++i) {
    if (!started[i]) touch(slab + i * (kSlab / kTouchers));
  }
  for (unsigned i = 0; i < kTouchers; ++i) {
    if (started[i]) ::pthread_join(threads[i], nullptr);
  }
}

CUresult pin(unsigned char* slab) {
  // Registering is "potentially unsafe": it would spoil a capture, another thread's too.
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  return driver().cuMemHostRegister_v2(slab, kSlab, CU_MEMHOSTREGISTER_PORTABLE);
}

// The driver waits for all work of the process.
bool let_go(unsigned char* slab) {
  const memory::Relaxed relaxed(memory::Relaxed::kAlways);
  return driver().cuMemHostUnregister != nullptr &&
         driver().cuMemHostUnregister(slab) == CUDA_SUCCESS;
}

bool pin_again(Slab& slab) {
  const CUresult result = pin(slab.base);
  slab.unpinned = result != CUDA_SUCCESS;
  if (!slab.unpinned) return true;
  static Once said;
  log_once(said, Level::kWarn,
           "swap: the driver does not pin host memory again, so copies are slow: %d",
           static_cast<int>(result));
  return false;
}

}  // namespace

HostPiece take(unsigned lane, std::uint64_t bytes) {
  const unsigned pages = pages_of(bytes);
  if (pages == 0) return {};
  const Locked locked(g_state.lock);
  Pool& pool = g_state.pools[lane];
  for (Slab* slab = pool.slabs; slab != pool.end(); ++slab) {
    if (slab->free_pages < pages) continue;
    const unsigned first = slab->find_run(pages);
    if (first == kPages) continue;
    slab->flip(first, pages);
    slab->free_pages -= pages;
    pool.free_pages -= pages;
    return {slab->base + first * kPage, pages * kPage, lane};
  }
  return {};
}

void give_back(HostPiece& piece) {
  if (!piece) return;
  const Locked locked(g_state.lock);
  auto* at = static_cast<unsigned char*>(piece.at);
  Pool& pool = g_state.pools[piece.lane];
  Slab* slab = pool.find(at);
  if (slab != pool.end()) {
    const unsigned pages = pages_of(piece.bytes);
    slab->flip(static_cast<unsigned>(static_cast<std::uint64_t>(at - slab->base) / kPage), pages);
    slab->free_pages += pages;
    pool.free_pages += pages;
  }
  piece = {};
}

std::uint64_t pinned_bytes(unsigned lane) {
  const Locked locked(g_state.lock);
  return g_state.pools[lane].count * kSlab;
}

std::uint64_t free_bytes(unsigned lane) {
  const Locked locked(g_state.lock);
  return g_state.pools[lane].free_pages * kPage;
}

std::uint64_t room_bytes() { return host_memory_limits::bytes(); }

bool grow(unsigned lane, std::uint64_t limit_bytes) {
  const std::uint64_t pinned = pinned_bytes(lane);
  if (pinned / kSlab >= kMostSlabs || pinned + kSlab > limit_bytes) return false;
  if (room_bytes() < kSlab || driver().cuMemHostRegister_v2 == nullptr) return false;
  unsigned char* base = map_slab();
  if (base == nullptr) return false;
  touch_all(base);
  const CUresult result = pin(base);
  if (result != CUDA_SUCCESS) {
    static Once said;
    log_once(said, Level::kWarn, "swap: the driver pins no more than %s of the host: %d",
             size_text(pinned).text, static_cast<int>(result));
    ::munmap(base, kSlab);
    return false;
  }
  const Locked locked(g_state.lock);
  Pool& pool = g_state.pools[lane];
  *pool.end() = {.base = base, .free_pages = kPages};
  ++pool.count;
  pool.free_pages += kPages;
  return true;
}

unsigned slabs(unsigned lane) {
  const Locked locked(g_state.lock);
  return g_state.pools[lane].count;
}

unsigned slab_of(const HostPiece& piece) {
  const Locked locked(g_state.lock);
  Pool& pool = g_state.pools[piece.lane];
  return static_cast<unsigned>(pool.find(piece.at) - pool.slabs);
}

std::uint64_t free_bytes_of(unsigned lane, unsigned slab) {
  const Locked locked(g_state.lock);
  return g_state.pools[lane].slabs[slab].free_pages * kPage;
}

bool drop(unsigned lane, unsigned number) {
  Pool& pool = g_state.pools[lane];
  Slab& slab = pool.slabs[number];
  {
    const Locked locked(g_state.lock);
    if (slab.free_pages != kPages) return false;
    pool.hand_out_all(slab, true);
  }
  const bool gone = slab.unpinned || let_go(slab.base);
  if (gone) ::munmap(slab.base, kSlab);
  const Locked locked(g_state.lock);
  pool.hand_out_all(slab, false);
  if (!gone) return false;
  std::move(&slab + 1, pool.end(), &slab);
  --pool.count;
  pool.free_pages -= kPages;
  return true;
}

bool unpin(unsigned lane, unsigned number) {
  Slab& slab = g_state.pools[lane].slabs[number];
  slab.unpinned = slab.unpinned || let_go(slab.base);
  return slab.unpinned;
}

bool is_unpinned(unsigned lane, unsigned number) {
  return g_state.pools[lane].slabs[number].unpinned;
}

std::uint64_t unpin_all(unsigned lane) {
  std::uint64_t bytes = 0;
  for (unsigned i = 0; i < g_state.pools[lane].count; ++i) {
    if (!is_unpinned(lane, i) && unpin(lane, i)) bytes += kSlab;
  }
  return bytes;
}

bool any_unpinned(unsigned lane) {
  Pool& pool = g_state.pools[lane];
  return pool.find_unpinned() != pool.end();
}

bool pin_next(unsigned lane) {
  Pool& pool = g_state.pools[lane];
  Slab* const next = pool.find_unpinned();
  return next != pool.end() && pin_again(*next);
}

void pin_for_copy(const HostPiece& piece) {
  Pool& pool = g_state.pools[piece.lane];
  Slab* const slab = pool.find(piece.at);
  if (slab != pool.end() && slab->unpinned) pin_again(*slab);
}

void clear() {
  // Most GPUs have none, and what was never written takes no memory.
  for (Pool& pool : g_state.pools) {
    if (pool.count != 0) renew(pool);
  }
  renew(g_state.lock);
}
SWITCHYARD_RESET(kState, clear);

}  // namespace switchyard::shim::swap::pinned_pool
