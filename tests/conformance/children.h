// What this program does when it runs as the second process of a test.
#pragma once

#include <string>

namespace conformance {

#define CHECK(number, condition) \
  if (!(condition)) return number

// The driver refuses it: what was refused is printed.
inline constexpr int kRefused = 100;

// The child's exit status: 0 when all was as it should be, else the number of the failed check.
int child_main(const std::string& name);
int checkpoint_child(const std::string& name);       // checkpoint_children.cpp
int checkpoint_part_child(const std::string& name);  // checkpoint_parts.cpp

}  // namespace conformance
