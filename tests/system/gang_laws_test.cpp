// The laws of gangs that are ordered out at a bad moment: while their communicators are born, or
// while their monitor dies. No pause outlasts its end, no order stands, and every sum stays right.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "switchyard/status.h"
#include "tests/support/seeds.h"
#include "tests/system/gang_scene.h"
#include "tools/base/monitor_client.h"

namespace switchyard::system_tests {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A machine that is not loaded needs less. It is counted, and no limit.
constexpr milliseconds kPromptly{1000};
// A standstill that lasts longer would last for a minute, or for ever.
constexpr seconds kStands{40};
constexpr unsigned kGangsAtOnce = 4;

class GangLaws : public Gang {
 protected:
  static inline const Changes kSwappable = {{"SWITCHYARD_SWAPPABLE", "yes"}};

  tools::Result<json> tell(const json& request) {
    auto client = tools::MonitorClient::connect(socket());
    if (!client) return tools::Result<json>(client.error());
    return client->ask(request, kLimit);
  }
  tools::Result<json> tell(const char* op, const std::string& name) {
    return tell({{"op", op}, {"target", name}});
  }

  // How long the ranks still stood after `since`: until each of them has made another step.
  void go_on(const std::string& what, Ranks& ranks, Clock::time_point since) {
    const auto before = steps_of(ranks);
    const bool moved = eventually([&] {
      const auto now = steps_of(ranks);
      bool all = now.size() == before.size();
      for (std::size_t i = 0; i < now.size() && all; ++i) all = now[i] > before[i];
      return all;
    });
    EXPECT_TRUE(moved) << what;
    note(what, Clock::now() - since);
  }
  void note(const std::string& what, Clock::duration took) {
    EXPECT_LT(took, kStands) << what;
    const std::lock_guard lock(mutex_);
    longest_ = std::max(longest_, std::chrono::duration_cast<milliseconds>(took));
    if (took <= kPromptly) return;
    ++unusual_;
    std::printf("%s: %lld ms\n", what.c_str(),
                static_cast<long long>(std::chrono::duration_cast<milliseconds>(took).count()));
  }
  void report(unsigned gangs) const {
    std::printf("%u gangs, longest %lld ms, %u above %lld ms\n", gangs,
                static_cast<long long>(longest_.count()), unusual_,
                static_cast<long long>(kPromptly.count()));
  }

  std::mutex mutex_;
  milliseconds longest_{0};
  unsigned unusual_ = 0;
};

class GangsBorn : public GangLaws {
 protected:
  // Nothing was touched: there is no such job yet, or it has no memory, or one rank alone is known.
  static bool is_too_early(const tools::Result<json>& said) {
    return !said && (said.error().code == kNoSuchJobOrGpu ||
                     said.error().text.find("cannot be swapped out") != std::string::npos);
  }
  bool is_paused(const std::string& name) {
    const auto listed = tell({{"op", "ps"}});
    if (!listed) return false;
    const json& jobs = (*listed)["jobs"];
    return std::any_of(jobs.begin(), jobs.end(), [&](const json& job) {
      return job["name"] == name && job["state"] == "paused";
    });
  }
  // When what was ordered is over.
  Clock::time_point order_out(const std::string& name, unsigned seed) {
    std::mt19937 random(seed);
    const unsigned kind = seed % 3;
    json order = {{"op", kind == 0 ? "swap-out" : "pause"}, {"target", name}};
    if (kind != 0) order["release"] = true;
    if (kind == 1) order["timeout_seconds"] = 1;
    eventually([&] { return static_cast<bool>(tell({{"op", "resume"}, {"target", name}})); });
    std::this_thread::sleep_for(milliseconds(random() % 100));
    const milliseconds resumes(random() % 200);
    for (const auto began = Clock::now(); Clock::now() - began < kStands;) {
      const auto asked = Clock::now();
      auto answer = std::async(std::launch::async, [&] { return tell(order); });
      const auto is_there = [&](milliseconds limit) {
        return answer.wait_for(limit) == std::future_status::ready;
      };
      // A resume that overtakes its pause ends nothing.
      while (kind == 2 && !is_there(milliseconds(1)) && !is_paused(name)) {
      }
      const bool early = kind == 2 && !is_there(resumes);
      if (early) {
        EXPECT_TRUE(tell("resume", name));
      }
      const auto resumed = Clock::now();
      const auto said = answer.get();
      if (is_too_early(said)) continue;
      if (kind == 0) note("swap-out of " + name, Clock::now() - asked);
      if (kind == 1) return std::max(Clock::now(), asked + seconds(1));
      if (early) return resumed;
      EXPECT_TRUE(tell(kind == 0 ? "swap-in" : "resume", name));
      return resumed;
    }
    ADD_FAILURE() << name << " could not be ordered out";
    return Clock::now();
  }
  void is_born(unsigned seed) {
    const std::string name = "born-" + std::to_string(seed);
    Ranks ranks;
    start_each(name, ranks, 2, std::vector<Changes>(2 + seed % 2, kSwappable));
    for (Child& rank : ranks) EXPECT_TRUE(rank.write_line("begin"));
    const auto over = order_out(name, seed);
    for (const char* word : {"ready", "did begin"}) {
      for (Child& rank : ranks) ASSERT_EQ(line_of(rank), word) << name;
    }
    const auto born = Clock::now();
    EXPECT_LT(born - over, kStands) << name;
    go_on(name, ranks, std::max(over, born));
    expect_right_in_the_end(ranks);
  }
};

TEST_F(GangsBorn, OrderedOutMeanwhileTheyGoOn) {
  auto daemon = monitor({"--host-pool", "4GiB"}, two_gpus());
  const unsigned all = test_support::seeds(20);
  for (unsigned first = 0; first < all && !HasFailure(); first += kGangsAtOnce) {
    std::vector<std::thread> threads;
    for (unsigned seed = first; seed < std::min(all, first + kGangsAtOnce); ++seed) {
      threads.emplace_back([this, seed] { is_born(seed); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  report(all);
}

using GangsOrphaned = GangLaws;

TEST_F(GangsOrphaned, TheyGoOnOnceTheNextMonitorResumesThem) {
  const Words options{"--host-pool", "4GiB"};
  auto daemon = std::make_optional(monitor(options, two_gpus()));
  begin(4, 2, kSwappable);
  do_all("begin");
  const unsigned all = test_support::seeds(20);
  for (unsigned seed = 0; seed < all && !HasFailure(); ++seed) {
    std::mt19937 random(seed);
    auto answer = std::async(std::launch::async, [&] {
      return tell({{"op", "pause"}, {"target", "gang"}, {"release", true}});
    });
    std::this_thread::sleep_for(milliseconds(random() % 40));
    kill_and_wait(daemon->pid());
    answer.get();
    daemon.emplace(monitor(options, two_gpus()));
    ASSERT_TRUE(eventually([&] {
      const json job = job_named("gang");
      return job.is_object() && job["processes"].size() == ranks_.size();
    }));
    const auto over = Clock::now();
    ASSERT_TRUE(tell("resume", "gang"));
    go_on("death " + std::to_string(seed), ranks_, over);
  }
  expect_right_in_the_end(ranks_);
  report(all);
}

}  // namespace
}  // namespace switchyard::system_tests
