#include "tools/report/span.h"

#include <charconv>
#include <ctime>

namespace switchyard::tools {
namespace {

constexpr std::int64_t kMostUnits = 100'000;

// "8h" in seconds.
std::optional<std::int64_t> parse_span(const std::string& text) {
  const char* const end = text.data() + text.size();
  std::int64_t count = 0;
  const auto read = std::from_chars(text.data(), end, count);
  if (read.ec != std::errc() || read.ptr + 1 != end || count < 0 || count > kMostUnits) return {};
  switch (*read.ptr) {
    case 'm':
      return count * 60;
    case 'h':
      return count * 3600;
    case 'd':
      return count * 86400;
    case 'w':
      return count * 7 * 86400;
    default:
      return std::nullopt;
  }
}

// The beginning of a local day, some days from that of `now`.
std::int64_t day_of(std::int64_t now, int days) {
  const std::time_t at = now;
  std::tm local{};
  ::localtime_r(&at, &local);
  local.tm_mday += days;
  local.tm_hour = local.tm_min = local.tm_sec = 0;
  local.tm_isdst = -1;
  return ::mktime(&local);
}

}  // namespace

std::optional<std::int64_t> parse_point(const std::string& text, std::int64_t now) {
  if (text == "today") return day_of(now, 0);
  if (text == "yesterday") return day_of(now, -1);
  if (const auto span = parse_span(text)) return now - *span;
  for (const char* form : {"%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"}) {
    std::tm local{};
    const char* const rest = ::strptime(text.c_str(), form, &local);
    if (rest == nullptr || *rest != '\0') continue;
    local.tm_isdst = -1;
    const std::tm asked = local;
    const std::time_t at = ::mktime(&local);
    // A day that there is not becomes one of the next month.
    if (at >= 0 && local.tm_mday == asked.tm_mday) return at;
  }
  return std::nullopt;
}

std::string minute_text(std::int64_t seconds) {
  const std::time_t at = seconds;
  std::tm local{};
  char text[32];
  if (::localtime_r(&at, &local) == nullptr) return "-";
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &local));
}

}  // namespace switchyard::tools
