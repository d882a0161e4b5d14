#include "tools/base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace switchyard::tools {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::size_t terminal_columns() {
  if (const char* given = std::getenv("COLUMNS")) {
    std::size_t columns = 0;
    const char* end = given + std::strlen(given);
    const auto parsed = std::from_chars(given, end, columns);
    if (parsed.ec == std::errc() && parsed.ptr == end && columns > 0) return columns;
  }
  winsize size{};
  if (::isatty(STDOUT_FILENO) != 1 || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

bool utf8_locale() {
  // The first that is set decides, as for setlocale().
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* locale = std::getenv(variable);
    if (locale == nullptr || locale[0] == '\0') continue;
    const std::string_view name = locale;
    return name.find("UTF-8") != name.npos || name.find("utf8") != name.npos;
  }
  return false;
}

std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string cut(const std::string& text, std::size_t columns, bool utf8) {
  if (width_of(text) <= columns) return text;
  if (columns == 0) return "";
  std::size_t end = 0;
  for (std::size_t kept = 0; end < text.size(); ++end) {
    if (continues(text[end])) continue;
    if (kept++ == columns - 1) break;
  }
  return text.substr(0, end) + (utf8 ? "…" : "~");
}

std::string filled(const std::string& text, std::size_t columns) {
  if (columns == 0 || width_of(text) <= columns) return text;
  std::istringstream words(text);
  std::string out;
  std::size_t at = 0;
  for (std::string word; words >> word;) {
    const std::size_t width = width_of(word);
    if (at > 0) out += at + 1 + width > columns ? '\n' : ' ';
    at = at > 0 && at + 1 + width <= columns ? at + 1 + width : width;
    out += word;
  }
  return out;
}

std::string in_locale(const std::string& text, bool utf8) {
  if (utf8) return text;
  std::string out;
  for (const char c : text) {
    if (continues(c)) continue;
    out += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  }
  return out;
}

}  // namespace switchyard::tools
