// What the ranks of a communicator share: a file, mapped by each of them.
//
// Concept. Zeroes are a meeting at which nobody is. Each rank has words of its own, which count up:
// how many operations it has contributed to, how many children it has asked for. So nobody waits
// for a lock, and a rank that dies is one that does not come any more. The file has room for the
// ranks that come, and no more: the channels between 128 of them take a gigabyte of addresses.
//
// Threading: each word has one writer, the rank that it belongs to; `joined` is added to by all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fakenccl {

inline constexpr int kMostRanks = 128;
inline constexpr std::size_t kMostBytes = 1 << 20;  // of one rank in one operation
inline constexpr std::size_t kMostSent = 1 << 16;

struct Meeting {
  struct Rank {
    std::atomic<std::uint64_t> arrived;   // operations that it has contributed to
    std::atomic<std::uint64_t> children;  // times that it has asked for a child
    int color, key;                       // of the last time
  };
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
  // What a rank contributes, for odd and even operations: nobody is ahead by more than one.
  using Data = unsigned char[2][kMostBytes];
  struct Words {
    std::atomic<std::uint32_t> joined;
    std::atomic<std::uint64_t> grows_to;  // the communicator that takes its place; 0: none
  };
  Words* words = nullptr;
  Rank* rank = nullptr;
  Data* data = nullptr;
  // From one rank to another.
  Channel& channel(int from, int to) const { return channels[from * ranks + to]; }
  Mailbox& mailbox(int from, int to) const { return mailboxes[from * ranks + to]; }

  Channel* channels = nullptr;
  Mailbox* mailboxes = nullptr;
  int ranks = 0;
};

// The meeting of an id, beside the simulated GPU's state. `words` is null: the system refuses.
Meeting open_meeting(std::uint64_t id, int ranks);
// Nobody new comes: the file may go.
void close_door(std::uint64_t id);

}  // namespace fakenccl
