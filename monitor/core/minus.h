// The difference of two amounts, never below zero.
//
// Amounts are unsigned, and two of them may come from different moments.
//
// Threading: any thread.
#pragma once

#include <cstdint>

namespace switchyard::monitor {

inline std::uint64_t minus(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; }

}  // namespace switchyard::monitor
