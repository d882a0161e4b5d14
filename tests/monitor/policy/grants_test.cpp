// Turns of gangs, row by row. No clock, no page.
#include "monitor/policy/grants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;

constexpr double kTurnNs = 50e6;

// Jobs 1, 2, ... that want turns on their GPUs.
struct Played {
  Grants grants;
  Time now = std::chrono::seconds(100);

  Claim& claim(std::uint64_t job, std::size_t gpu) {
    for (Claim& each : grants.claims[gpu]) {
      if (each.job == job) return each;
    }
    return grants.claims[gpu].emplace_back(Claim{.job = job});
  }
  void add(std::uint64_t job, const std::vector<std::size_t>& gpus, int rank = 0) {
    for (const std::size_t gpu : gpus) {
      Claim& it = claim(job, gpu);
      it.gang = it.stops = gpus.size() > 1;
      it.takes_turns = it.wants = true;
      it.drained = false;
      it.turn_ns = kTurnNs;
      it.rank = rank;
    }
  }
  // On all its GPUs.
  void set(std::uint64_t job, bool Claim::*what, bool value) {
    for (auto& [gpu, claims] : grants.claims) {
      for (Claim& each : claims) {
        if (each.job == job) each.*what = value;
      }
    }
  }
  std::vector<Grants::Key> look(Time later = Time{0}) {
    now += later;
    return decide_grants(grants, 0.02, now);
  }
  Grant of(std::uint64_t job, std::size_t gpu = 0) const { return grants.of(job, gpu); }
};

struct TwoGangs : Played {
  TwoGangs() {
    add(1, {0, 1});
    add(2, {0, 1});
    look();
  }
};

// Monitor and jobs stood still together.
TEST(Grants, AfterASuspensionTheTurnsOfBothGangsGoOn) {
  TwoGangs played;
  std::array<int, 2> open{};
  const auto play = [&played, &open](int looks) {
    open = {};
    for (int i = 0; i < looks; ++i) {
      for (const std::uint64_t job : {1, 2}) {
        played.set(job, &Claim::drained, played.of(job) != Grant::kOpen);
      }
      played.look(milliseconds(10));
      for (const std::size_t at : {0, 1}) open[at] += played.of(at + 1) == Grant::kOpen ? 1 : 0;
    }
  };
  play(100);
  played.look(std::chrono::hours(1));
  play(1000);
  EXPECT_GT(open[0], 300);
  EXPECT_GT(open[1], 300);
}

// Turns are short beside a high job that is busy, and long beside one that is not.
TEST(Grants, WhoWasAheadByShortTurnsDoesNotWaitForAsManyLongOnes) {
  TwoGangs played;
  played.grants.units.at({1, Grants::kAllGpus}).turns += 4;
  for (auto& [gpu, claims] : played.grants.claims) {
    for (Claim& each : claims) each.turn_ns = 40 * kTurnNs;
  }
  int waited = 0;
  for (int i = 0; i < 1000 && (i < 100 || played.of(1) != Grant::kOpen); ++i) {
    for (const std::uint64_t job : {1, 2}) {
      const bool open = played.of(job) == Grant::kOpen;
      played.set(job, &Claim::drained, !open);
      played.set(job, &Claim::stopped, !open);
    }
    played.look(milliseconds(10));
    waited += played.of(2) == Grant::kOpen ? 1 : 0;
  }
  EXPECT_GT(waited, 190);
  EXPECT_LT(waited, 240) << "one turn of the other's, and what it was ahead";
}

// Each works as long as it may, and is drained at once. The longest that one of them waited, in ms.
struct Worked : Played {
  std::map<std::uint64_t, int> longest, waits, open;

  void work(const std::vector<std::uint64_t>& jobs, int looks) {
    longest.clear();
    waits.clear();
    open.clear();
    for (int i = 0; i < looks; ++i) {
      for (const std::uint64_t job : jobs) {
        const bool has = is_open(job);
        set(job, &Claim::drained, !has);
        set(job, &Claim::stopped, !has);
        open[job] += has ? 10 : 0;
        waits[job] = has ? 0 : waits[job] + 10;
        longest[job] = std::max(longest[job], waits[job]);
      }
      look(milliseconds(10));
    }
  }
  bool is_open(std::uint64_t job) {
    for (const auto& [gpu, claims] : grants.claims) {
      for (const Claim& each : claims) {
        if (each.job == job) return of(job, gpu) == Grant::kOpen;
      }
    }
    return false;
  }
  void set_turn(std::uint64_t job, double turn_ns) {
    for (auto& [gpu, claims] : grants.claims) {
      for (Claim& each : claims) {
        if (each.job == job) each.turn_ns = turn_ns;
      }
    }
  }
};

TEST(Grants, CountsOfGangsOnOtherGpusAreNobodysMeasure) {
  Worked played;
  for (const std::uint64_t job : {1, 2}) played.add(job, {0, 1});
  for (const std::uint64_t job : {3, 4, 5}) played.add(job, {2, 3});
  const std::vector<std::uint64_t> all{1, 2, 3, 4, 5};
  played.work(all, 6000);  // the former two have had half as many again
  played.set_turn(1, 2 * kTurnNs);
  played.work(all, 1000);
  for (const std::uint64_t job : all) EXPECT_LT(played.longest[job], 500) << job;
  EXPECT_NEAR(played.open[1], 2.0 * played.open[2], 0.1 * played.open[1]) << "as their turns are";
}

// Two that are owed much would take turns with each other alone.
TEST(Grants, WhoHadAllWhileOthersWereKeptOutByTheirLimitsDoesNotPayForIt) {
  Worked played;
  for (const std::uint64_t job : {1, 2, 3, 4}) played.add(job, {0, 1});
  played.work({1, 2, 3, 4}, 100);
  for (const std::uint64_t job : {3, 4}) played.set(job, &Claim::spent, true);
  played.work({1, 2, 3, 4}, 6000);
  for (const std::uint64_t job : {3, 4}) played.set(job, &Claim::spent, false);
  played.work({1, 2, 3, 4}, 1000);
  for (const std::uint64_t job : {1, 2, 3, 4}) EXPECT_LT(played.longest[job], 1000) << job;
}

TEST(Grants, WhoChangesItsClassDoesNotPayForItsTurnsInTheOther) {
  Worked played;
  for (const std::uint64_t job : {1, 2}) played.add(job, {0, 1});
  played.work({1, 2}, 6000);
  for (const std::uint64_t job : {3, 4}) played.add(job, {0, 1}, 1);
  played.work({1, 2, 3, 4}, 200);
  for (auto& [gpu, claims] : played.grants.claims) {
    for (Claim& each : claims) each.rank = 1;
  }
  played.work({1, 2, 3, 4}, 2000);
  for (const std::uint64_t job : {1, 2, 3, 4}) EXPECT_LT(played.longest[job], 1000) << job;
}

TEST(Grants, CountsOfALowerClassAreNobodysMeasure) {
  Worked played;
  played.add(1, {0, 1});
  for (const std::uint64_t job : {2, 3, 4}) played.add(job, {0, 1}, 1);
  played.work({1, 2, 3, 4}, 6000);  // the former has had the minimum
  played.set_turn(2, kTurnNs / 2);
  played.work({1, 2, 3, 4}, 1000);
  for (const std::uint64_t job : {2, 3, 4}) EXPECT_LT(played.longest[job], 1000) << job;
}

struct Lead : TwoGangs {
  double turns() const { return unit(1).turns - unit(2).turns; }
  void set_turn(double turn_ns, std::vector<std::uint64_t> jobs = {1, 2}) {
    for (auto& [gpu, claims] : grants.claims) {
      for (Claim& each : claims) {
        if (std::find(jobs.begin(), jobs.end(), each.job) != jobs.end()) each.turn_ns = turn_ns;
      }
    }
  }
  const Unit& unit(std::uint64_t job) const { return grants.units.at({job, Grants::kAllGpus}); }
};

TEST(Grants, WhatWasWorkedBeforeTheLengthOfATurnChangedCountsAsBefore) {
  Lead played;
  played.set_turn(40 * kTurnNs);
  played.look();
  played.set_turn(kTurnNs);
  played.look(milliseconds(50));
  EXPECT_NEAR(played.turns(), 1, 0.01);
}

TEST(Grants, ALeadIsKeptWhereTheLengthOfATurnChangesWhileNobodyHasWork) {
  Lead played;
  for (auto& [key, unit] : played.grants.units) unit.turns += 600;
  for (const std::uint64_t job : {1, 2}) played.set(job, &Claim::wants, false);
  played.set_turn(40 * kTurnNs, {1});
  played.look(milliseconds(1));
  for (const std::uint64_t job : {1, 2}) played.set(job, &Claim::wants, true);
  played.look(milliseconds(1));
  played.set_turn(40 * kTurnNs);
  played.look(milliseconds(1));
  EXPECT_NEAR(played.turns(), 0.003 / 2, 0.002) << "it has had three milliseconds";
}

TEST(Grants, WithoutAGangEachGpuDecides) {
  Played played;
  played.add(1, {0});
  played.add(2, {0});
  EXPECT_TRUE(played.look().empty());
  EXPECT_EQ(played.of(1), Grant::kLocal);
}

TEST(Grants, AGangAloneNeedsNone) {
  Played played;
  played.add(1, {0, 1});
  EXPECT_TRUE(played.look().empty());
}

TEST(Grants, OneGangIsOpenOnAllItsGpus) {
  const TwoGangs played;
  for (const std::size_t gpu : {0, 1}) {
    EXPECT_EQ(played.of(1, gpu), Grant::kOpen);
    EXPECT_EQ(played.of(2, gpu), Grant::kClosed);
  }
}

TEST(Grants, ATurnEndsAtACutAndWhenAllHasEnded) {
  TwoGangs played;
  played.look(milliseconds(49));
  EXPECT_EQ(played.of(1), Grant::kOpen);
  played.look(milliseconds(1));
  EXPECT_EQ(played.of(1), Grant::kStopping) << "its gates are open";
  EXPECT_EQ(played.of(2), Grant::kClosed);
  played.set(1, &Claim::stopped, true);
  played.look(milliseconds(1));
  EXPECT_EQ(played.of(1), Grant::kStopping) << "what it has launched ends";
  played.set(1, &Claim::drained, true);
  played.look(milliseconds(1));
  EXPECT_EQ(played.of(1), Grant::kClosed);
  played.look();
  EXPECT_EQ(played.of(2), Grant::kOpen);
}

TEST(Grants, WhoDoesNotStopIsClosedWhereItIs) {
  TwoGangs played;
  played.look(milliseconds(50));
  played.look(kStopsWithin);
  EXPECT_EQ(played.of(1), Grant::kClosed);
  EXPECT_EQ(played.of(2), Grant::kClosed) << "something of it still runs";
  played.look(kDrainsWithin);
  played.look();
  EXPECT_EQ(played.of(2), Grant::kOpen);
}

// Jobs on both GPUs. A gang that never comes to a cut works on as long as it may.
struct NeverStops : Played {
  std::map<std::uint64_t, int> open;  // ms
  std::vector<int> waits;             // ms, of job 2 for each of its bursts
  int waited = 0;

  // One ms. The other stops and is drained at once.
  void pass() {
    const bool has = of(2) == Grant::kOpen;
    set(2, &Claim::stopped, !has);
    set(2, &Claim::drained, !has);
    look(milliseconds(1));
    for (const std::uint64_t job : {1, 2}) {
      const Grant grant = of(job);
      open[job] += grant == Grant::kOpen || grant == Grant::kStopping ? 1 : 0;
    }
  }
  // Job 2 has 5 ms of work in each 50 ms.
  void burst() {
    set(2, &Claim::wants, true);
    for (waited = 0; of(2) != Grant::kOpen; ++waited) pass();
    waits.push_back(waited);
    for (int i = 0; i < 5; ++i) pass();
    set(2, &Claim::wants, false);
    for (int i = 0; i < 45; ++i) pass();
  }
};

TEST(Grants, WhoNeverComesToItsCutHasNoMoreThanOthers) {
  NeverStops played;
  played.add(1, {0, 1});
  played.add(2, {0, 1});
  for (int i = 0; i < 60'000; ++i) played.pass();
  EXPECT_LT(played.open[1], 0.52 * 60'000);
  EXPECT_GT(played.open[2], 0.42 * 60'000) << "some part is hand-overs";
}

TEST(Grants, WhoNeverComesToItsCutIsNotAwaitedAgainAndAgain) {
  NeverStops played;
  played.add(1, {0, 1});
  played.add(2, {0, 1}, 1);
  played.set(2, &Claim::wants, false);
  for (int i = 0; i < 50; ++i) played.pass();
  for (int i = 0; i < 200; ++i) played.burst();
  auto& waits = played.waits;
  EXPECT_GE(waits[0], 200) << "it was not known before";
  std::sort(waits.begin(), waits.end());
  EXPECT_LT(waits[100], 20);
  EXPECT_LT(waits[190], 20);
  EXPECT_LE(std::count_if(waits.begin(), waits.end(), [](int each) { return each > 100; }), 8);
}

struct Ends : TwoGangs {
  // The next turn of the first gang ends, and it comes to its cut or not. Whether it was awaited.
  bool ends(bool comes) {
    while (of(1) != Grant::kOpen) {
      set(2, &Claim::stopped, true);
      set(2, &Claim::drained, true);
      look(milliseconds(10));
    }
    set(1, &Claim::stopped, false);
    set(1, &Claim::drained, false);
    while (of(1) == Grant::kOpen) look(milliseconds(10));
    const bool awaited = of(1) == Grant::kStopping;
    set(1, &Claim::stopped, comes);
    look(comes ? Time{0} : kStopsWithin);
    set(1, &Claim::drained, true);
    look();
    return awaited;
  }
};

TEST(Grants, WhoComesToItsCutAgainIsAwaitedAgain) {
  Ends played;
  EXPECT_TRUE(played.ends(false));
  EXPECT_FALSE(played.ends(false));
  EXPECT_TRUE(played.ends(true)) << "one end was not waited for";
  EXPECT_TRUE(played.ends(true));
  EXPECT_TRUE(played.ends(false));
  EXPECT_FALSE(played.ends(false));
}

TEST(Grants, SingleMissesWithACutBetweenThemDoNotAddUp) {
  Ends played;
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(played.ends(false)) << i;
    EXPECT_FALSE(played.ends(false)) << i;
    EXPECT_TRUE(played.ends(true)) << i << ": one end was not waited for, and no more";
  }
}

TEST(Grants, WhatWasLaunchedBeforeTheCutEndsInTime) {
  TwoGangs played;
  played.look(milliseconds(50));
  played.set(1, &Claim::stopped, true);
  played.look();
  played.look(kEndsWithin);
  played.look();
  EXPECT_EQ(played.of(2), Grant::kOpen);
}

TEST(Grants, AJobOnOneGpuIsClosedAtOnce) {
  Played played;
  played.add(1, {0});
  played.add(2, {0, 1});
  played.add(3, {1});
  played.look();
  EXPECT_EQ(played.of(1), Grant::kOpen);
  EXPECT_EQ(played.of(2), Grant::kClosed);
  EXPECT_EQ(played.of(3, 1), Grant::kOpen) << "the second GPU would stand still";
  played.look(milliseconds(50));
  EXPECT_EQ(played.of(1), Grant::kClosed);
  EXPECT_EQ(played.of(3, 1), Grant::kClosed) << "in the same look";
  played.look(kDrainsWithin);
  played.look();
  EXPECT_EQ(played.of(2, 0), Grant::kOpen);
  EXPECT_EQ(played.of(2, 1), Grant::kOpen);
}

TEST(Grants, WhatIsReservedGoesToOthersOnlyMeanwhile) {
  Played played;
  played.add(1, {0});
  played.add(2, {0, 1});
  played.look();
  played.look(milliseconds(30));
  // It comes when the first gang has still to wait for 20 ms.
  played.add(3, {1});
  played.set(3, &Claim::wants, true);
  played.look();
  EXPECT_EQ(played.of(3, 1), Grant::kOpen);
  played.look(milliseconds(20));
  EXPECT_EQ(played.of(1), Grant::kClosed);
  EXPECT_EQ(played.of(3, 1), Grant::kClosed);
}

TEST(Grants, WhoHasNoWorkMakesWay) {
  TwoGangs played;
  played.set(1, &Claim::wants, false);
  played.look(milliseconds(5));
  EXPECT_EQ(played.of(1), Grant::kOpen) << "a brief pause";
  played.look(milliseconds(5));
  EXPECT_EQ(played.of(1), Grant::kStopping);
}

TEST(Grants, AHigherGangComesAtOnce) {
  Played played;
  played.add(1, {0, 1});
  played.add(2, {0, 1});
  played.look();
  played.add(3, {0, 1}, 1);
  played.look(milliseconds(1));
  EXPECT_EQ(played.of(1), Grant::kStopping);
  played.set(1, &Claim::stopped, true);
  played.set(1, &Claim::drained, true);
  played.look(milliseconds(1));
  played.look();
  EXPECT_EQ(played.of(3), Grant::kOpen);
}

TEST(Grants, AGangWithALimitIsOpenUntilItHasHadThatOnAnyGpu) {
  Played played;
  played.add(1, {0, 1});
  for (const std::size_t gpu : {0, 1}) {
    played.claim(1, gpu).takes_turns = false;
    played.claim(1, gpu).metered = true;
  }
  played.set(1, &Claim::wants, false);
  played.look();
  EXPECT_EQ(played.of(1), Grant::kOpen) << "also before it works";
  played.claim(1, 1).spent = true;
  played.look();
  EXPECT_EQ(played.of(1, 0), Grant::kStopping);
  played.set(1, &Claim::stopped, true);
  played.set(1, &Claim::drained, true);
  played.look();
  EXPECT_EQ(played.of(1, 0), Grant::kClosed);
  EXPECT_EQ(played.of(1, 1), Grant::kClosed);
  played.claim(1, 1).spent = false;
  EXPECT_EQ(played.look().size(), 1u);
  EXPECT_EQ(played.of(1, 0), Grant::kOpen);
}

TEST(Grants, WhoTakesNoTurnsAnyMoreIsForgotten) {
  TwoGangs played;
  played.grants.claims.clear();
  EXPECT_EQ(played.look().size(), 2u);
  EXPECT_EQ(played.of(2), Grant::kLocal);
  EXPECT_TRUE(played.grants.units.empty());
}

}  // namespace
}  // namespace switchyard::monitor::policy
