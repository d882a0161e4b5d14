// Sizes as people read them, without allocation: "600 MiB".
//
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <cstdio>

namespace switchyard::shim {

struct SizeText {
  char text[24];
};

inline SizeText size_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  unsigned unit = 0;
  std::uint64_t whole = bytes, rest = 0;
  for (; whole >= 1024 && unit < 4; ++unit) {
    rest = whole % 1024;
    whole /= 1024;
  }
  SizeText out;
  const auto tenths = static_cast<unsigned>(rest * 10 / 1024);
  const auto number = static_cast<unsigned long long>(whole);
  if (tenths == 0) {
    std::snprintf(out.text, sizeof(out.text), "%llu %s", number, kUnits[unit]);
  } else {
    std::snprintf(out.text, sizeof(out.text), "%llu.%u %s", number, tenths, kUnits[unit]);
  }
  return out;
}

}  // namespace switchyard::shim
