// Gangs that share two GPUs: turns of the GPUs and of their memory, granted whole.
#include "tests/system/gang_scene.h"

namespace switchyard::system_tests {
namespace {

class TwoGpusTwoGangs : public Gang {
 protected:
  void TearDown() override {
    other_.clear();
    Gang::TearDown();
  }
  void two_at_work(const Changes& changes = {}) {
    begin_as("gang", ranks_, 2, 2, changes);
    begin_as("other", other_, 2, 2, changes);
    for (Ranks* const each : {&ranks_, &other_}) ask_all(*each, "begin");
  }
  static bool all_above(const std::vector<long>& now, const std::vector<long>& before) {
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (now[i] <= before[i]) return false;
    }
    return true;
  }
  using Gang::ask_all;
  static Words ask_all(Ranks& ranks, const std::string& command) {
    return system_tests::ask_all(ranks, command);
  }
  // Both get on by so many steps.
  bool both_advance(long by) {
    auto one = steps_of(ranks_);
    auto two = steps_of(other_);
    for (long& steps : one) steps += by;
    for (long& steps : two) steps += by;
    return eventually([&] { return all_above(steps_of(ranks_), one); }) &&
           eventually([&] { return all_above(steps_of(other_), two); });
  }
  std::uint64_t moved_out(const char* name) {
    std::uint64_t bytes = 0;
    const json job = job_named(name);
    for (const json& gpu : job["gpus"]) {
      bytes += gpu.value("swap_moved_out_bytes", std::uint64_t{0});
    }
    return bytes;
  }
  void expect_both_right() {
    expect_right_in_the_end(ranks_);
    expect_right_in_the_end(other_);
  }

  Ranks other_;
};

TEST_F(TwoGpusTwoGangs, UnderExclusiveTurnsBothAdvanceAndComputeTheSame) {
  auto daemon = monitor({"--policy", "exclusive"}, two_gpus());
  two_at_work();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(both_advance(20)) << "round " << i;
  expect_both_right();
}

TEST_F(TwoGpusTwoGangs, OversubscribedBothAdvanceAndComputeTheSame) {
  // Each has 8 MiB that can move on each GPU, besides its context. One of the two fits.
  auto daemon = monitor({"--capacity", "28MiB"}, two_gpus());
  two_at_work({{"SWITCHYARD_OVERSUBSCRIBE", "yes"}});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(both_advance(2)) << "round " << i;
  EXPECT_GE(moved_out("gang") + moved_out("other"), 8 * kMiB) << "they took turns";
  expect_both_right();
}

TEST_F(TwoGpusTwoGangs, AnIdleGangIsReleasedAsAWholeAndComesBack) {
  auto daemon = monitor({}, two_gpus());
  begin(2, 2, {{"SWITCHYARD_IDLE_RELEASE", "0.3s"}});
  ask_all("reduce 3");
  ask_all("sync");
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(eventually([&] { return job_named("gang").value("residency", "") == "swapped"; }));
    const json job = job_named("gang");
    for (const json& gpu : job["gpus"]) {
      EXPECT_EQ(gpu.value("residency", "swapped"), "swapped") << gpu;
    }
    // One rank comes first, and waits for the other on its GPU.
    EXPECT_TRUE(rank(0).write_line("reduce 1"));
    EXPECT_TRUE(rank(1).write_line("reduce 1"));
    EXPECT_EQ(line_of(rank(0)), "did reduce");
    EXPECT_EQ(line_of(rank(1)), "did reduce");
    ask_all("sync");
    EXPECT_EQ(job_named("gang").value("residency", ""), "resident");
  }
  ask_all("begin");
  expect_right_in_the_end(ranks_);
}

}  // namespace
}  // namespace switchyard::system_tests
