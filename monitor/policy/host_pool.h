// How much of the host's memory each client may keep pinned: one budget, divided fairly.
//
// Concept. A client pins in the background what all of its swappable memory needs, long before it
// leaves. So each gets a share in proportion to the most that it can use. That is its memory, the
// waste of pieces that don't fit, and a few slabs for a start. Where there is enough, nobody is
// limited below that, and what nobody needs stays with who has pinned it, for pinning takes long.
//
// Memory that is pinned by one client is no other's. A client may have more than its share, because
// another has come or grown. It is told its share and gives back as it can; meanwhile the others
// get only the rest. So what is pinned is never more than the budget, but for slabs whose pinning
// had begun when a limit fell.
//
// Those that take turns on a GPU have together all that the others don't. A job that is away keeps
// its need there, and all the rest is for those that may have to leave. As one comes in, what it
// needed becomes the giver's. So the pool must hold what all together lack on the GPU, and not what
// each of them lacks in turn.
//
// Shares are whole slabs: less than one is of no use.
//
// Threading: pure functions of what they are told.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace switchyard::monitor::policy {

// What the library pins at a time.
inline constexpr std::uint64_t kHostSlab = 256ull << 20;

// A client's lane of a GPU.
struct HostUser {
  std::uint64_t total_bytes = 0;   // swappable memory, wherever it is
  std::uint64_t pinned_bytes = 0;  // of the host, now
  std::uint64_t away_bytes = 0;    // of its memory, in the host now or on its way there
  bool takes_turns = false;
  bool comes = false;  // it is the next that comes in: it needs no more of the host
  unsigned owner = 0;  // users of the machine have equal parts where all of them want more
};

// What of the host it can use at most; 0 without swappable memory.
std::uint64_t usable_host_bytes(std::uint64_t total_bytes);

// Of so much pinned memory, what surely holds chunks: pieces that don't fit waste some of each
// slab.
constexpr std::uint64_t usable_part(std::uint64_t pinned_bytes) {
  return pinned_bytes - pinned_bytes / 8;
}

// The most that those which take turns can have away at a time, however that is spread among them
// and whichever is to leave next. At least one slab is left for that one.
std::uint64_t turns_hold(std::span<const HostUser> users, std::uint64_t budget);

// How much each may keep pinned.
std::vector<std::uint64_t> divide_host_pool(std::span<const HostUser> users, std::uint64_t budget);

}  // namespace switchyard::monitor::policy
