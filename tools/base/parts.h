// The parts of a value that is a list, as of --gpu 0,1.
//
// Threading: pure.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace switchyard::tools {

inline std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string part; std::getline(words, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace switchyard::tools
