// Machines of 4 to 16 GPUs: gangs of all of them, gangs that overlap, many ranks, and commands at
// random.
#include <deque>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>
#include <utility>

#include "switchyard/status.h"
#include "tests/support/seeds.h"
#include "tests/system/gang_scene.h"
#include "tools/base/monitor_client.h"
#include "tools/base/terminal.h"

namespace switchyard::system_tests {
namespace {

using std::chrono::milliseconds;

const Changes kSwappable = {{"SWITCHYARD_SWAPPABLE", "yes"}};
const Changes kOversubscribe = {{"SWITCHYARD_OVERSUBSCRIBE", "yes"}};

class Machine : public Gang {
 protected:
  struct Job {
    std::string name;
    Ranks ranks;
  };

  void TearDown() override {
    jobs_.clear();
    Gang::TearDown();
  }
  void of_gpus(int gpus, const Words& options = {}) {
    gpus_ = gpus;
    owner_.emplace(monitor(options, {{"FAKECUDA_DEVICES", std::to_string(gpus)}}));
  }
  // A job with a rank on each of these GPUs.
  void add(const std::string& name, const std::vector<int>& on, const Changes& more = {}) {
    std::vector<Changes> changes;
    for (const int gpu : on) {
      changes.push_back(more);
      changes.back().emplace_back("CUDA_VISIBLE_DEVICES", std::to_string(gpu));
    }
    jobs_.push_back({name, {}});
    start_each(name, jobs_.back().ranks, gpus_, changes);
  }
  std::vector<int> some(int first, int count) const {
    std::vector<int> out(static_cast<std::size_t>(count));
    std::iota(out.begin(), out.end(), first);
    for (int& gpu : out) gpu %= gpus_;
    return out;
  }
  std::vector<int> all() const { return some(0, gpus_); }
  void begin_all() {
    for (Job& job : jobs_) {
      for (Child& rank : job.ranks) ASSERT_EQ(line_of(rank), "ready") << job.name;
    }
    for (Job& job : jobs_) system_tests::ask_all(job.ranks, "begin");
  }
  // Each rank of each job makes so many more steps.
  bool all_advance(long by) {
    std::vector<std::vector<long>> wanted;
    for (Job& job : jobs_) {
      wanted.push_back(steps_of(job.ranks));
      for (long& steps : wanted.back()) steps += by;
    }
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      const bool advanced = eventually([&] {
        const auto now = steps_of(jobs_[i].ranks);
        return std::equal(now.begin(), now.end(), wanted[i].begin(), std::greater_equal<>());
      });
      if (advanced) continue;
      ADD_FAILURE() << jobs_[i].name << " stands: " << job_named(jobs_[i].name);
      return false;
    }
    return true;
  }
  void expect_all_right() {
    for (Job& job : jobs_) {
      SCOPED_TRACE(job.name);
      expect_right_in_the_end(job.ranks);
    }
  }
  // Out and back, at work; while it is out, no rank makes a step.
  void disturb(Job& job, const char* out, const char* back) {
    const auto said = cli({out, job.name});
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.err, "") << "it is no best effort";
    // Steps that the GPU has made may be told a moment later.
    auto before = steps_of(job.ranks);
    EXPECT_TRUE(eventually([&] {
      std::this_thread::sleep_for(milliseconds(20));
      const auto last = std::exchange(before, steps_of(job.ranks));
      return last == before;
    })) << out;
    const auto again = cli({back, job.name});
    ASSERT_EQ(again.status, 0) << again.err;
  }
  void expect_fits_a_screen(const Words& command) {
    const auto said = cli(command, {{"COLUMNS", "80"}, {"LC_ALL", "C.UTF-8"}});
    EXPECT_EQ(said.status, 0) << said.err;
    std::istringstream text(said.out);
    std::size_t count = 0;
    for (std::string line; std::getline(text, line); ++count) {
      EXPECT_LE(tools::width_of(line), 80u) << line;
    }
    EXPECT_LE(count, 24u) << said.out;
    for (const Job& job : jobs_) EXPECT_NE(said.out.find(job.name), std::string::npos) << said.out;
  }
  std::uint64_t moved_out(const std::string& name) {
    std::uint64_t bytes = 0;
    const json job = job_named(name);
    for (const json& gpu : job["gpus"]) bytes += gpu.value("swap_moved_out_bytes", 0ull);
    return bytes;
  }

  int gpus_ = 0;
  std::optional<Child> owner_;
  std::deque<Job> jobs_;
};

class MachineOf : public Machine, public ::testing::WithParamInterface<int> {};

TEST_P(MachineOf, AGangOfAllGpusIsPausedAndSwappedAtWorkAndComputesTheSame) {
  of_gpus(GetParam());
  add("gang", all(), kSwappable);
  begin_all();
  for (int i = 0; i < 3; ++i) {
    disturb(jobs_[0], "pause", "resume");
    ASSERT_TRUE(all_advance(1));
    disturb(jobs_[0], "swap-out", "swap-in");
    ASSERT_TRUE(all_advance(1));
  }
  EXPECT_EQ(job_named("gang")["gpus"].size(), static_cast<std::size_t>(GetParam()));
  expect_all_right();
}

TEST_P(MachineOf, TwoGangsOfAllGpusTakeTurns) {
  of_gpus(GetParam(), {"--policy", "exclusive"});
  add("left", all());
  add("right", all());
  begin_all();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(all_advance(10));
  expect_all_right();
}

// The host pool of 32 ranks would take 8 GiB.
class MachineThatIsShort : public MachineOf {};

TEST_P(MachineThatIsShort, TwoGangsOfAllGpusAlternate) {
  // On each GPU two contexts of 8 MiB, and of twice 8 MiB of memory one and a half.
  of_gpus(GetParam(), {"--capacity", "28MiB"});
  add("left", all(), kOversubscribe);
  add("right", all(), kOversubscribe);
  begin_all();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(all_advance(2));
  EXPECT_GT(moved_out("left") + moved_out("right"), 0u) << "they took turns";
  expect_all_right();
}

INSTANTIATE_TEST_SUITE_P(Gpus, MachineThatIsShort, ::testing::Values(4, 8),
                         ::testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Gpus, MachineOf, ::testing::Values(4, 8, 16),
                         ::testing::PrintToStringParamName());

// GPUs 0 to 3 beside 2 to 5, and jobs of their own on a GPU of each part.
TEST_F(Machine, GangsThatOverlapAndSingleJobsAllAdvance) {
  of_gpus(8, {"--policy", "exclusive"});
  add("left", some(0, 4));
  add("right", some(2, 4));
  for (const int gpu : {0, 3, 4, 7}) add("single-" + std::to_string(gpu), {gpu});
  begin_all();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(all_advance(5));
  expect_all_right();
}

// The host pool would take 256 MiB for each rank, so these are not swappable.
TEST_F(Machine, SixtyFourRanksOfEightJobsArePausedAndFitAScreen) {
  of_gpus(16);
  for (int i = 0; i < 8; ++i) add("job-" + std::to_string(i), some(2 * i, 8));
  begin_all();
  for (const char* command : {"pause", "resume"}) {
    Words words{command};
    for (const Job& job : jobs_) words.push_back(job.name);
    const auto said = cli(words);
    ASSERT_EQ(said.status, 0) << said.err;
    EXPECT_EQ(said.err, "") << "it is no best effort";
  }
  ASSERT_TRUE(all_advance(1));
  expect_fits_a_screen({"ps"});
  expect_fits_a_screen({"stats", "--interval", "10ms"});
  expect_all_right();
}

TEST_F(Machine, AGangOfMoreThanSixtyFourRanksIsPaused) {
  of_gpus(16);
  std::vector<int> on;
  for (int rank = 0; rank < 72; ++rank) on.push_back(rank % gpus_);
  add("gang", on);
  begin_all();
  ASSERT_TRUE(all_advance(1));
  EXPECT_EQ(job_named("gang")["communicators"][0]["ranks"].size(), 72u);
  disturb(jobs_[0], "pause", "resume");
  ASSERT_TRUE(all_advance(1));
  expect_all_right();
}

// Two gangs of all GPUs, disturbed at random: none stands still, and each computes the same.
class MachineAtRandom : public Machine {
 protected:
  void tell(json request) {
    auto client = tools::MonitorClient::connect(socket());
    ASSERT_TRUE(client) << client.error().text;
    const auto said = client->ask(request, kLimit);
    EXPECT_TRUE(said) << request << ": " << (said ? "" : said.error().text);
  }
  void order(const char* op, const std::string& name) { tell({{"op", op}, {"target", name}}); }
  void one(std::mt19937& random) {
    const auto choose = [&](std::initializer_list<const char*> words) {
      return *(words.begin() + random() % words.size());
    };
    const std::string name = jobs_[random() % jobs_.size()].name;
    const auto nap = [&] { std::this_thread::sleep_for(milliseconds(random() % 60)); };
    switch (random() % 4) {
      case 0:
        order("pause", name);
        nap();
        return order("resume", name);
      case 1:
        order("swap-out", name);
        nap();
        return order("swap-in", name);
      case 2:
        return tell(
            {{"op", "set"}, {"target", name}, {"priority", choose({"high", "normal", "low"})}});
      default:
        return tell({{"op", "policy"}, {"policy", choose({"priority", "fair", "exclusive"})}});
    }
  }
};

TEST_F(MachineAtRandom, TwoGangsOfAllGpusGoOnAndComputeTheSame) {
  of_gpus(4);
  add("left", all(), kSwappable);
  add("right", all(), kSwappable);
  begin_all();
  const unsigned rounds = test_support::seeds(3);
  for (unsigned seed = 0; seed < rounds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int i = 0; i < 10 && !HasFailure(); ++i) one(random);
    ASSERT_TRUE(all_advance(1));
  }
  expect_all_right();
}

}  // namespace
}  // namespace switchyard::system_tests
