// Text that came from outside, made fit for a terminal and a log: names of processes, arguments,
// what the other side of a socket says.
//
// Concept. A control character could move the cursor, forge a line of a log or worse. Each becomes
// '?', also those that UTF-8 writes with two bytes (U+0080 to U+009F). Other UTF-8 stays.
//
// Threading: pure functions.
#pragma once

#include <string>
#include <string_view>

namespace switchyard {

inline std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    const bool two_bytes = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    out += byte < 0x20 || byte == 0x7f || two_bytes ? '?' : text[i];
    if (two_bytes) ++i;
  }
  return out;
}

}  // namespace switchyard
