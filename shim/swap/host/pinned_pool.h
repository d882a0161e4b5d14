// The host pool: pinned memory of the host, for what is swapped out.
//
// Concept. Each GPU has a pool of its own, so that the monitor can divide the host by GPUs and no
// mover waits for another. A slab is 256 MiB, touched by several threads and registered with the
// driver. That happens in the background while the job runs: pinning is ten times slower than
// copying. Inside a slab pieces are runs of 2 MiB. Slabs are kept while the job lives, unless
// another needs them: then those that nothing is in are given back (pool_shrinking.h).
//
// A checkpoint of the process (checkpoint/checkpoint.h) would unpin and pin all of it while nothing
// else goes on. So the slabs are unpinned before, some of them while the job still works (abi.h:
// unpin). Each is pinned again where a copy needs it, while the copies of the one before still run.
//
// No slab is made beyond the monitor's limit (abi.h: host_limit_bytes), nor beyond what the machine
// and this process's own cgroup have to spare. The host's out-of-memory killer takes whole
// programs.
//
// Threading: any thread; one lock. grow(), drop(), what pins and unpins, and the numbers of slabs
// of a GPU are for its mover's thread alone.
#pragma once

#include <cstdint>

#include "shim/driver.h"

namespace switchyard::shim::swap::pinned_pool {

inline constexpr std::uint64_t kSlab = 256ull << 20;
inline constexpr unsigned kMostSlabs = 4096;  // 1 TiB

struct HostPiece {
  void* at = nullptr;  // null: none
  std::uint64_t bytes = 0;
  unsigned lane = 0;  // whose pool it is of
  explicit operator bool() const { return at != nullptr; }
};

// A piece of at least `bytes`, contiguous; without one, a null piece. Never waits, never grows.
// `bytes` is at most kSlab.
HostPiece take(unsigned lane, std::uint64_t bytes);
void give_back(HostPiece& piece);

// Of slabs in all, and not handed out.
std::uint64_t pinned_bytes(unsigned lane);
std::uint64_t free_bytes(unsigned lane);

// The room in which the pool can grow. It is what the machine and the cgroup have to spare now,
// less what must stay free (2 GiB or 5 %, the larger).
std::uint64_t room_bytes();

// Pins one more slab, unless `limit_bytes` or room_bytes() forbids it. pre: a context is current in
// the calling thread. False: it was forbidden, or the system refused.
bool grow(unsigned lane, std::uint64_t limit_bytes);

// How many slabs there are, which of them a piece is in, and what of one is not handed out. drop()
// numbers them anew.
unsigned slabs(unsigned lane);
unsigned slab_of(const HostPiece& piece);
std::uint64_t free_bytes_of(unsigned lane, unsigned slab);

// Gives a slab back that nothing is handed out of. The driver waits for all work of the process
// first. pre: as grow(). False: something is, or the driver refused; all is as it was.
bool drop(unsigned lane, unsigned slab);

// Unpins a slab, which keeps what is in it. The driver waits for all work of the process first.
// False: it refused. pre: as grow().
bool unpin(unsigned lane, unsigned slab);
bool is_unpinned(unsigned lane, unsigned slab);
// All slabs. How many bytes of them were still pinned.
std::uint64_t unpin_all(unsigned lane);
bool any_unpinned(unsigned lane);
// Pins one of these again; false: there is none, or the driver refused. pre: as grow().
bool pin_next(unsigned lane);
// The same for the slab of a piece. A copy of memory that is not pinned is right, but slow.
void pin_for_copy(const HostPiece& piece);

// In a forked child: the parent's slabs are not mapped there.
void clear();

}  // namespace switchyard::shim::swap::pinned_pool
