// How far a job's memory is on its way, as far as the monitor knows it.
//
// Threading: a pure function.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/base/output.h"

namespace switchyard::tools {

struct Move {
  bool in = false;  // else out
  std::uint64_t done_bytes = 0, all_bytes = 0;

  int percent() const {
    return static_cast<int>(100.0 * static_cast<double>(done_bytes) /
                            static_cast<double>(all_bytes));
  }
};

// Nullopt: nothing of it moves, or nobody knows how much that is.
inline std::optional<Move> move_of(const nlohmann::json& job) {
  if (text_of(job, "residency") != "moving") return std::nullopt;
  std::uint64_t all = 0, away = 0;
  for (const auto& gpu : list_of(job, "gpus")) {
    const std::uint64_t swappable = number_of(gpu, "memory_swappable_bytes");
    all += swappable;
    away += std::min(swappable, number_of(gpu, "memory_swapped_bytes"));
  }
  if (all == 0) return std::nullopt;
  const bool in = text_of(job, "reason", "") == "returns";
  return Move{in, in ? all - away : away, all};
}

}  // namespace switchyard::tools
