// Iterations, found in sequences whose period is known.
#include "monitor/policy/iterations.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "monitor/policy/launch_classes.h"

namespace switchyard::monitor::iterations {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kTick = milliseconds(200);

// A program that launches one thing after the other, looked at as the monitor does.
class Program {
 public:
  explicit Program(Weight weight = Weight::kLaunches) : finder(weight) {}
  void launch(std::uint32_t what, std::uint64_t weight = 1) {
    now_ += gap_;
    while (now_ - looked_ >= kTick) {
      looked_ += kTick;
      finder.look();
    }
    finder.add({what, now_, weight, ++number_});
  }
  void launch_all(std::initializer_list<std::uint32_t> all) {
    for (const std::uint32_t what : all) launch(what);
  }
  void work(Time span) { now_ += span; }
  void gap(Time span) { gap_ = span; }
  Time now() const { return now_; }

  Finder finder;

 private:
  Time now_ = seconds(100), looked_ = seconds(100), gap_ = milliseconds(1);
  std::uint64_t number_ = 0;
};

TEST(Iterations, ABurstOfLaunchesHasNoRate) {
  Program program;
  program.gap(std::chrono::microseconds(5));
  for (int i = 0; i < 16; ++i) program.launch_all({1, 2, 3});
  program.finder.look();
  ASSERT_TRUE(program.finder.known());
  EXPECT_FALSE(program.finder.per_second(program.now()));
}

using Step = std::function<void(Program&, int)>;

// Runs so many iterations, and compares what was found over the later half with the truth.
void expect_found(const Step& step, int iterations = 400, const Step& start = {},
                  Weight weight = Weight::kLaunches) {
  Program program(weight);
  if (start) start(program, 0);
  Time began{0}, last_began{0};
  const auto run = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      last_began = program.now();
      step(program, i);
    }
  };
  run(0, iterations / 2);
  ASSERT_TRUE(program.finder.known());
  began = last_began;
  const std::uint64_t count = program.finder.count();
  const std::uint32_t generation = program.finder.generation();
  const Time marked = program.finder.marks().back().at;
  run(iterations / 2, iterations);
  EXPECT_EQ(program.finder.generation(), generation) << "the marker changed";
  const auto counted = static_cast<double>(program.finder.count() - count);
  const double found = counted / monitor::seconds(program.finder.marks().back().at - marked);
  const double truth = iterations / 2 / monitor::seconds(last_began - began);
  EXPECT_NEAR(found / truth, 1, 0.01);
  EXPECT_EQ(counted, iterations / 2);
}

void plain(Program& program, int) {
  program.launch_all({1, 2, 2, 2, 3, 4});
  program.work(milliseconds(20));
}

TEST(Iterations, PlainOnes) { expect_found(plain); }

TEST(Iterations, OneEventEach) {
  expect_found([](Program& program, int) {
    program.launch(7);
    program.work(milliseconds(3));
  });
}

TEST(Iterations, TheFirstIsOther) {
  // DDP makes its buckets anew after the first.
  expect_found(plain, 400, [](Program& program, int) {
    for (std::uint32_t i = 0; i < 300; ++i) program.launch(1000 + i % 50);
    program.launch_all({1, 2, 2, 2, 2, 4, 9});
  });
}

TEST(Iterations, AccumulatedGradients) {
  expect_found([](Program& program, int) {
    for (int micro = 0; micro < 4; ++micro) {
      program.launch_all({1, 2, 3});
      program.work(milliseconds(10));
    }
    program.launch_all({8, 9});
  });
}

TEST(Iterations, ShardsOfWhichOnlyTheLastMicroBatchReduces) {
  constexpr std::uint64_t kMany = 1 << 20;
  expect_found([](Program& program, int) {
    for (int micro = 0; micro < 8; ++micro) {
      for (int layer = 0; layer < 12; ++layer) program.launch(1, kMany);
      program.launch(2, kMany);
      program.work(milliseconds(10));
    }
    for (int layer = 0; layer < 12; ++layer) program.launch(3, kMany);
    program.launch(4, 4 * kMany);  // embedding and head
    program.launch(5, 4);
  });
}

// As FSDP2 does it: each layer is gathered twice, and one gather is ahead on the way back.
void sharded(Program& program, int layers) {
  constexpr std::uint64_t kMany = 1 << 20, kEmbedding = kMany / 2;
  constexpr std::uint32_t kGather = 1, kReduce = 2;
  program.launch(3, kEmbedding);
  for (int layer = 0; layer < layers; ++layer) program.launch(kGather, kMany);
  program.work(milliseconds(10));
  program.launch(kGather, kMany);
  for (int layer = 1; layer < layers; ++layer) {
    program.launch(kGather, kMany);
    program.launch(kReduce, kMany);
  }
  program.launch(kReduce, kMany);
  program.launch(4, kEmbedding);
  program.work(milliseconds(10));
}

TEST(Iterations, OfShardsWhoseFirstPassLooksLikeManyIterations) {
  for (const int layers : {8, 80}) {
    const Step step = [layers](Program& program, int) { sharded(program, layers); };
    // The first step loads its kernels, so that looks see parts of it.
    const Step first = [layers](Program& program, int) {
      program.gap(milliseconds(50));
      sharded(program, layers);
      program.gap(milliseconds(1));
    };
    expect_found(step, 400, first, Weight::kBytes);
  }
}

TEST(Iterations, LogsEveryTenSteps) {
  constexpr std::uint64_t kBucket = 25 << 20;
  for (const int every : {5, 10, 50}) {
    const Step step = [every](Program& program, int i) {
      program.launch(1, kBucket);
      program.launch(2, kBucket / 2);
      if (i % every == 0) program.launch(3, 4);
      program.work(milliseconds(20));
    };
    expect_found(step, 400, {}, Weight::kBytes);
  }
}

TEST(Iterations, AnEvaluationIsNoIteration) {
  expect_found([](Program& program, int i) {
    program.launch_all({1, 2, 2, 3, 4});
    program.work(milliseconds(30));
    if (i % 20 != 19) return;
    for (int batch = 0; batch < 10; ++batch) {
      program.launch_all({1, 2, 2, 5});
      program.work(milliseconds(10));
    }
    program.launch(6);
  });
}

TEST(Iterations, ALongEvaluationCountsNothing) {
  Program program;
  for (int i = 0; i < 100; ++i) plain(program, i);
  const std::uint64_t count = program.finder.count();
  const std::uint32_t generation = program.finder.generation();
  for (int batch = 0; batch < 60; ++batch) {
    program.launch_all({2, 5});
    program.work(milliseconds(100));
  }
  EXPECT_EQ(program.finder.generation(), generation);
  EXPECT_EQ(program.finder.count(), count);
  EXPECT_EQ(program.finder.per_second(program.now()), 0.0) << "iterations have ceased";
}

TEST(Iterations, RaggedNoise) {
  std::mt19937 random(1);
  expect_found([&random](Program& program, int i) {
    for (std::uint32_t what = 1; what <= 12; ++what) {
      program.launch(what);
      if (random() % 8 == 0) program.launch(100'000 + static_cast<std::uint32_t>(i) * 100 + what);
      program.work(std::chrono::microseconds(random() % 5000));
    }
  });
}

TEST(Iterations, SlowOnesHaveARateAfterFour) {
  Program program;
  for (int i = 0; i < 6; ++i) {
    program.launch_all({1, 2, 3});
    program.work(seconds(8));
  }
  ASSERT_TRUE(program.finder.per_second(program.now()));
  EXPECT_NEAR(*program.finder.per_second(program.now()), 1 / 8.003, 0.0001);
}

TEST(Iterations, AnotherProgramIsFound) {
  Program program;
  for (int i = 0; i < 200; ++i) plain(program, i);
  const std::uint32_t generation = program.finder.generation();
  const Time changed = program.now();
  for (int i = 0; i < 200; ++i) {
    program.launch_all({20, 21, 22});
    program.work(milliseconds(47));
  }
  EXPECT_NEAR(*program.finder.per_second(program.now()), 20, 0.2);
  EXPECT_NE(program.finder.generation(), generation) << "the counts don't compare";
  EXPECT_GT(program.finder.marks().front().at, changed);
  EXPECT_LE(program.finder.marks().size(), 64u);
}

TEST(Iterations, WhatRepeatsNoMoreIsForgotten) {
  Program program;
  for (int i = 0; i < 100; ++i) plain(program, i);
  for (std::uint32_t i = 0; i < 2000; ++i) program.launch(1000 + i);
  EXPECT_FALSE(program.finder.known());
  EXPECT_TRUE(program.finder.marks().empty());
}

TEST(Iterations, ARateIsThatOfTheLastSeconds) {
  Program program;
  const auto run = [&](int count, Time takes) {
    for (int i = 0; i < count; ++i) {
      program.launch_all({1, 2, 3});
      program.work(takes - milliseconds(3));
    }
  };
  run(50, milliseconds(400));
  run(20, milliseconds(100));
  // 20 of them in two seconds, and 20 in the eight before.
  EXPECT_NEAR(*program.finder.per_second(program.now()), 4, 0.15);
}

TEST(Iterations, FastOnesThatStandStillForAMomentHaveNotCeased) {
  Program program;
  for (int i = 0; i < 100; ++i) plain(program, i);
  EXPECT_GT(*program.finder.per_second(program.now() + seconds(2)), 0.0);
  EXPECT_EQ(*program.finder.per_second(program.now() + seconds(4)), 0.0);
}

TEST(Iterations, WhatNeverRepeatsHasNone) {
  Program program;
  for (std::uint32_t i = 0; i < 500; ++i) program.launch(i);
  EXPECT_FALSE(program.finder.known());
  EXPECT_FALSE(program.finder.per_second(program.now()));
}

TEST(Iterations, LostEventsEndACount) {
  Program program;
  for (int i = 0; i < 100; ++i) plain(program, i);
  const std::uint32_t generation = program.finder.generation();
  program.finder.lost();
  EXPECT_NE(program.finder.generation(), generation);
  EXPECT_EQ(program.finder.count(), 0u);
  EXPECT_FALSE(program.finder.per_second(program.now()));
  plain(program, 0);
  plain(program, 1);
  EXPECT_EQ(program.finder.count(), 2u);
}

TEST(Iterations, WhatCameBeforeALossIsNotCounted) {
  Finder finder;
  const auto run = [&] {
    for (std::uint32_t i = 0; i < 30; ++i) finder.add({i % 3, milliseconds(i), 1, i});
  };
  run();
  finder.lost();
  run();
  finder.look();
  EXPECT_EQ(finder.count(), 10u);
}

TEST(Iterations, ALossOfNothingChangesNothing) {
  Finder finder;
  finder.lost();
  EXPECT_EQ(finder.generation(), 0u);
}

std::vector<Event> events_of(const std::vector<std::uint32_t>& all) {
  std::vector<Event> out;
  for (std::uint32_t i = 0; i < all.size(); ++i) out.push_back({all[i], milliseconds(i), 1, i});
  return out;
}

TEST(Iterations, WhatBeganLatelyIsFoundBehindANoisyStart) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 300; ++i) all.push_back(1000 + i);
  for (std::uint32_t i = 0; i < 60; ++i) all.push_back(i % 6);
  EXPECT_EQ(marker_of(events_of(all)), 0u);
}

TEST(Iterations, OfThoseThatComeAsOftenARegularOneIsChosen) {
  // 1 comes in each ten as well, but in every fifth later than in the others.
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 40; ++i) {
    for (std::uint32_t place = 0; place < 10; ++place) {
      const bool odd = place == (i % 5 == 4 ? 9u : 3u);
      all.push_back(place == 0 ? 5 : odd ? 1 : 1000 + 10 * i + place);
    }
  }
  EXPECT_EQ(marker_of(events_of(all)), 5u);
}

TEST(Iterations, IrregularOnesAreNone) {
  std::mt19937 random(3);
  std::vector<std::uint32_t> all;
  for (int i = 0; i < 400; ++i) {
    for (std::uint32_t gap = random() % 40; gap != 0; --gap) {
      all.push_back(static_cast<std::uint32_t>(random()) | 1u << 20);
    }
    all.push_back(1);
  }
  EXPECT_FALSE(marker_of(events_of(all)));
}

TEST(Iterations, AllRanksChooseTheSame) {
  // A rank that came later has seen less, and one that is behind, too.
  std::vector<Event> all;
  for (std::uint32_t i = 0; i < 300; ++i) all.push_back({i % 6, milliseconds(i), 1, i});
  for (int first = 0; first < 7; ++first) {
    for (int last = 0; last < 7; ++last) {
      const std::vector<Event> less(all.begin() + 60 + first, all.end() - last);
      EXPECT_EQ(marker_of(all), marker_of(less)) << first << ' ' << last;
    }
  }
}

// A process with a ring: what is launched comes as far as its class is wanted.
struct Ring {
  LaunchClasses classes;
  Time now = seconds(1);
  bool whole = false;
  std::size_t came = 0;

  void look(const std::vector<std::uint8_t>& launched) {
    std::vector<std::uint8_t> last;
    for (const std::uint8_t each : launched) {
      if (classes.wanted()[each]) last.push_back(each);
    }
    came = last.size();
    if (last.size() > abi::kRecords) last.erase(last.begin(), last.end() - abi::kRecords);
    now += kTick;
    whole = classes.look(came, last, now);
  }
};

TEST(LaunchClasses, TheFrequentOnesAreDroppedAndTheRareStay) {
  // Four iterations a look: forward and backward of 24 layers, and an optimizer.
  std::vector<std::uint8_t> launched;
  for (int i = 0; i < 4; ++i) {
    launched.push_back(200);
    for (int layer = 0; layer < 48; ++layer) {
      for (std::uint8_t kernel = 0; kernel < 30; ++kernel) launched.push_back(kernel);
    }
    for (std::uint8_t kernel = 100; kernel < 130; ++kernel) launched.push_back(kernel);
  }
  Ring ring;
  for (int i = 0; i < 10; ++i) ring.look(launched);
  EXPECT_TRUE(ring.whole);
  EXPECT_LE(ring.came, LaunchClasses::kMost);
  EXPECT_TRUE(ring.classes.wanted()[200]);
}

TEST(LaunchClasses, WhatChangedIsNotWhole) {
  Ring ring;
  ring.look(std::vector<std::uint8_t>(2000, 5));
  EXPECT_FALSE(ring.whole);
  EXPECT_FALSE(ring.classes.wanted()[5]);
  ring.look({1});
  EXPECT_FALSE(ring.whole) << "what came was partly chosen before";
  ring.look({1});
  EXPECT_TRUE(ring.whole);
}

TEST(LaunchClasses, AfterAWhileOfNothingAllAreTriedAgain) {
  Ring ring;
  ring.look(std::vector<std::uint8_t>(2000, 5));
  for (Time begun = ring.now; ring.now - begun < LaunchClasses::kTryAgain;) ring.look({5});
  EXPECT_TRUE(ring.classes.wanted().all());
}

}  // namespace
}  // namespace switchyard::monitor::iterations
