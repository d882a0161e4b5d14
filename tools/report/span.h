// The beginning and the end of a report, as people write them.
//
// Threading: pure; local time is the process's TZ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace switchyard::tools {

inline constexpr char kSpanForms[] =
    "a span before now such as 90m, 8h, 7d or 2w, or a local date such as 2026-11-27, "
    "'2026-11-27 14:00', today or yesterday";

// Seconds since 1970; nullopt: the text is none of these. `now` is the same of now.
std::optional<std::int64_t> parse_point(const std::string& text, std::int64_t now);

// A local time, in minutes: "2026-11-27 14:00".
std::string minute_text(std::int64_t seconds);

}  // namespace switchyard::tools
