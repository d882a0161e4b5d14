// The cut of a gang: each row of its table, who is named, and laws by random play.
#include "monitor/policy/cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace switchyard::monitor::cut {
namespace {

using std::chrono::milliseconds;
using Why = Blame::Why;

constexpr Time kStart = std::chrono::seconds(100);

// Two processes, ranks of communicator 7, with so many launches.
std::vector<Process> pair(std::uint64_t first, std::uint64_t second) {
  return {{11, {{7, 0, 2, first}}}, {12, {{7, 1, 2, second}}}};
}

struct Cut : ::testing::Test {
  bool look(const std::vector<Process>& processes, Time after = milliseconds(1)) {
    now += after;
    return next(state, processes, now);
  }
  Time now = kStart;
  State state{.since = kStart};
};

TEST_F(Cut, TheFirstLookOnlyAsks) {
  EXPECT_TRUE(look(pair(5, 5)));
  EXPECT_EQ(state.phase, Phase::kSettling);
  EXPECT_EQ(state.targets.at(7), 5u);
}

TEST_F(Cut, EqualCountsAreThereAtTheSecond) {
  look(pair(5, 5));
  EXPECT_FALSE(look(pair(5, 5)));
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, OneThatCannotActIsNotAwaitedUnlessItIsThere) {
  auto processes = pair(5, 6);
  processes[0].stands = Standstill::kStopped;
  processes[1].stands = Standstill::kFrozen;
  look(processes);
  look(processes);
  EXPECT_EQ(state.phase, Phase::kFailed);
  EXPECT_EQ(state.blame.pid, 11);
  const std::string text = text_of(state.blame);
  EXPECT_NE(text.find("did not launch 1 collective that others have launched: it is stopped by a "
                      "signal"),
            std::string::npos)
      << text;
  state = {.since = now};
  processes[0].places[0].launched = 6;
  look(processes);
  look(processes);
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, OfThoseThatLackSomethingOneThatCannotActIsNamedFirst) {
  std::vector<Process> processes{{11, {{7, 0, 3, 2}}}, {12, {{7, 1, 3, 5}}}, {13, {{7, 2, 3, 6}}}};
  processes[1].stands = Standstill::kTraced;
  look(processes);
  look(processes);
  EXPECT_EQ(state.phase, Phase::kFailed);
  EXPECT_EQ(state.blame.pid, 12);
}

TEST_F(Cut, TheLargestCountIsTheTarget) {
  look(pair(5, 6));
  EXPECT_EQ(state.targets.at(7), 6u);
  EXPECT_FALSE(look(pair(5, 6)));
  EXPECT_EQ(state.phase, Phase::kGathering);
  look(pair(6, 6));
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, ATargetIsRaisedBySomebodyWhoPassesIt) {
  look(pair(5, 5));
  EXPECT_TRUE(look(pair(6, 5)));
  EXPECT_EQ(state.phase, Phase::kSettling);
  EXPECT_EQ(state.targets.at(7), 6u);
  look(pair(6, 6));
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, WhoIsInALaunchIsNotThere) {
  look(pair(5, 5));
  auto processes = pair(5, 5);
  processes[1].launching = true;
  look(processes);
  EXPECT_EQ(state.phase, Phase::kGathering);
  look(pair(5, 5));
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, WhoSendsBetweenManyMustHaveStopped) {
  auto processes = pair(5, 5);
  processes[0].sends = true;
  look(processes);
  look(processes);
  EXPECT_EQ(state.phase, Phase::kGathering);
  processes[0].stopped = true;
  look(processes);
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, ACommunicatorThatIsBornMeanwhileGetsATarget) {
  look(pair(5, 5));
  auto processes = pair(5, 5);
  processes[0].places.push_back({8, 0, 2, 1});
  processes[1].places.push_back({8, 1, 2, 0});
  EXPECT_TRUE(look(processes));
  EXPECT_EQ(state.targets.at(8), 1u);
  processes[1].places[1].launched = 1;
  look(processes);
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, WhoIsBelowIsNamedFirst) {
  look(pair(5, 8));
  auto processes = pair(5, 8);
  processes[1].launching = true;
  EXPECT_FALSE(look(processes, kComesWithin));
  EXPECT_EQ(state.phase, Phase::kFailed);
  EXPECT_EQ(state.blame, (Blame{Why::kBelow, 11, 0, 7, 3}));
  EXPECT_EQ(text_of(state.blame),
            "rank 0 of communicator 0000000000000007 (pid 11) did not launch 3 collectives that "
            "others have launched");
}

TEST_F(Cut, ElseWhoIsInALaunch) {
  look(pair(5, 5));
  auto processes = pair(5, 5);
  processes[0].sends = true;
  processes[1].launching = true;
  look(processes, kComesWithin);
  EXPECT_EQ(state.blame, (Blame{Why::kLaunching, 12, 1, 7, 0}));
}

TEST_F(Cut, ElseWhoHasNotStopped) {
  auto processes = pair(5, 5);
  processes[0].sends = processes[0].stopped = true;
  processes[1].sends = true;
  look(processes);
  look(processes, kComesWithin);
  EXPECT_EQ(state.blame, (Blame{Why::kNotStopped, 12, 1, 7, 0}));
}

TEST_F(Cut, TheOneThatLacksMostOfSeveral) {
  std::vector<Process> processes = {
      {11, {{7, 0, 3, 4}}}, {12, {{7, 1, 3, 2}}}, {13, {{7, 2, 3, 9}}}};
  look(processes);
  look(processes, kComesWithin);
  EXPECT_EQ(state.blame.pid, 12);
  EXPECT_EQ(state.blame.lacks, 7u);
}

TEST_F(Cut, ARankThatIsGoneEndsItAtOnce) {
  look(pair(5, 6));
  auto processes = pair(5, 6);
  processes.pop_back();
  EXPECT_FALSE(look(processes));
  EXPECT_EQ(state.phase, Phase::kFailed);
  EXPECT_EQ(state.blame, (Blame{Why::kGone, 12, 1, 7, 0}));
}

TEST_F(Cut, ComingInTimeIsNotLate) {
  look(pair(5, 6));
  look(pair(6, 6), kComesWithin);
  EXPECT_EQ(state.phase, Phase::kThere);
}

TEST_F(Cut, WhoPassesForEverIsGivenUp) {
  std::uint64_t count = 5;
  while (state.phase != Phase::kFailed) {
    ++count;
    look(pair(count, count), milliseconds(100));
    ASSERT_LT(now - kStart, 2 * kComesWithin);
  }
  EXPECT_EQ(state.blame.why, Why::kNobody);
  EXPECT_NE(text_of(state.blame), "");
}

TEST_F(Cut, WhatIsOverStaysOver) {
  look(pair(5, 5));
  look(pair(5, 5));
  EXPECT_FALSE(look(pair(9, 5)));
  EXPECT_EQ(state.phase, Phase::kThere);
  EXPECT_EQ(state.targets.at(7), 5u);
}

TEST(CutMissing, NamesTheFirstRankThatNobodyIs) {
  EXPECT_EQ(missing(pair(1, 1)).why, Why::kNobody);
  EXPECT_EQ(missing({}).why, Why::kNobody);
  const Blame blame = missing({{11, {{7, 0, 4, 0}}}, {12, {{7, 2, 4, 0}}}});
  EXPECT_EQ(blame, (Blame{Why::kGone, 0, 1, 7, 0}));
  // A communicator whose size nobody knows yet has no missing ranks.
  EXPECT_EQ(missing({{11, {{7, 0, 0, 0}}}}).why, Why::kNobody);
}

// --- laws, by random play ---

// Processes that launch a program of collectives, each on one of several communicators, all of them
// in one order. Each heeds the words as the library does: it sees targets that may be some steps
// old, enters, looks, and launches; NCCL returns some steps later.
class Play {
 public:
  Play(unsigned seed, int ranks) : random_(seed) {
    for (int rank = 0; rank < ranks; ++rank) ranks_.push_back({});
    // Rows and columns of a grid of two, and everybody.
    for (int rank = 0; rank < ranks; ++rank) {
      ranks_[rank].member = {1, static_cast<std::uint64_t>(10 + rank / 2),
                             static_cast<std::uint64_t>(20 + rank % 2)};
    }
    for (int i = 0; i < 4000; ++i) program_.push_back(static_cast<int>(random_() % 3));
    for (int i = 0; i < 400; ++i) step_any();
  }

  // Some steps of anybody; then what one look sees.
  std::vector<Process> run(int steps) {
    for (int i = 0; i < steps; ++i) step_any();
    return seen();
  }
  std::vector<Process> run_a_while() { return run(static_cast<int>(random_() % 7)); }
  std::vector<Process> seen() const {
    std::vector<Process> out;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      Process process{static_cast<pid_t>(100 + rank), {}};
      for (int kind = 0; kind < 3; ++kind) {
        const std::uint64_t id = ranks_[rank].member[kind];
        std::uint32_t place = 0;
        std::uint32_t size = 0;
        for (std::size_t other = 0; other < ranks_.size(); ++other) {
          if (ranks_[other].member[kind] != id) continue;
          place += other < rank ? 1 : 0;
          ++size;
        }
        process.places.push_back({id, place, size, ranks_[rank].launched[kind]});
      }
      process.launching = ranks_[rank].entered;
      out.push_back(process);
    }
    return out;
  }
  void ask(const std::map<std::uint64_t, std::uint64_t>& targets) {
    targets_ = targets;
    asked_ = true;
  }
  void release() { asked_ = false; }

 private:
  struct Rank {
    std::vector<std::uint64_t> member;
    std::uint64_t launched[3] = {};
    std::size_t at = 0;  // in the program
    bool entered = false;
    bool past_look = false;
  };

  bool must_stop(const Rank& rank) const {
    if (!asked_) return false;
    for (int kind = 0; kind < 3; ++kind) {
      const auto target = targets_.find(rank.member[kind]);
      if (target != targets_.end() && rank.launched[kind] < target->second) return false;
    }
    return true;
  }
  void step_any() {
    Rank& rank = ranks_[random_() % ranks_.size()];
    if (rank.at == program_.size()) return;
    if (!rank.entered) {
      rank.entered = true;
    } else if (!rank.past_look) {
      rank.past_look = !must_stop(rank);
      rank.entered = rank.past_look;
    } else {
      ++rank.launched[program_[rank.at]];
      ++rank.at;
      rank.entered = rank.past_look = false;
    }
  }

  std::mt19937 random_;
  std::vector<Rank> ranks_;
  std::vector<int> program_;
  std::map<std::uint64_t, std::uint64_t> targets_;
  bool asked_ = false;
};

// The counts of each communicator, which are all ranks' of it where they agree.
std::map<std::uint64_t, std::set<std::uint64_t>> counts_of(const Play& play) {
  std::map<std::uint64_t, std::set<std::uint64_t>> counts;
  for (const Process& process : play.seen()) {
    for (const Place& place : process.places) counts[place.communicator].insert(place.launched);
  }
  return counts;
}

TEST(CutLaws, RanksOfEachCommunicatorStopAtOneCountAndGoOn) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    Play play(seed, seed % 2 == 0 ? 2 : 4);
    State state{.since = kStart};
    Time now = kStart;
    while (state.phase != Phase::kThere) {
      now += milliseconds(1);
      ASSERT_LT(now - kStart, kComesWithin) << "seed " << seed;
      if (next(state, play.run_a_while(), now)) play.ask(state.targets);
    }
    const auto there = counts_of(play);
    for (const auto& [id, counts] : there) {
      EXPECT_EQ(counts, std::set{state.targets.at(id)}) << "seed " << seed;
    }
    play.run(200);
    EXPECT_EQ(counts_of(play), there) << "nobody passes any more, seed " << seed;
    play.release();
    play.run(200);
    EXPECT_NE(counts_of(play), there) << "seed " << seed;
  }
}

}  // namespace
}  // namespace switchyard::monitor::cut
