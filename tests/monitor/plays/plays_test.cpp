// Plays: the whole monitor among processes that do anything, beside commands that come at any time.
// record.txt is renewed (tests/support/plays.h) by
//
//   SWITCHYARD_PLAYS=FOLDER build/monitor_test --gtest_filter='Plays.*'
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/monitor/plays/play.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

constexpr unsigned kPlays = 3;  // of each theme
constexpr unsigned kParts = test_support::kSanitized ? 3 : 8;
constexpr unsigned kSteps = 150;  // of each part

// Each theme is a test of its own, so that they run beside each other.
void play(Play::Theme theme) {
  const test_support::PlayRecord record(SWITCHYARD_RECORD);
  for (unsigned i = 0; i < std::min(kPlays, test_support::seeds(kPlays)); ++i) {
    const unsigned number = theme + i * Play::kThemes;
    Play play(number);
    record.hold_against(play, number, kParts, kSteps);
  }
}

TEST(Plays, OfACrowd) { play(Play::kCrowd); }
TEST(Plays, OfMoves) { play(Play::kMoves); }
TEST(Plays, OfGangs) { play(Play::kGangs); }
TEST(Plays, OfGuards) { play(Play::kGuards); }
TEST(Plays, OfAll) { play(Play::kAll); }
TEST(Plays, OfIslands) { play(Play::kIslands); }
TEST(Plays, OfCaps) { play(Play::kCaps); }

}  // namespace
}  // namespace switchyard::monitor::test
