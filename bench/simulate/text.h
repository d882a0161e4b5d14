// Parts of the text that describes a job on the command line.
//
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace switchyard::simulate {

// Not negative; a percentage is a part.
inline std::optional<double> number(std::string_view text) {
  double factor = 1;
  if (text.ends_with('%')) {
    text.remove_suffix(1);
    factor = 0.01;
  }
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || !std::isfinite(value) || value < 0) return std::nullopt;
  return value * factor;
}

// What stands before `at`; `text` is then what stands behind it.
inline std::string_view cut(std::string_view& text, char at) {
  const std::size_t end = std::min(text.find(at), text.size());
  const std::string_view out = text.substr(0, end);
  text.remove_prefix(std::min(text.size(), end + 1));
  return out;
}

}  // namespace switchyard::simulate
