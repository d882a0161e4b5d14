// The configuration file as text, taken apart: each value with its path and its line.
//
// Concept. TOML is known to document.cpp alone. A value becomes the text that a person would write
// as an option: 4 is "4", true is "yes". So a value of the file and one of the command line are
// understood by the same functions (options.cpp).
//
// Threading: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace switchyard::monitor::config {

inline constexpr char kSystemFile[] = "/etc/switchyard/switchyard.toml";
inline constexpr std::size_t kMostBytes = 256 * 1024;  // of a file
// Problems of one file that have a message; nobody reads more.
inline constexpr std::size_t kMostProblems = 100;

struct Entry {
  std::vector<std::string> path;  // {"group", "students", "caps", "memory"}
  std::string text;               // empty for a table
  unsigned line = 0;
  bool is_table = false;
};

struct Document {
  std::string file;
  std::vector<Entry> entries;         // in the order of their lines; tables too
  std::vector<std::string> problems;  // each with file and line

  std::string at(unsigned line) const { return file + ":" + std::to_string(line); }
  void complain(unsigned line, const std::string& what) {
    if (problems.size() < kMostProblems) problems.push_back(at(line) + ": " + what);
  }
};

// "group.students.caps", for messages. A part with other signs than TOML's bare keys has quotes.
std::string path_text(const std::vector<std::string>& path);

Document parse_document(std::string_view text, std::string file);

}  // namespace switchyard::monitor::config
