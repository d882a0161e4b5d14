// This process's ranks at the boards where ranks decide together (switchyard/agreement.h).
//
// Threading: any thread. One lock is held while a board is opened, over a bounded round trip to the
// monitor. A vote takes none; outcome() waits at most kPatienceNs.
#pragma once

#include <cstdint>

#include "switchyard/agreement.h"

namespace switchyard::shim::nccl::agreement {

using switchyard::agreement::Board;
using switchyard::agreement::kKeep;
using switchyard::agreement::kMake;
using switchyard::agreement::Question;

// How long a rank waits for the votes of the others, and how often it looks.
inline constexpr std::uint64_t kPatienceNs = 10'000'000'000;
inline constexpr std::uint64_t kLookAgainNs = 1'000'000;

// Opens the board of a communicator and registers one rank there. Null: there is none, so there
// will be no agreement.
Board* attend(std::uint64_t id);

// Whether all ranks have registered. pre: the call that makes the communicator has returned.
bool all_attend(const Board& board, unsigned ranks);

// One rank's vote, once. All votes of a thread come before it waits for the first outcome.
void vote(Board& board, Question question, unsigned ranks, bool yes);

// The decision of all ranks.
bool outcome(Board& board, Question question);

// One rank needs its board no more.
void leave(Board* board, std::uint64_t id);

}  // namespace switchyard::shim::nccl::agreement
