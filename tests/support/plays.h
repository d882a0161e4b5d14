// Plays: random scenes of which all that happens is noted, and compared with a record.
//
// Concept. A law says what must never happen. A play only notes what happens, and compares that
// with a record of earlier. So any change of behaviour makes it fail, however small the change is.
// A change that is meant renews the record in the same commit.
//
// With SWITCHYARD_PLAYS=FOLDER plays compare nothing. They write a new record.txt into that empty
// folder, and the whole text of each play. Let the version before write into another folder, and
// compare the two. The first line that differs shows the change.
//
// Each play notes in columns. A new field of one leaves the others as they are.
//
// Threading: one thread, the test's.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::test_support {

// Where the text shall be written; null: nowhere.
inline const char* plays_folder() { return std::getenv("SWITCHYARD_PLAYS"); }

// All that was noted in one column: a digest, and the text where somebody wants that.
class Noted {
 public:
  void note(const std::string& line) {
    for (const char each : line)
      digest_ = (digest_ ^ static_cast<unsigned char>(each)) * 0x100000001b3;
    digest_ = (digest_ ^ '\n') * 0x100000001b3;
    if (plays_folder() != nullptr) text_ += line + "\n";
  }
  std::string digest() const {
    char out[9];
    std::snprintf(out, sizeof out, "%08x", static_cast<unsigned>(digest_ ^ (digest_ >> 32)));
    return out;
  }
  const std::string& text() const { return text_; }

 private:
  std::uint64_t digest_ = 0xcbf29ce484222325;
  std::string text_;
};

using Columns = std::map<std::string, Noted>;

// By play and part, the digest of each column.
class PlayRecord {
 public:
  explicit PlayRecord(const char* file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::pair<unsigned, unsigned> key;
      words >> key.first >> key.second;
      for (std::string name, digest; words >> name >> digest;) before_[key][name] = digest;
    }
  }

  // Plays it whole. `play` has step() and columns().
  template <class Play>
  void hold_against(Play& play, unsigned number, unsigned parts, unsigned steps) const {
    for (unsigned part = 0; part < parts; ++part) {
      for (unsigned step = 0; step < steps; ++step) play.step();
      if (plays_folder() != nullptr) {
        keep(number, part, play.columns());
      } else {
        ASSERT_NO_FATAL_FAILURE(compare(number, part, play.columns()));
      }
    }
    if (plays_folder() == nullptr) return;
    for (const auto& [name, noted] : play.columns()) {
      std::ofstream(in_folder(std::to_string(number) + "." + name)) << noted.text();
    }
  }

 private:
  static std::string in_folder(const std::string& name) {
    return std::string(plays_folder()) + "/" + name;
  }
  static void keep(unsigned number, unsigned part, const Columns& columns) {
    std::ofstream file(in_folder("record.txt"), std::ios::app);
    file << number << ' ' << part;
    for (const auto& [name, noted] : columns) file << ' ' << name << ' ' << noted.digest();
    file << '\n';
  }
  // What comes after the first difference differs, too.
  void compare(unsigned number, unsigned part, const Columns& columns) const {
    const auto before = before_.find({number, part});
    ASSERT_NE(before, before_.end()) << "the record lacks part " << part << " of play " << number;
    for (const auto& [name, noted] : columns) {
      const auto digest = before->second.find(name);
      ASSERT_NE(digest, before->second.end()) << "the record has no " << name;
      ASSERT_EQ(digest->second, noted.digest())
          << name << " of play " << number << ", part " << part
          << ": the head of tests/support/plays.h says what to do";
    }
  }

  std::map<std::pair<unsigned, unsigned>, std::map<std::string, std::string>> before_;
};

}  // namespace switchyard::test_support
