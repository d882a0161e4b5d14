// The laws of jobs that oversubscribe, with real processes, whatever the host pool is and whichever
// is killed. Each request is answered in time, each job goes on, and every word stays right.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <list>
#include <random>
#include <string>
#include <utility>

#include "tests/support/seeds.h"
#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// On a machine that is not loaded, all waits are below this. It is counted, and no limit: a
// residency period is some times what a move takes, so a slow machine has long ones.
constexpr seconds kUsual{20};
// Each of the three others has its residency period of at most 25 s, and moves.
constexpr seconds kBound{90};
constexpr milliseconds kKillEvery{1500};
constexpr unsigned kKills = 3;

// A job that grows to `target` MiB, works all the while and says how far it is.
struct Player {
  Child job;
  unsigned target = 0;
  unsigned has = 0;
  unsigned asks = 0;
  bool working = false;
  bool refused = false;
  std::string sent = {};  // what it has not answered yet
  Clock::time_point sent_at = {};
  std::string count = {};
  Clock::time_point count_since = {};  // it has not launched anything since
};

class Crowd : public Scene {
 protected:
  void TearDown() override {
    players_.clear();
    Scene::TearDown();
  }

  // 1.8 times what the GPU has, as long as nobody is refused.
  void run_law(const std::string& pool, unsigned seed) {
    SCOPED_TRACE("host pool " + pool + ", seed " + std::to_string(seed));
    random_.seed(seed);
    const Child owner = monitor({"--host-pool", pool, "--capacity", "1000MiB", "--stay-moves", "5"},
                                {{"FAKECUDA_MEMORY", "1100MiB"}});
    for (const unsigned target : {350u, 500u, 700u, 250u}) comes(target);
    for (unsigned kills = 0; kills <= kKills && !HasFailure(); ++kills) {
      const auto next = Clock::now() + kKillEvery;
      while (Clock::now() < next && !HasFailure()) step_all();
      if (kills < kKills) kill_one();
    }
    for (Player& player : players_) finish(player);
    players_.clear();
    EXPECT_GT(served_, 0u);
  }

  void report() const {
    const auto longest = std::chrono::duration_cast<milliseconds>(longest_);
    std::printf("served %u, refused %u, longest wait %lld ms, %u above %lld s\n", served_, refused_,
                static_cast<long long>(longest.count()), unusual_,
                static_cast<long long>(kUsual.count()));
  }

  unsigned served_ = 0, refused_ = 0, unusual_ = 0;
  Clock::duration longest_{};

 private:
  unsigned upto(unsigned most) { return std::uniform_int_distribution<unsigned>(0, most)(random_); }
  void comes(unsigned target) {
    const std::string name = "p" + std::to_string(++names_);
    players_.push_back(
        {job({"--name", name, "--oversubscribe"},
             {built("tests/jobs/job_swap"), std::to_string(4u << 20)}, {{"FAKECUDA_PATTERN", "1"}}),
         target});
    ASSERT_EQ(line_of(players_.back().job), "ready");
  }
  void kill_one() {
    const auto last = static_cast<unsigned>(players_.size() - 1);
    const auto player = std::next(players_.begin(), upto(last));
    const unsigned target = player->target;
    ::kill(player->job.pid(), SIGKILL);
    players_.erase(player);
    comes(target);
  }

  void step_all() {
    for (Player& player : players_) {
      if (player.sent.empty()) say(player, next_command(player));
      hear(player);
    }
  }
  std::string next_command(Player& player) {
    if (!player.working) return "begin";
    if (player.has >= player.target || player.refused || upto(3) != 0) return "count";
    player.asks = std::min(20 + upto(100), player.target - player.has);
    return "alloc " + std::to_string(std::uint64_t{player.asks} << 20);
  }
  static void say(Player& player, const std::string& command) {
    player.sent = command;
    player.sent_at = Clock::now();
    EXPECT_TRUE(player.job.write_line(command));
  }
  // Its answer, if there is one yet.
  void hear(Player& player) {
    std::string said;
    const bool answered = player.job.read_line(said, milliseconds(10));
    const auto now = Clock::now();
    longest_ = std::max(longest_, now - player.sent_at);
    ASSERT_LE(now - player.sent_at, kBound) << player.sent;
    if (!answered) return;
    if (now - player.sent_at > kUsual) ++unusual_;
    const std::string command = std::exchange(player.sent, "");
    if (command == "begin") {
      player.working = true;
      player.count_since = now;
    } else if (command == "count") {
      if (player.count != said) player.count_since = now;
      player.count = said;
      longest_ = std::max(longest_, now - player.count_since);
      ASSERT_LE(now - player.count_since, kBound) << "it stands still";
    } else {
      player.working = false;  // until the next "begin"
      player.refused = said.rfind("did", 0) != 0;
      if (player.refused) {
        EXPECT_EQ(said, "failed alloc 2");
      } else {
        player.has += player.asks;
      }
      ++(player.refused ? refused_ : served_);
    }
  }
  void finish(Player& player) {
    while (!player.sent.empty() && !HasFatalFailure()) hear(player);
    EXPECT_EQ(ask(player.job, "end"), "did end");
    EXPECT_EQ(ask(player.job, "check"), "right");
    const Child::End end = player.job.finish(kLimit);
    EXPECT_EQ(end.err.find("refused") != std::string::npos, player.refused) << end.err;
  }

  std::list<Player> players_;
  std::mt19937 random_;
  unsigned names_ = 0;
};

// They want 1.8 times what the GPU has. How many are refused depends on how far they get between
// two kills.
TEST_F(Crowd, OfAPoolOfAQuarterEachIsServedOrRefusedWithTheReason) {
  for (unsigned seed = 1; seed <= test_support::seeds(1) && !HasFailure(); ++seed)
    run_law("450MiB", seed);
  report();
}

// The memory that all of them lack together fits into it, an eighth of waste and a slab for each.
TEST_F(Crowd, OfAPoolThatHoldsWhatTheyLackEachHasItsTurns) {
  for (unsigned seed = 1; seed <= test_support::seeds(1) && !HasFailure(); ++seed)
    run_law("2304MiB", seed);
  EXPECT_EQ(refused_, 0u);
  report();
}

}  // namespace
}  // namespace switchyard::system_tests
