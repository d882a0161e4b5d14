// Text for a terminal of 80 columns: --help of both programs.
//
// Concept. Text that begins at the margin is prose, and its lines are filled. An indented line
// keeps its own. If it is too long, it goes on below its last column: that of a table's text,
// behind a gap of three blanks. Lines that already go on there are filled with it. A line without a
// gap, two blanks from the margin, is a command, which a person copies as a whole. Of several blank
// lines one stays.
//
// Threading: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>

namespace switchyard {

inline constexpr std::size_t kHelpColumns = 80;

namespace wrapped_detail {

inline std::size_t indent_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Where what is too long for the line goes on.
inline std::size_t hanging(const std::string& line) {
  constexpr std::size_t kOptionText = 30;  // where CLI11 sets it, also behind a narrow gap
  const std::size_t begin = indent_of(line);
  if (begin == 0) return 0;
  const std::size_t gap = line.find("   ", begin);
  if (gap != std::string::npos) return std::min(line.find_first_not_of(' ', gap), line.size());
  const bool option = line.size() > kOptionText && begin == 2 && line[begin] == '-';
  return option && line[kOptionText - 1] == ' ' ? kOptionText : begin;
}

inline bool is_command(const std::string& line, std::size_t hangs) {
  return hangs == 2 && line[hangs] != '-';
}

// CLI11 sets what a command does above its usage, without a blank line; and options may follow
// each other where their text would go on.
inline bool begins_anew(const std::string& above, const std::string& line) {
  constexpr char kUsage[] = "Usage:";
  return line.rfind(kUsage, 0) == 0 || above.rfind(kUsage, 0) == 0 || line.rfind("  -", 0) == 0;
}

// One line in as many as it needs.
inline void fill(const std::string& line, std::size_t hangs, std::string& out) {
  std::size_t from = 0;
  bool first = true;
  while (from < line.size()) {
    const std::size_t margin = first ? 0 : hangs;
    std::size_t to = line.size();
    if (margin + to - from > kHelpColumns) {
      const std::size_t blank = line.rfind(' ', from + kHelpColumns - margin);
      const bool usable = blank != std::string::npos && blank > std::max(from, first ? hangs : 0);
      to = usable ? blank : std::min(line.find(' ', from + kHelpColumns - margin), line.size());
    }
    out += std::string(margin, ' ') + line.substr(from, to - from) + '\n';
    from = std::min(line.find_first_not_of(' ', to), line.size());
    first = false;
  }
}

}  // namespace wrapped_detail

inline std::string wrapped(const std::string& text) {
  using namespace wrapped_detail;
  std::istringstream lines(text);
  std::string out, pending;
  std::size_t hangs = 0;
  const auto flush = [&] {
    if (!pending.empty()) fill(pending, hangs, out);
    pending.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = indent_of(line);
    const bool goes_on = !pending.empty() && begin == hangs && begin != line.size();
    if (goes_on && !begins_anew(pending, line)) {
      pending += ' ' + line.substr(begin);
      continue;
    }
    flush();
    if (begin == line.size()) {
      if (out.size() < 2 || out[out.size() - 2] != '\n') out += '\n';
    } else if (hangs = hanging(line); is_command(line, hangs)) {
      out += line + '\n';
    } else {
      pending = line;
    }
  }
  flush();
  return out;
}

}  // namespace switchyard
