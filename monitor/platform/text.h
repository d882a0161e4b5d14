// Numbers as people read them.
//
// Threading: pure functions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace switchyard::monitor {

inline std::string bytes_text(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= 1ull << 30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  if (bytes >= 1ull << 20) return fmt::format("{:.1f} MiB", value / 0x1p20);
  if (bytes >= 1ull << 10) return fmt::format("{:.1f} KiB", value / 0x1p10);
  return fmt::format("{} B", bytes);
}

}  // namespace switchyard::monitor
