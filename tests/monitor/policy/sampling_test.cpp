// The part that each has where no gate is armed, found by windows in which all are watched.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/monitor/policy/policy_rig.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Jobs that number their work while they are watched, as the library does: not what they launched
// before. The monitor looks when it wants to, and at least every 100 ms.
class SampledTime : public ::testing::Test {
 protected:
  struct Got {
    double had_ns = 0, lost_ns = 0;
    bool known = true;    // at each look
    bool divided = true;  // whenever it had something
  };
  using IsBusy = std::function<bool(std::size_t, Time)>;

  void SetUp() override { loop.snapshot.rules.slices = loop.snapshot.rules.gates = true; }
  void add(double weight = 1, Priority priority = Priority::kNormal) {
    loop.snapshot.clients.push_back(client(loop.snapshot.clients.size() + 1, priority, weight));
  }
  // So long; `busy` says who has work at a moment. Answers with the sums that each was told.
  std::vector<Got> pass(Time span, const IsBusy& busy) {
    std::vector<Got> out(loop.snapshot.clients.size());
    Time due = loop.now;
    for (const Time end = loop.now + span; loop.now < end; loop.now += kStep) {
      for (std::size_t i = 0; i < out.size(); ++i) look_like(i, busy(i, loop.now));
      if (loop.now >= due) due = look(out);
      if (in_window()) window_time += kStep;
    }
    return out;
  }
  static bool always(std::size_t, Time) { return true; }

  EventLoop loop;
  Time slice{0};        // in which each launches in turn; 0: all do at any time
  Time window_time{0};  // in which somebody was watched for the sample alone
  bool high_was_asked = false;

 private:
  static constexpr Time kStep = milliseconds(5);
  std::vector<bool> has_number;  // since it is watched

  // When to look again.
  Time look(std::vector<Got>& out) {
    const Plan plan = loop.decide();
    for (std::size_t i = 0; i < out.size(); ++i) {
      const ClientView& view = loop[i];
      add_to(out[i], plan.clients[i]);
      const bool asked = loop.state.clients[view.client].only_sampled;
      high_was_asked = high_was_asked || (asked && view.priority == Priority::kHigh);
    }
    const Time longest = loop.now + milliseconds(100);
    return plan.look_again == Time{0} ? longest : std::min(longest, plan.look_again);
  }

  bool in_window() const {
    return std::any_of(loop.state.clients.begin(), loop.state.clients.end(),
                       [](const auto& each) { return each.second.only_sampled; });
  }
  void look_like(std::size_t at, bool busy) {
    ClientView& view = loop[at];
    const bool launches = busy && has_slice(at);
    if (launches) ++view.work;
    view.numbered = loop.state.clients[view.client].watched;
    has_number.resize(loop.snapshot.clients.size());
    has_number[at] = view.numbered && (has_number[at] || launches);
    view.busy = view.numbered ? busy && has_number[at] : launches;
    if (view.numbered && launches) ++view.progress;
  }
  bool has_slice(std::size_t at) const {
    if (slice == Time{0}) return true;
    const auto count = static_cast<Time::rep>(loop.snapshot.clients.size());
    return loop.now / slice % count == static_cast<Time::rep>(at);
  }
  static void add_to(Got& got, const ClientPlan& plan) {
    got.known = got.known && plan.had_ns >= 0;
    got.had_ns += std::max(plan.had_ns, 0.0);
    got.lost_ns += plan.lost_ns;
    if (plan.had_ns > 0) got.divided = got.divided && plan.divided;
  }
};

TEST_F(SampledTime, EachOfEightEqualJobsHasAnEighth) {
  for (int i = 0; i < 8; ++i) add();
  pass(seconds(1), always);
  for (const Got& got : pass(seconds(10), always)) {
    EXPECT_TRUE(got.known && got.divided);
    EXPECT_NEAR(got.had_ns, 10e9 / 8, 0.01 * 10e9 / 8 + 100e6 / 8);
    EXPECT_NEAR(got.lost_ns, 10e9 * 7 / 8, 0.01 * 10e9);
  }
}

TEST_F(SampledTime, JobsThatLaunchInTheirOwnSliceAloneHaveAsMuch) {
  for (int i = 0; i < 8; ++i) add();
  slice = milliseconds(25);
  pass(seconds(2), always);
  for (const Got& got : pass(seconds(20), always)) {
    EXPECT_NEAR(got.had_ns, 20e9 / 8, 0.02 * 20e9 / 8 + 100e6);
  }
}

TEST_F(SampledTime, WeightsAreKnown) {
  add(4);
  add(1);
  pass(seconds(1), always);
  const std::vector<Got> got = pass(seconds(10), always);
  EXPECT_NEAR(got[0].had_ns, 8e9, 0.1e9);
  EXPECT_NEAR(got[1].had_ns, 2e9, 0.1e9);
}

TEST_F(SampledTime, OneThatWorksNowAndThenHasAPart) {
  add();
  add();
  // Three of ten milliseconds, and half of these.
  const auto busy = [](std::size_t at, Time now) {
    return at == 0 || (now % milliseconds(50)) < milliseconds(15);
  };
  pass(seconds(1), busy);
  const std::vector<Got> got = pass(seconds(60), busy);
  EXPECT_NEAR(got[1].had_ns, 60e9 * 0.15, 60e9 * 0.03);
  EXPECT_NEAR(got[0].had_ns + got[1].had_ns, 60e9, 1e9);
}

TEST_F(SampledTime, OneThatEndsItsWorkHasNoMoreOfIt) {
  add();
  add();
  pass(seconds(6), always);
  const auto one = [](std::size_t at, Time) { return at == 0; };
  EXPECT_LT(pass(seconds(10), one)[1].had_ns, 0.1e9);
}

TEST_F(SampledTime, TakesATwentiethOfTheTime) {
  for (int i = 0; i < 3; ++i) add();
  pass(seconds(10), always);
  window_time = Time{0};
  pass(seconds(100), always);
  EXPECT_GT(window_time, seconds(3));
  EXPECT_LT(window_time, seconds(6));
}

TEST_F(SampledTime, JobsThatComeAndGoAreWatchedAtMostAQuarterOfTheTime) {
  for (int i = 0; i < 6; ++i) add();
  // Another set of them each time that one counts as idle.
  const auto busy = [](std::size_t at, Time now) {
    return (static_cast<std::uint64_t>(now / seconds(3)) * 7 + at * 5) % 3 != 0;
  };
  pass(seconds(100), busy);
  EXPECT_LT(window_time, seconds(25));
}

TEST_F(SampledTime, NobodyIsWatchedAlone) {
  add();
  pass(seconds(10), always);
  EXPECT_EQ(window_time, Time{0});
}

TEST_F(SampledTime, AHighJobIsNotAsked) {
  add(1, Priority::kHigh);
  add(1, Priority::kLow);
  const auto busy = [](std::size_t at, Time now) {
    return at == 1 || now % milliseconds(100) < milliseconds(10);
  };
  pass(seconds(2), busy);
  const std::vector<Got> got = pass(seconds(10), busy);
  EXPECT_FALSE(high_was_asked);
  EXPECT_TRUE(got[1].known);
  EXPECT_NEAR(got[1].had_ns, 9e9, 0.5e9);
}

TEST_F(SampledTime, NothingIsKnownWithoutGates) {
  loop.snapshot.rules.gates = false;
  add();
  add();
  EXPECT_FALSE(pass(seconds(10), always)[0].known);
  EXPECT_EQ(window_time, Time{0});
}

}  // namespace
}  // namespace switchyard::monitor::policy
