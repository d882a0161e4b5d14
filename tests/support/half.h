// Numbers of 16 bits, rounded to the nearest, for tests: fp16 and bf16.
//
// Threading: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace switchyard::half {

inline std::uint16_t bfloat_of(float number) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

inline std::uint16_t half_of(float number) {
  const std::uint32_t sign = std::signbit(number) ? 0x8000u : 0;
  const float size = std::fabs(number);
  if (!(size < 65520)) return static_cast<std::uint16_t>(sign | (size == size ? 0x7C00 : 0x7E00));
  if (size < 0x1p-14F) {
    return static_cast<std::uint16_t>(sign |
                                      static_cast<std::uint32_t>(std::nearbyint(size * 0x1p24F)));
  }
  const int exponent = std::ilogb(size);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  // 2048 steps are the next exponent's first.
  return static_cast<std::uint16_t>(
      sign | ((static_cast<std::uint32_t>(exponent + 15) << 10) + steps - 1024));
}

}  // namespace switchyard::half
