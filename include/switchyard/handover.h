// The board of a hand-over: what a client whose memory leaves tells the one that gets it.
//
// Concept. The engines that copy also clear memory that is given back to the driver, and write page
// tables for memory that is made anew. So where the monitor says for whom a client leaves (abi.h:
// Residency::gives, takes), it hands its chunks over as they are. Descriptors of them go through
// the monitor (wire.h: kShare, under the key below), and as the first of them this board. There the
// donor says what the chunks are and of each when its contents are in the host.
//
//     donor      works, offers chunks  | its work done: begun | left[0], left[1] .. | ended
//     recipient  imports and maps them |                      | fills 0, fills 1 .. | drops others
//
// Until the donor is told to leave, only its work uses the memory that both have mapped. The
// recipient's work is held until all of its own memory is there. The recipient fills no chunk that
// has not left.
//
// Trust. The board is sealed against shrinking. The recipient copies what it reads and checks it;
// the donor reads nothing. Both are the same user's, as for everything that goes through kShare.
//
// Threading: every word is a lock-free atomic. `left` is stored with release after the contents
// have left, and loaded with acquire before anything is written there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "switchyard/abi.h"
#include "switchyard/wire.h"

namespace switchyard::handover {

inline constexpr std::uint32_t kMostChunks = 1016;

// Board::phase
inline constexpr std::uint32_t kOffered = 0;
inline constexpr std::uint32_t kBegun = 1;  // the donor's accepted work is done: its memory leaves
inline constexpr std::uint32_t kEnded = 2;  // what has not left by now stays the donor's

struct Offered {
  abi::Word64 bytes;
  abi::Word32 kind;  // what it was made with: only equal ones can stand for each other
  abi::Word32 left;  // 1: its contents have left, and the donor has it no more
};

struct Board {
  abi::Word32 count;
  abi::Word32 phase;
  std::uint8_t reserved[120];
  Offered chunks[kMostChunks];  // in the order in which they leave
};
inline constexpr std::size_t kBoardBytes = 16384;
static_assert(sizeof(Board) == kBoardBytes);

// `number`: the monitor's, of this hand-over.
inline constexpr std::uint64_t kKeyWord = 0x7265766f646e6168;
inline wire::Key key_of(std::uint64_t number) { return {{number, kKeyWord}}; }
inline bool is_key(const wire::Key& key) { return key.words[1] == kKeyWord; }

}  // namespace switchyard::handover
