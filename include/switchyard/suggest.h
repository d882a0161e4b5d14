// The word that somebody may have meant.
//
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard {

// How many letters must be added, dropped or replaced to make one word the other.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// The nearest of `words`, or "" when none is near: at most two letters of difference, and fewer
// than half of the word.
inline std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  std::string best;
  std::size_t least = 3;
  for (const std::string& each : words) {
    const std::size_t distance = edit_distance(word, each);
    if (distance < least && 2 * distance < each.size()) {
      least = distance;
      best = each;
    }
  }
  return best;
}

}  // namespace switchyard
