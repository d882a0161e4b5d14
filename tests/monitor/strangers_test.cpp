// What one user's clients cost who claim all that a page can say: units of work, and memory.
#include <gtest/gtest.h>
#include <malloc.h>

#include <bit>
#include <functional>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

constexpr uid_t kStranger = 4711;
constexpr std::uint32_t kSend = 9;

// One page after the other, filled with all that a process may claim.
class Liar {
 public:
  Liar(Joined joined, std::uint32_t rank, std::uint32_t ranks, std::uint64_t first_id = 1)
      : joined_(std::move(joined)), rank_(rank) {
    joined_.client->page->drop_sent();
    abi::Page& page = joined_.shim.page();
    for (unsigned slot = 0; slot < abi::kMostCommunicators; ++slot) {
      joined_.shim.joins_communicator(first_id + slot, rank, ranks, slot).last_kind = kSend;
    }
    joined_.shim.open_context();
    joined_.shim.swappable(~0ull);
    page.residencies[0].host_bytes = ~0ull;
  }
  // The next launches of it, as far as its rings go.
  void go_on() {
    abi::Page& page = joined_.shim.page();
    // The others are late.
    for (abi::Communicator& each : page.communicators) each.launched += rank_ % 3 == 0 ? 1 : 0;
    for (unsigned i = 0; i < abi::kRecords; ++i) {
      const unsigned slot = i % abi::kMostCommunicators;
      put(page.records[i], page.process.recorded + i + 1, abi::collective_record(slot, kSend, i));
    }
    for (unsigned i = 0; i < abi::kTimings; ++i) {
      put(page.timings[i], page.process.timed + i + 1, abi::collective_record(0, 1, i));
    }
    for (unsigned i = 0; i < abi::kNorms; ++i) {
      abi::Norm& at = page.norms[i];
      at.what = abi::kNormSummed | i % abi::kMostCommunicators;
      at.launched = ++told_;
      at.elements = told_;
      at.before = at.after = std::bit_cast<std::uint64_t>(1.0);
      at.number = page.process.normed + i + 1;
    }
    page.process.recorded += abi::kRecords;
    page.process.timed += abi::kTimings;
    page.process.normed += abi::kNorms;
  }
  ClientId id() const { return joined_.id; }
  const Joined& joined() const { return joined_; }

 private:
  static void put(abi::Record& at, std::uint32_t number, std::uint32_t what) {
    at.what = what;
    at.bytes = number;
    at.number = number;
  }

  Joined joined_;
  std::uint32_t rank_;
  std::uint64_t told_ = 0;
};

struct StrangersThatClaim : ::testing::Test {
  // So many, of so many jobs.
  void come(std::size_t clients, std::size_t jobs, bool adapts = true) {
    for (std::size_t i = 0; i < clients; ++i) {
      const std::string name = "liar-" + std::to_string(i % jobs);
      const auto rank = static_cast<std::uint32_t>(i / jobs);
      all.emplace_back(rig.join({.job = name,
                                 .name = name,
                                 .share = adapts ? "auto" : "1",
                                 .oversubscribe = "yes",
                                 .guard = adapts ? "1%" : "",
                                 .gradient_noise = "yes"},
                                kStranger),
                       rank, 4096, 1 + abi::kMostCommunicators * (i % jobs));
    }
  }
  void go() {
    for (const Liar& each : all) rig.monitor.died(each.id());
    all.clear();
    tick();
  }
  // What a tick and a look cost, once all that is late is told.
  std::uint64_t units() {
    for (int i = 0; i < 25; ++i) tick();
    const std::uint64_t before = rig.monitor.work();
    tick();
    return rig.monitor.work() - before;
  }
  void tick() {
    for (Liar& each : all) each.go_on();
    rig.pass(milliseconds(200));
  }

  Rig rig{2};
  std::vector<Liar> all;
};

// Four times as many must not cost sixteen times as much.
std::uint64_t units_of(std::size_t clients, std::size_t jobs) {
  struct Some : StrangersThatClaim {
    void TestBody() override {}
  } some;
  some.come(clients, jobs, false);
  return some.units();
}

TEST(Strangers, WorkOfATickGrowsWithTheRanksOfAJobAndNotWithTheirSquare) {
  const std::uint64_t few = units_of(24, 1);
  EXPECT_LT(units_of(96, 1), 6 * few) << few;
}

TEST(Strangers, WorkOfATickGrowsWithTheJobsAndNotWithTheirSquare) {
  const std::uint64_t few = units_of(24, 24);
  EXPECT_LT(units_of(96, 96), 6 * few) << few;
}

// As one process with all of its user's connections is.
TEST(Strangers, AskingWhatLateRanksDoCostsTheSameWhereOneProcessIsAllOfThem) {
  struct Some : StrangersThatClaim {
    void TestBody() override {}
    std::uint64_t units_of(bool one_process) {
      come(96, 1, false);
      for (const Liar& each : all) {
        if (one_process) each.joined().client->peer.pid = all.front().joined().client->peer.pid;
      }
      return units();
    }
  } many, one;
  const std::uint64_t of_many = many.units_of(false);
  EXPECT_GT(of_many, StallWatch::kMostAsked * Work::kOfQuestion);
  EXPECT_LT(one.units_of(true), 2 * of_many);
}

TEST_F(StrangersThatClaim, CommunicatorsAreLookedAtUpToWhatOneUserMayHave) {
  const Joined mine = rig.join({.name = "mine"}, 0);
  mine.shim.joins_communicator(1, 0, 2, abi::kMostCommunicators - 1);
  const auto seen = [&] {
    std::size_t sum = 0;
    for (const Liar& each : all) sum += each.joined().client->page->communicators().size();
    return sum;
  };
  come(8, 1);
  tick();
  EXPECT_EQ(seen(), 8u * abi::kMostCommunicators);
  EXPECT_EQ(all[0].joined().client->page->unwatched_communicators(), 0u);
  come(56, 7);
  tick();
  EXPECT_EQ(seen(), 8'192u);
  EXPECT_EQ(all[0].joined().client->page->unwatched_communicators(), 1024u - 128u);
  EXPECT_EQ(mine.client->page->communicators().size(), 1u) << "root's are not bounded";
}

// These are looked at beside all others.
TEST_F(StrangersThatClaim, JobsThatAdaptCostWhatTheirUserMayCostInATick) {
  come(150, 150);
  for (int i = 0; i < 5; ++i) tick();
  std::uint64_t most_of_one = 0;
  for (int i = 0; i < 20; ++i) {
    tick();
    most_of_one = std::max(most_of_one, rig.monitor.registry().work().spent(kStranger));
  }
  EXPECT_GT(most_of_one, Work::kMostOfUser / 4) << "it is the square that is bounded";
  EXPECT_LT(most_of_one, Work::kMostOfUser + 20 * all.size());
}

// A ring may be news for everybody, so it costs a look at all of them.
TEST_F(StrangersThatClaim, RingsCostWhatTheirUserMayCostInATick) {
  std::vector<Joined> ring;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "rings-" + std::to_string(i % 20);
    ring.push_back(rig.join({.job = name, .name = name, .oversubscribe = "yes"}, kStranger));
    ring.back().client->page->drop_sent();
  }
  const Joined other = rig.join({.name = "other"}, kStranger + 1);
  const auto cost_of = [&](const Joined& who) {
    const std::uint64_t before = rig.monitor.work();
    rig.now += std::chrono::microseconds(10);
    rig.monitor.look_at_those_of(who.id, rig.now);
    return rig.monitor.work() - before;
  };
  rig.pass(milliseconds(200));
  std::uint64_t all_of_them = 0;
  std::uint64_t most_of_one = 0;
  for (std::size_t i = 0; i < 100'000; ++i) {
    const std::uint64_t cost = cost_of(ring[i % ring.size()]);
    all_of_them += cost;
    most_of_one = std::max(most_of_one, cost);
  }
  EXPECT_GE(rig.monitor.registry().work().spent(kStranger), Work::kMostOfUser);
  EXPECT_LT(all_of_them, Work::kMostOfUser + most_of_one);
  rig.now += milliseconds(10);
  EXPECT_EQ(cost_of(ring[0]), 0u);
  EXPECT_GT(cost_of(other), 0u) << "another user's are heard";
  rig.pass(milliseconds(200));
  rig.now += milliseconds(10);
  EXPECT_GT(cost_of(ring[0]), 0u) << "the next tick is another one";
}

TEST(Strangers, AListingLooksAtJobsAnewAsLongAsItsUserMayCostSomethingInATick) {
  Rig rig;
  rig.join({.name = "theirs"}, kStranger);
  const Joined other = rig.join({.name = "other"}, kStranger + 1);
  rig.pass(milliseconds(200));
  const auto state_told_to = [&](uid_t who) -> std::string {
    const json listing = rig.ask({{"op", "ps"}}, who);
    EXPECT_EQ(listing["jobs"].size(), 2u);
    return listing["jobs"][1]["state"];
  };
  Work& work = rig.monitor.registry().work();
  const std::uint64_t before = work.spent(kStranger);
  EXPECT_EQ(state_told_to(kStranger), "idle");
  EXPECT_GE(work.spent(kStranger) - before, 2u) << "a look at each";
  work.spend(kStranger, Work::kMostOfUser);
  const std::uint64_t after = work.spent(kStranger);
  other.shim.open_context();
  other.shim.launch();
  rig.now += milliseconds(1);
  EXPECT_EQ(state_told_to(kStranger), "idle") << "as of the tick";
  EXPECT_EQ(work.spent(kStranger), after);
  EXPECT_EQ(state_told_to(kStranger + 1), "running") << "others see what is";
  rig.pass(milliseconds(200));
  EXPECT_EQ(state_told_to(kStranger), "running");
}

TEST_F(StrangersThatClaim, AQuestionCostsNoMoreThanWhatIsKeptOfAUser) {
  come(40, 4);
  rig.ask({{"op", "ps"}, {"iterations", true}});
  for (int i = 0; i < 40; ++i) tick();
  const std::uint64_t before = rig.monitor.work();
  rig.ask({{"op", "ps"}});
  EXPECT_LT(rig.monitor.work() - before, Communication::kMostOfUser + 20'000);
}

std::size_t allocated() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

// 4,096 ranks of 1,024 communicators each, of which nobody else tells anything.
TEST_F(StrangersThatClaim, ClaimedRanksTakeNoRoomAndWhatIsTakenIsGivenBack) {
  rig.join({.name = "other"}, kStranger + 1);
  tick();
  const std::size_t before = allocated();
  come(40, 20);
  for (int i = 0; i < 30; ++i) tick();
  // The room of a client that claims nothing is in it, too.
  EXPECT_LT(allocated(), before + (48u << 20));
  go();
  EXPECT_LT(allocated(), before + (2u << 20));
}

TEST_F(StrangersThatClaim, LateRanksFillNoLog) {
  const LogLines log;
  come(60, 2);
  for (int i = 0; i < 40; ++i) tick();
  EXPECT_GT(log.count("has not launched"), 10u);
  EXPECT_LE(log.count("has not launched") + log.count("is not waited for"), StallWatch::kMostLines);
  EXPECT_EQ(log.count("is left out for a minute"), 1u);
}

}  // namespace
}  // namespace switchyard::monitor::test
