// What the ranks of a communicator share: a file, mapped by each of them.
//
// Concept. Zeroes are a meeting at which nobody is. Each rank has words of its own, which count up:
// how many operations it has contributed to, how many children it has asked for. So nobody waits
// for a lock, and a rank that dies is one that does not come any more.
//
// Threading: each word has one writer, the rank that it belongs to; `joined` is added to by all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fakenccl {

inline constexpr int kMostRanks = 8;
inline constexpr std::size_t kMostBytes = 1 << 20;  // of one rank in one operation
inline constexpr std::size_t kMostSent = 1 << 16;

struct Meeting {
  struct Rank {
    std::atomic<std::uint64_t> arrived;   // operations that it has contributed to
    std::atomic<std::uint64_t> children;  // times that it has asked for a child
    int color, key;                       // of the last time
  };
  // From one rank to another.
  struct Channel {
    std::atomic<std::uint64_t> sent, received;
    unsigned char data[kMostSent];
  };
  // One-sided: what was put waits here until the peer waits for its signal.
  struct Mailbox {
    std::atomic<std::uint64_t> put, taken;
    std::uint64_t bytes, window, offset;  // window 0: a signal alone
    unsigned char data[kMostSent];
  };
  std::atomic<std::uint32_t> joined;
  std::atomic<std::uint64_t> grows_to;  // the id of the communicator that takes its place; 0: none
  Rank rank[kMostRanks];
  // What each contributes, for odd and even operations: nobody is ahead by more than one.
  unsigned char data[kMostRanks][2][kMostBytes];
  Channel channel[kMostRanks][kMostRanks];
  Mailbox mailbox[kMostRanks][kMostRanks];
};

// The meeting of an id, beside the simulated GPU's state. Null: the system refuses.
Meeting* open_meeting(std::uint64_t id);
// Nobody new comes: the file may go.
void close_door(std::uint64_t id);

}  // namespace fakenccl
