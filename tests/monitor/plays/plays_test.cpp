// Plays: the whole monitor among processes that do anything, beside commands that come at any time.
//
// Concept. Laws say what must never be. A play says nothing of the kind: it notes all that the
// monitor does, and record.txt holds what it did before. So a change with an effect that nobody
// meant fails here, however small the effect is. A change that is meant renews the record in the
// same commit. This command writes a record.txt into an empty FOLDER, and the whole text of each
// play:
//
//   SWITCHYARD_PLAYS=FOLDER build/monitor_test --gtest_filter='Plays.*'
//
// Let the version before write into another folder, and compare the two. The first line that
// differs shows the change.
//
// The columns are told apart: the words of pages (orders), answers to people (listing), events, and
// the ledger and metrics (bills). A new field of a listing leaves the others as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/monitor/plays/play.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

constexpr unsigned kPlays = 3;  // of each theme
constexpr unsigned kParts = 8;
constexpr unsigned kSteps = 150;  // of each part

// By play and part.
using Record = std::map<std::pair<unsigned, unsigned>, std::vector<std::string>>;

Record kept() {
  Record out;
  std::ifstream file(SWITCHYARD_RECORD);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream words(line);
    unsigned seed = 0, part = 0;
    std::vector<std::string> digests(kColumns);
    words >> seed >> part;
    for (std::string& each : digests) words >> each;
    out[{seed, part}] = digests;
  }
  return out;
}

void keep(unsigned seed, const Record& record, const Play& play) {
  const std::string where = std::string(folder()) + "/";
  const bool goes_on = std::ifstream(where + "record.txt").good();
  std::ofstream file(where + "record.txt", std::ios::app);
  if (!goes_on) file << "# play part orders listing events bills\n";
  for (const auto& [key, digests] : record) {
    file << key.first << ' ' << key.second;
    for (const std::string& each : digests) file << ' ' << each;
    file << '\n';
  }
  for (unsigned column = 0; column < kColumns; ++column) {
    std::ofstream(where + std::to_string(seed) + "." + kNames[column])
        << play.watcher().text(static_cast<Column>(column));
  }
}

// What comes after the first difference differs, too.
void expect(const Record& before, const Record& record, unsigned seed, unsigned column) {
  for (const auto& [key, digests] : record) {
    const auto found = before.find(key);
    ASSERT_NE(found, before.end()) << "the record lacks play " << seed;
    ASSERT_EQ(found->second[column], digests[column])
        << kNames[column] << " of play " << seed << ", steps " << key.second * kSteps << " to "
        << (key.second + 1) * kSteps << ": the head of this file says what to do";
  }
}

// Of one theme: each in a test of its own, so that they run beside each other.
void expect_as_recorded(Play::Theme theme) {
  const Record before = kept();
  for (unsigned i = 0; i < std::min(kPlays, test_support::seeds(kPlays)); ++i) {
    const unsigned seed = theme + i * Play::kThemes;
    Play play(seed);
    Record record;
    for (unsigned part = 0; part < kParts; ++part) {
      for (unsigned step = 0; step < kSteps; ++step) play.step();
      record[{seed, part}] = play.watcher().digests();
    }
    if (folder() != nullptr) {
      keep(seed, record, play);
      continue;
    }
    for (unsigned column = 0; column < kColumns; ++column) expect(before, record, seed, column);
  }
}

TEST(Plays, OfACrowd) { expect_as_recorded(Play::kCrowd); }
TEST(Plays, OfMoves) { expect_as_recorded(Play::kMoves); }
TEST(Plays, OfGangs) { expect_as_recorded(Play::kGangs); }
TEST(Plays, OfGuards) { expect_as_recorded(Play::kGuards); }
TEST(Plays, OfAll) { expect_as_recorded(Play::kAll); }
TEST(Plays, OfIslands) { expect_as_recorded(Play::kIslands); }
TEST(Plays, OfCaps) { expect_as_recorded(Play::kCaps); }

}  // namespace
}  // namespace switchyard::monitor::test
