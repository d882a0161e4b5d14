// Which launches the next wait of a client's CPU comes after. Pure.
//
// Concept. Between two waits an eager server launches nearly as many kernels as it did before, or
// one of a few recurring numbers. The next number follows from the numbers that came after the same
// ones before. If their order does not recur, each number that does is a candidate. A *span* of
// launches ends a little above a candidate. It begins as many launches below it as the low job
// needs to leave the GPU.
//
//     launches since the last wait   0 ........ from ====== candidate == to .......
//                                      gate open     gate closed             open
//
// Threading: plain values.
#pragma once

#include <optional>

#include "monitor/policy/bursts.h"
#include "monitor/policy/state.h"

namespace switchyard::monitor::policy {

// Of a burst: with more of it behind a closed gate its wait was not foreseen, only awaited.
inline constexpr double kMostClosed = 0.8;

struct Span {
  std::uint32_t from = 0;  // the gate is closed while from <= launches < to
  std::uint32_t to = 0;
};

// The first span that ends above `launched`; `margin`: launches from its begin to the candidate.
std::optional<Span> next_span(const WaitHistory& history, std::uint32_t launched,
                              std::uint32_t margin);

// Reads the bursts that are new, and judges what was foreseen of each that is longer than the
// margin. Answers how many of the last ones are new.
std::uint32_t learn(WaitHistory& history, const Bursts& seen, std::uint32_t margin);

// The part of these bursts' launches whose wait was foreseen; 0 while too few are known.
double trust(const WaitHistory& history);

}  // namespace switchyard::monitor::policy
