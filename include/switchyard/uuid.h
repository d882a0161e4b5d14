// The UUID of a GPU, as NVML writes it, to its bytes, as the driver gives them.
//
// Threading: pure.
#pragma once

#include <cstdint>

namespace switchyard {

// "GPU-" or "MIG-" and 32 hexadecimal digits, with dashes anywhere between them. False: `text` is
// none, and what `uuid` holds means nothing. pre: `uuid` has room for 16 bytes.
constexpr bool parse_uuid(const char* text, std::uint8_t* uuid) {
  const bool gpu = text[0] == 'G' && text[1] == 'P' && text[2] == 'U' && text[3] == '-';
  const bool mig = text[0] == 'M' && text[1] == 'I' && text[2] == 'G' && text[3] == '-';
  if (!gpu && !mig) return false;
  unsigned digits = 0;
  for (text += 4; *text != '\0'; ++text) {
    if (*text == '-') continue;
    const char c = static_cast<char>(*text | 0x20);
    const bool letter = c >= 'a' && c <= 'f';
    if (digits == 32 || (!letter && (*text < '0' || *text > '9'))) return false;
    const unsigned value =
        letter ? static_cast<unsigned>(c - 'a') + 10 : static_cast<unsigned>(*text - '0');
    uuid[digits / 2] =
        static_cast<std::uint8_t>(digits % 2 == 0 ? value << 4 : uuid[digits / 2] | value);
    ++digits;
  }
  return digits == 32;
}

}  // namespace switchyard
