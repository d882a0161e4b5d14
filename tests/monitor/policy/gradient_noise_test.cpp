// The gradient noise scale of gradients whose noise is known.
#include "monitor/policy/gradient_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/support/seeds.h"

namespace switchyard::monitor::noise {
namespace {

constexpr std::size_t kSize = 400;  // of a bucket's gradient
// As the library tells of a bucket whose step is not measured.
constexpr Squares kNotDue{std::numeric_limits<double>::quiet_NaN(),
                          std::numeric_limits<double>::quiet_NaN()};

// A bucket's true gradient is `value` everywhere, and each rank's has noise of that deviation.
struct Layer {
  double value = 0;
  double deviation = 0;
  double gradient() const { return kSize * value * value; }
  double variance() const { return kSize * deviation * deviation; }
};

class Training {
 public:
  explicit Training(unsigned ranks) : ranks_(ranks), estimator(ranks) {}

  // The mean over the ranks of a rank's square, and the square of the mean.
  Squares draw(const Layer& layer) {
    std::normal_distribution<double> normal(layer.value, layer.deviation);
    Squares out;
    for (std::size_t i = 0; i < kSize; ++i) {
      double sum = 0;
      for (unsigned rank = 0; rank < ranks_; ++rank) {
        const double g = normal(random_);
        out.local += g * g / ranks_;
        sum += g;
      }
      out.mean += sum / ranks_ * (sum / ranks_);
    }
    return out;
  }
  void add(std::uint32_t what, std::optional<Squares> squares, bool after_loss = false) {
    estimator.add({what, what, ++number_, squares, after_loss});
  }
  void step(const std::vector<Layer>& layers) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      add(static_cast<std::uint32_t>(1000 + i), draw(layers[i]));
    }
  }
  void steps(int count, const std::vector<Layer>& layers) {
    for (int i = 0; i < count; ++i) step(layers);
  }
  void skip(std::uint64_t numbers) { number_ += numbers; }

 private:
  unsigned ranks_;
  std::mt19937 random_{7};
  std::uint64_t number_ = 0;

 public:
  Estimator estimator;
};

TEST(GradientNoise, TheEstimatesAreFreeOfBias) {
  for (const unsigned ranks : {2u, 4u, 8u}) {
    if (ranks > 2 && test_support::seeds_of_longest() == 0) break;
    Training training(ranks);
    const Layer layer{0.1, 1};
    Squares sum;
    constexpr int kSteps = 4000;
    for (int i = 0; i < kSteps; ++i) sum += training.draw(layer);
    const Estimate mean = estimate({sum.local / kSteps, sum.mean / kSteps}, ranks);
    EXPECT_NEAR(mean.gradient, layer.gradient(), 0.1 * layer.gradient()) << ranks;
    EXPECT_NEAR(mean.variance, layer.variance(), 0.01 * layer.variance()) << ranks;
  }
}

TEST(GradientNoise, TheAlgebraIsExact) {
  // N = 4, |g_i|² = 10, |g|² = 4: G = (16 - 10) / 3, S = 6 / (3 / 4).
  const Estimate found = estimate({10, 4}, 4);
  EXPECT_DOUBLE_EQ(found.gradient, 2);
  EXPECT_DOUBLE_EQ(found.variance, 8);
}

TEST(GradientNoise, TheRatioIsTheTrueOne) {
  const std::vector<Layer> layers{{0.3, 1}, {0.1, 0.5}, {0.2, 2}};
  double gradient = 0, variance = 0;
  for (const Layer& layer : layers) {
    gradient += layer.gradient();
    variance += layer.variance();
  }
  Training training(4);
  training.steps(100, layers);
  const auto result = training.estimator.result();
  ASSERT_TRUE(result && result->ratio);
  const double truth = variance / gradient / 4;
  EXPECT_NEAR(*result->ratio, truth, 4 * result->spread);
  EXPECT_GT(result->spread, 0.002 * truth);
  EXPECT_LT(result->spread, 0.2 * truth);
}

TEST(GradientNoise, TheSpreadIsThatOfTheResult) {
  std::vector<double> ratios;
  double said = 0;
  Training training(4);
  const std::vector<Layer> layers{{0.2, 1}, {0.3, 1}};
  for (int i = 0; i < 40; ++i) {
    training.steps(80, layers);  // so many that the last result is forgotten
    const auto result = training.estimator.result();
    ASSERT_TRUE(result && result->ratio);
    ratios.push_back(*result->ratio);
    said += result->spread / 40;
  }
  double mean = 0, square = 0;
  for (const double ratio : ratios) mean += ratio / 40;
  for (const double ratio : ratios) square += (ratio - mean) * (ratio - mean) / 39;
  EXPECT_GT(said, std::sqrt(square) / 2);
  EXPECT_LT(said, std::sqrt(square) * 2);
}

// A sum of smoothed buckets is the smoothed sum, wherever the round begins.
TEST(GradientNoise, ItIsTheSmoothedSumOfAllBuckets) {
  Training training(2);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> any(1, 2);
  Squares smoothed;
  for (int step = 0; step < 300; ++step) {
    Squares sum;
    for (std::uint32_t bucket = 0; bucket < 5; ++bucket) {
      const Squares squares{2 * any(random), any(random)};
      training.add(500 + bucket, squares);
      sum += squares;
    }
    const double part = step == 0 ? 1 : 1 - kDecay;
    smoothed.local += part * (sum.local - smoothed.local);
    smoothed.mean += part * (sum.mean - smoothed.mean);
  }
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  const Estimate expected = estimate(smoothed, 2);
  EXPECT_NEAR(result->smoothed.gradient, expected.gradient, 1e-6 * std::abs(expected.gradient));
  EXPECT_NEAR(result->smoothed.variance, expected.variance, 1e-6 * std::abs(expected.variance));
}

TEST(GradientNoise, BucketsOfOneSizeAreTheGradientToo) {
  Training training(2);
  for (int step = 0; step < 100; ++step) {
    training.add(9, Squares{1, 1});
    for (int i = 0; i < 3; ++i) training.add(5, Squares{2, 2});
  }
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->smoothed.gradient, 7);
}

TEST(GradientNoise, AMetricIsNotCounted) {
  Training training(2);
  for (int step = 0; step < 200; ++step) {
    training.add(500, Squares{3, 2});
    training.add(600, Squares{3, 2});
    if (step % 10 == 0) training.add(77, Squares{1e6, 1e6});
  }
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->smoothed.gradient, estimate({6, 4}, 2).gradient, 1e-9);
  EXPECT_NEAR(result->smoothed.variance, estimate({6, 4}, 2).variance, 1e-9);
}

TEST(GradientNoise, AStepThatOverflowedIsLeftOut) {
  Training training(2);
  const double infinite = std::numeric_limits<double>::infinity();
  for (int step = 0; step < 100; ++step) {
    const bool bad = step % 7 == 3;
    training.add(5, bad ? Squares{infinite, std::nan("")} : Squares{3, 2});
    training.add(6, Squares{3, 2});
  }
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->smoothed.gradient, estimate({6, 4}, 2).gradient);
  EXPECT_LT(result->steps, 90u);
}

TEST(GradientNoise, ABucketThatARankLacksIsLeftOut) {
  Training training(2);
  for (int step = 0; step < 100; ++step) {
    training.add(5, step % 5 == 0 ? std::nullopt : std::optional<Squares>({3, 2}));
    training.add(6, Squares{3, 2});
  }
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->smoothed.variance, estimate({6, 4}, 2).variance);
}

TEST(GradientNoise, WhereTheGradientIsNotToldFromZeroThereIsNoRatio) {
  Training training(2);
  training.steps(100, {{0, 1}});
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->ratio);
  EXPECT_NEAR(result->smoothed.variance, kSize, kSize / 4.0);
}

TEST(GradientNoise, FewStepsAreNoResult) {
  Training training(2);
  training.steps(12, {{0.1, 1}, {0.1, 1}});
  EXPECT_FALSE(training.estimator.result());
}

TEST(GradientNoise, OtherBucketsBeginAnew) {
  Training training(2);
  for (int step = 0; step < 100; ++step) training.add(5, Squares{3, 2});
  for (int step = 0; step < 400; ++step) {
    training.add(6, Squares{30, 20});
    training.add(7, Squares{30, 20});
  }
  const auto result = training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->smoothed.gradient, estimate({60, 40}, 2).gradient);
}

TEST(GradientNoise, TheCadenceIsThatOfTheMarker) {
  Training training(2);
  EXPECT_EQ(training.estimator.cadence(), Cadence{});
  for (int step = 0; step < 40; ++step) {
    training.add(5, Squares{3, 2});
    training.add(6, Squares{3, 2});
    training.skip(step % 10 == 9 ? 2 : 1);  // others that are not measured
  }
  const Cadence cadence = training.estimator.cadence();
  EXPECT_EQ(cadence.stride, 3u);
  EXPECT_TRUE(cadence.elements == 5 || cadence.elements == 6);
  // As the library measures then: each fourth step.
  for (int step = 0; step < 40; ++step) {
    training.add(5, Squares{3, 2});
    training.add(6, Squares{3, 2});
    training.skip(10);
  }
  EXPECT_EQ(training.estimator.cadence(), cadence);
}

// A sharded model: its layers have one size, and its last bucket has another. The library measures
// each second step. It knows a step by the cadence that the monitor told it after the step before.
class Sharded {
 public:
  static constexpr int kLayers = 24;

  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  Training training{2};

 private:
  void step() {
    for (int layer = 0; layer < kLayers; ++layer) collective(10, Squares{2, 2});
    collective(11, Squares{3, 3});
    number_ += kLayers + 1;  // what the next step gathers
    training.skip(kLayers + 1);
    told_ = training.estimator.cadence();
  }
  void collective(std::uint32_t what, Squares squares) {
    ++number_;
    if (told_.stride == 0 || what == told_.elements) {
      due_ = told_.stride == 0 || number_ / told_.stride % 2 == 0;
    }
    training.add(what, due_ ? squares : kNotDue);
  }

  std::uint64_t number_ = 0;
  Cadence told_;
  bool due_ = true;
};

TEST(GradientNoise, TheFirstLayersOfAShardedModelAreNoSteps) {
  Sharded model;
  model.steps(60);
  ASSERT_TRUE(model.training.estimator.result());
  const std::size_t before = model.training.estimator.result()->steps;
  model.steps(40);
  const auto result = model.training.estimator.result();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->steps, before + 20);
  EXPECT_DOUBLE_EQ(result->smoothed.gradient, Sharded::kLayers * 2 + 3);
  EXPECT_EQ(model.training.estimator.cadence(), (Cadence{11, 2 * (Sharded::kLayers + 1)}));
}

TEST(GradientNoise, AShortStepIsNoStrideForGood) {
  Training training(2);
  auto step = [&, due = false](std::uint64_t operations) mutable {
    due = !due;
    training.add(5, due ? Squares{3, 2} : kNotDue);
    training.skip(operations - 1);
  };
  for (int i = 0; i < 40; ++i) step(10);
  step(5);
  step(10);
  EXPECT_EQ(training.estimator.cadence().stride, 5u);
  for (int i = 0; i < 8; ++i) step(10);
  EXPECT_EQ(training.estimator.cadence().stride, 10u);
}

// Layers of one size are told apart by their places.
TEST(GradientNoise, ARoundThatLacksSomeDoesNotCount) {
  Training training(2);
  const auto step = [&](int first, int last, bool after_loss) {
    for (int layer = first; layer < last; ++layer) {
      const double norm = 1 + layer;
      training.add(layer == 0 ? 4 : 5, Squares{norm, norm}, after_loss && layer == first);
    }
  };
  for (int i = 0; i < 40; ++i) step(0, 10, false);
  const auto before = training.estimator.result();
  ASSERT_TRUE(before);
  step(0, 3, false);
  step(7, 10, true);
  step(0, 10, false);
  step(0, 1, false);  // its marker
  const auto result = training.estimator.result();
  EXPECT_DOUBLE_EQ(result->smoothed.gradient, 55);
  EXPECT_EQ(result->steps, before->steps + 2) << "that before the loss was not closed yet";
}

// --- what the ranks tell ---

constexpr Relation kSum{}, kAverage{false, false}, kScattered{true, true};

Told told(std::uint64_t number, double before, double after, Relation relation = kSum,
          std::uint64_t elements = 8192) {
  return {number, elements, relation, before, after};
}

TEST(GradientReports, AreABucketOnceAllHaveTold) {
  Ranks ranks(2);
  EXPECT_TRUE(ranks.add(0, told(7, 10, 36)).empty());
  EXPECT_EQ(ranks.telling(), 1u);
  const auto found = ranks.add(1, told(7, 20, 36));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].number, 7u);
  ASSERT_TRUE(found[0].squares);
  EXPECT_DOUBLE_EQ(found[0].squares->local, 15);
  EXPECT_DOUBLE_EQ(found[0].squares->mean, 9);  // the sum is twice the mean
}

TEST(GradientReports, AnAverageIsTheMean) {
  Ranks ranks(2);
  ranks.add(0, told(7, 10, 9, kAverage));
  EXPECT_DOUBLE_EQ(ranks.add(1, told(7, 20, 9, kAverage))[0].squares->mean, 9);
}

TEST(GradientReports, ThePartsOfAScatteredSumAreAdded) {
  Ranks ranks(2);
  ranks.add(0, told(7, 10, 30, kScattered));
  EXPECT_DOUBLE_EQ(ranks.add(1, told(7, 20, 6, kScattered))[0].squares->mean, 9);
}

TEST(GradientReports, ComeInTheOrderOfTheirNumbers) {
  Ranks ranks(2);
  ranks.add(0, told(7, 1, 1));
  ranks.add(0, told(8, 1, 1));
  EXPECT_TRUE(ranks.add(0, told(9, 1, 1)).empty());
  EXPECT_EQ(ranks.add(1, told(7, 1, 1)).size(), 1u);
  const auto rest = ranks.add(1, told(9, 1, 1));
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].number, 8u);
  EXPECT_FALSE(rest[0].squares) << "one rank did not tell it";
  EXPECT_TRUE(rest[1].squares);
  EXPECT_TRUE(ranks.add(1, told(8, 1, 1)).empty()) << "too late";
}

TEST(GradientReports, RanksThatAreOnlyClaimedTakeNoRoom) {
  Ranks ranks(4096);
  ranks.bound(2, 16);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    for (const unsigned rank : {7u, 4095u, 12u, 4096u}) ranks.add(rank, told(i, 1, 1));
    EXPECT_LE(ranks.pending(), 16u);
  }
  EXPECT_EQ(ranks.size(), 4096u);
  EXPECT_EQ(ranks.telling(), 2u) << "of a third process the monitor knows nothing";
}

TEST(GradientReports, OfARankThatTellsNothingMoreAreNotKeptForEver) {
  Ranks ranks(2);
  std::size_t given_up = 0;
  for (std::uint64_t i = 1; i <= 3 * Ranks::kMostPending; ++i) {
    for (const Bucket& bucket : ranks.add(0, told(i, 1, 1))) {
      EXPECT_FALSE(bucket.squares);
      ++given_up;
    }
  }
  EXPECT_EQ(given_up, 2 * Ranks::kMostPending);
  EXPECT_EQ(ranks.telling(), 1u);
}

TEST(GradientReports, ThatContradictEachOtherHaveNoNorms) {
  Ranks sizes(2), kinds(2), twice(2);
  sizes.add(0, told(1, 1, 1, kSum, 100));
  EXPECT_FALSE(sizes.add(1, told(1, 1, 1, kSum, 101))[0].squares);
  kinds.add(0, told(1, 1, 1, kSum));
  EXPECT_FALSE(kinds.add(1, told(1, 1, 1, kAverage))[0].squares);
  twice.add(0, told(1, 1, 1));
  EXPECT_FALSE(twice.add(0, told(1, 1, 1))[0].squares);
}

TEST(GradientReports, AfterALossTheFirstBucketSaysSo) {
  Ranks ranks(2);
  Told late = told(9, 1, 1);
  late.after_loss = true;
  EXPECT_TRUE(ranks.add(0, late).empty());
  ranks.add(0, told(10, 1, 1));
  std::vector<Bucket> all = ranks.add(1, told(8, 1, 1));
  for (const std::uint64_t number : {9u, 10u}) {
    for (Bucket& bucket : ranks.add(1, told(number, 1, 1))) all.push_back(bucket);
  }
  ASSERT_EQ(all.size(), 3u);
  EXPECT_FALSE(all[0].after_loss);
  EXPECT_TRUE(all[1].after_loss);
  EXPECT_FALSE(all[2].after_loss);
}

TEST(GradientReports, OfARankThatIsNoneAreIgnored) {
  Ranks ranks(2);
  EXPECT_TRUE(ranks.add(2, told(1, 1, 1)).empty());
  EXPECT_TRUE(ranks.add(0, told(0, 1, 1)).empty());
  EXPECT_EQ(ranks.telling(), 0u);
}

TEST(GradientReports, OfDifferentKindsAreDifferentBuckets) {
  Ranks ranks(1);
  const std::uint32_t sum = ranks.add(0, told(1, 1, 1, kSum))[0].what;
  const std::uint32_t average = ranks.add(0, told(2, 1, 1, kAverage))[0].what;
  const std::uint32_t scattered = ranks.add(0, told(3, 1, 1, kScattered))[0].what;
  EXPECT_NE(sum, average);
  EXPECT_NE(sum, scattered);
  EXPECT_EQ(ranks.add(0, told(4, 1, 1, kSum))[0].what, sum);
}

}  // namespace
}  // namespace switchyard::monitor::noise
