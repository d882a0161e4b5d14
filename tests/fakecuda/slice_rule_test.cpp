// The rule of the engine against the table measured on an H200, with a made-up clock.
#include "slice_rule.h"

#include <gtest/gtest.h>

#include <vector>

namespace fakecuda {
namespace {

constexpr double kKernelUs = 1e6 / 9455;  // one alone: 9455 kernels a second

struct Player {
  std::uint32_t slice_us;
  double kernels = 0;
};

// Plays `seconds` of groups that always have work, and fills in their kernels a second.
void play(std::vector<Player>& players, double seconds) {
  const auto kernel_ns = static_cast<std::uint64_t>(kKernelUs * 1000);
  std::vector<std::uint64_t> left(players.size(), kernel_ns), done(players.size(), 0);
  const auto end_ns = static_cast<std::uint64_t>(seconds * 1e9);
  int holder = 0;
  Turn turn;
  for (std::uint64_t clock = 0; clock < end_ns;) {
    const auto h = static_cast<std::size_t>(holder);
    turn.slice_ns = players[h].slice_us * kUs;
    const std::uint64_t step = run_for(turn, left[h]);
    clock += step;
    left[h] -= step;
    if (left[h] == 0) {
      ++done[h];
      left[h] = kernel_ns;
    }
    if (!used_up(turn, step, players.size() > 1)) continue;
    const int to = next_group(holder, static_cast<int>(players.size()), [](int) { return true; });
    clock += switch_cost_ns(kCompute, players[h].slice_us,
                            players[static_cast<std::size_t>(to)].slice_us, true);
    holder = to;
  }
  for (std::size_t i = 0; i < players.size(); ++i) {
    players[i].kernels = static_cast<double>(done[i]) / seconds;
  }
}

struct Row {
  std::uint32_t slice_a, slice_b;
  double kernels_a, kernels_b;
};

class MeasuredTable : public testing::TestWithParam<Row> {};

TEST_P(MeasuredTable, IsReproducedWithinFivePercent) {
  const Row row = GetParam();
  std::vector<Player> players{{row.slice_a}, {row.slice_b}};
  play(players, 60);
  EXPECT_NEAR(players[0].kernels / row.kernels_a, 1, 0.05);
  EXPECT_NEAR(players[1].kernels / row.kernels_b, 1, 0.05);
  EXPECT_NEAR((players[0].kernels + players[1].kernels) / (row.kernels_a + row.kernels_b), 1, 0.02);
}

INSTANTIATE_TEST_SUITE_P(TwoSaturatingProcesses, MeasuredTable,
                         testing::Values(Row{2048, 2048, 4275, 4272}, Row{10000, 10000, 4615, 4641},
                                         Row{50000, 50000, 4668, 4753}, Row{8000, 2000, 7278, 1805},
                                         Row{20000, 5000, 7435, 1866}, Row{30000, 1000, 9029, 308},
                                         Row{200, 200, 2038, 2019}),
                         [](const auto& param) {
                           return "Slices" + std::to_string(param.param.slice_a) + "And" +
                                  std::to_string(param.param.slice_b);
                         });

TEST(SliceRule, OneAloneLosesNothing) {
  std::vector<Player> players{{20}};
  play(players, 10);
  EXPECT_NEAR(players[0].kernels, 9455, 10);
}

TEST(SliceRule, TwoShortSlicesStandStill) {
  std::vector<Player> players{{20}, {20}, {20}};
  play(players, 10);
  for (const Player& player : players) EXPECT_LT(player.kernels, 9455.0 / 3 * 0.01);
}

TEST(SliceRule, OneShortSliceBesideALongOneIsNearlyFree) {
  std::vector<Player> players{{10000}, {20}};
  play(players, 10);
  EXPECT_GT(players[0].kernels, 9455 * 0.94);
}

TEST(SliceRule, RoundRobinSkipsWhoHasNothing) {
  const bool runnable[] = {true, false, true, true};
  auto ask = [&](int i) { return runnable[i]; };
  EXPECT_EQ(2, next_group(0, 4, ask));
  EXPECT_EQ(3, next_group(2, 4, ask));
  EXPECT_EQ(0, next_group(3, 4, ask));
  EXPECT_EQ(-1, next_group(0, 1, ask));
}

TEST(SliceRule, CopyEnginesSwitchCheaply) {
  EXPECT_LT(switch_cost_ns(kCopyIn, 2048, 2048, true), 10 * kUs);
}

}  // namespace
}  // namespace fakecuda
