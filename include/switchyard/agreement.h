// The board of an agreement: how the ranks of a communicator decide together, without NCCL.
//
// Concept. Some calls of NCCL are made by all ranks or by none, or they hang. So before the library
// makes such a call on its own account, all ranks must have decided the same. The ranks of one
// machine share this board by a descriptor that goes through the monitor (wire.h: kShare, under the
// key below). A rank without a board takes no part, and then no rank does:
//
//     before the program's own call that makes the communicator    registered += 1
//     after it: all who will ever register have registered         registered < ranks: vote no
//     a vote                       yes: voted += 1, and the last one: open -> yes; no: open -> no
//     a vote that does not come                                    open -> no, by who waits longest
//
// `decision` changes once, by compare-exchange, so all ranks read the same. A rank that is killed
// or stopped costs the others a bounded wait.
//
// Trust. The board is sealed against shrinking. All who have it are the same user's. A wrong word
// can at most make the ranks of that user's communicator disagree.
//
// Threading: every word is a lock-free atomic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "switchyard/abi.h"
#include "switchyard/wire.h"

namespace switchyard::agreement {

// Vote::decision
inline constexpr std::uint32_t kOpen = 0;
inline constexpr std::uint32_t kYes = 1;
inline constexpr std::uint32_t kNo = 2;

struct Vote {
  abi::Word32 voted;  // for it
  abi::Word32 decision;
};

// The questions of a vote, in this order.
enum Question : unsigned {
  kMake = 0,  // whether all make it
  kKeep = 1,  // whether all have it
  kQuestions = 2,
};

struct Board {
  abi::Word32 registered;  // ranks that have the board
  abi::Word32 reserved;
  Vote votes[kQuestions];
};
inline constexpr std::size_t kBoardBytes = 4096;
static_assert(sizeof(Board) == 24 && sizeof(Board) <= kBoardBytes);

// `id`: the communicator's (abi.h: Communicator).
inline constexpr std::uint64_t kKeyWord = 0x746e656d65657267;
inline wire::Key key_of(std::uint64_t id) { return {{id, kKeyWord}}; }

}  // namespace switchyard::agreement
