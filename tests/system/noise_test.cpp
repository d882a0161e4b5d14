// The gradient noise scale of ranks that are real processes, against the same computed here.
#include <signal.h>

#include <cmath>
#include <utility>

#include "switchyard/norms.h"
#include "switchyard/status.h"
#include "tests/support/gradients.h"
#include "tests/system/gang_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

// What a training of so many ranks and steps has in the end: all steps smoothed, as KungFu does it.
struct Expected {
  double gradient = 0, variance = 0;

  void add(double local, double mean, double ranks) {
    const double fresh_gradient = (ranks * mean - local) / (ranks - 1);
    const double fresh_variance = (local - mean) / (1 - 1 / ranks);
    const double part = steps_++ == 0 ? 1 : 0.1;
    gradient += part * (fresh_gradient - gradient);
    variance += part * (fresh_variance - variance);
  }

 private:
  int steps_ = 0;
};

// Sums as NCCL has them: in the type of the numbers.
std::vector<unsigned char> sum_of(const std::vector<std::vector<unsigned char>>& all,
                                  ncclDataType_t type) {
  std::vector<unsigned char> sum = all[0];
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t at = 0; at < sum.size() / nccl_type_bytes(type); ++at) {
      gradients::put(
          sum.data(), at,
          gradients::get(sum.data(), at, type) + gradients::get(all[rank].data(), at, type), type);
    }
  }
  return sum;
}

double square(const std::vector<unsigned char>& numbers, ncclDataType_t type) {
  double sum = 0;
  for (std::size_t at = 0; at < numbers.size() / nccl_type_bytes(type); ++at) {
    const double number = gradients::get(numbers.data(), at, type);
    sum += number * number;
  }
  return sum;
}

Expected expect(int ranks, int steps, const std::string& type_name) {
  const ncclDataType_t type = gradients::type_of(type_name);
  Expected out;
  for (int step = 0; step < steps; ++step) {
    double local = 0, mean = 0;
    for (std::size_t bucket = 0; bucket < std::size(gradients::kBuckets); ++bucket) {
      std::vector<std::vector<unsigned char>> all;
      for (int rank = 0; rank < ranks; ++rank) {
        all.push_back(gradients::bucket_of(rank, step, bucket, type));
        local += square(all.back(), type) / ranks;
      }
      mean += square(sum_of(all, type), type) / (ranks * ranks);
    }
    out.add(local, mean, ranks);
  }
  return out;
}

class Noise : public Gang {
 protected:
  Noise() { program_ = "job_noise"; }

  void begin(int ranks, const std::string& every = "yes") {
    Gang::begin(ranks, 2, {{"SWITCHYARD_GRADIENT_NOISE", every}});
  }
  json noise() { return job_named("gang")["gradient_noise"]; }
  // Once so many steps have been told, or more.
  json noise_after(int steps) {
    json said;
    EXPECT_TRUE(eventually([&] {
      said = noise();
      return said.is_object() && said["steps"].get<int>() >= steps;
    })) << said;
    return said;
  }
  bool comes_to(const char* state) {
    return eventually([&] { return noise()["state"] == state; });
  }
  // So many steps that the first ones are forgotten, no faster than the monitor reads. Answers how
  // many.
  int train(const std::string& how) {
    do_all("train 40 " + how);
    return 40 + train_on(how);
  }
  // After the first 40. The first steps show what repeats, and count only then. The monitor lags by
  // less than the norms that a page has room for.
  int train_on(const std::string& how) {
    int counted = noise_after(15)["steps"];
    for (int i = 0; i < 3; ++i) {
      do_all("train 30 " + how);
      noise_after(counted += 30);
    }
    return 3 * 30;
  }
  // Until the last bucket was told: it changes both by more than this.
  json noise_near(const Expected& expected) {
    json said;
    const auto near = [&](const char* key, double value) {
      return std::abs(said[key].get<double>() - value) < 1e-5 * value;
    };
    EXPECT_TRUE(eventually([&] {
      said = noise();
      return near("gradient_square", expected.gradient) &&
             near("gradient_variance", expected.variance);
    })) << said
        << " " << expected.gradient << " " << expected.variance;
    return said;
  }
  // The monitor has looked at all pages since: one tick adds to the GPU seconds first, then it
  // reads norms.
  bool looked_again() {
    const auto gpu_seconds = [this] { return job_named("gang")["gpu_seconds"].get<double>(); };
    const double before = gpu_seconds();
    return eventually([&] { return gpu_seconds() > before; });
  }
  // Kernels that compute norms, of all ranks since the last call.
  long fresh_norms() {
    long all = 0;
    for (const std::string& said : ask_all("norms")) all += std::stol(said.substr(6));
    return all - std::exchange(norms_, all);
  }
  void expect_measured(int ranks, const std::string& type, const std::string& way) {
    auto daemon = monitor({}, two_gpus());
    begin(ranks);
    const int steps = train(type + " " + way);
    const Expected expected = expect(ranks, steps, type);
    const json said = noise_near(expected);
    EXPECT_EQ(said["state"], "measured");
    const double ratio = expected.variance / expected.gradient / ranks;
    EXPECT_NEAR(said["critical_batch_ratio"].get<double>(), ratio, 1e-3 * ratio);
    EXPECT_GT(said["critical_batch_spread"], 0.0);
    EXPECT_EQ(said["ranks"], ranks);
    EXPECT_EQ(said["telling_ranks"], ranks);
    EXPECT_EQ(said["unmeasured"], json::array());
    EXPECT_EQ(differences(job_named("gang"), read_schema("job")), Words{});
  }

 private:
  long norms_ = 0;
};

TEST_F(Noise, OfSummedGradients) { expect_measured(2, "fp32", "sum"); }
TEST_F(Noise, OfFourRanks) { expect_measured(4, "fp32", "sum"); }
TEST_F(Noise, OfAveragedGradients) { expect_measured(2, "fp32", "average"); }
TEST_F(Noise, OfGradientsInAGroup) { expect_measured(2, "fp32", "group"); }
TEST_F(Noise, OfScatteredSums) { expect_measured(2, "fp32", "scatter"); }
TEST_F(Noise, OfSumsInAnotherBuffer) { expect_measured(2, "fp32", "apart"); }
TEST_F(Noise, OfGradientsInFp16) { expect_measured(2, "fp16", "sum"); }
TEST_F(Noise, OfGradientsInBf16) { expect_measured(2, "bf16", "sum"); }

TEST_F(Noise, StatsTellsIt) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("train 60 fp32 sum");
  ASSERT_TRUE(comes_to("measured"));
  const std::string text = cli({"stats", "gang", "--interval", "10ms"}).out;
  EXPECT_NE(text.find("gang: gradient noise: critical batch about "), std::string::npos) << text;
  EXPECT_NE(text.find(" x yours (spread "), std::string::npos) << text;
  const json said = json::parse(cli({"stats", "--json", "--interval", "10ms"}).out);
  EXPECT_EQ(differences(said, read_schema("stats")), Words{});
  EXPECT_EQ(said["jobs"][0]["gradient_noise"]["state"], "measured");
}

TEST_F(Noise, EachFourthStepIsEnough) {
  auto daemon = monitor({}, two_gpus());
  begin(2, "4");
  do_all("train 60 fp32 sum");
  ASSERT_TRUE(comes_to("measured"));
  // A norm before and one after each sum, on each rank; a step may have a metric besides.
  constexpr long kOfAStep = 2 * 2 * std::size(gradients::kBuckets);
  constexpr long kOfAMetric = 2 * 2;
  // Until the monitor has told the library how it finds a step.
  ASSERT_TRUE(eventually([&] {
    fresh_norms();
    do_all("train 8 fp32 sum");
    return fresh_norms() <= 3 * kOfAStep + kOfAMetric;
  }));
  const int before = noise()["steps"];
  for (int i = 1; i <= 5; ++i) {
    do_all("train 40 fp32 sum");
    noise_after(before + 10 * i - 2);
  }
  const long norms = fresh_norms();
  EXPECT_GE(norms, 48 * kOfAStep);
  EXPECT_LE(norms, 54 * kOfAStep + 200 / gradients::kMetricEvery * kOfAMetric);
  const json said = noise();
  EXPECT_EQ(said["every"], 4);
  // The mean of all steps is known: 0.3² and 1² times the mean of a drawn square, 1/3.
  EXPECT_NEAR(said["critical_batch_ratio"].get<double>(), 1 / 0.09 / 2, 0.5) << said;
}

TEST_F(Noise, WhoDoesNotAskIsNotMeasured) {
  auto daemon = monitor({}, two_gpus());
  Gang::begin(2);
  do_all("train 20 fp32 sum");
  EXPECT_EQ(ask_all("norms"), (Words{"norms 0", "norms 0"}));
  EXPECT_TRUE(noise().is_null());
  EXPECT_EQ(cli({"stats", "--interval", "10ms"}).out.find("gradient noise"), std::string::npos);
}

TEST_F(Noise, OneRankHasNone) {
  auto daemon = monitor({}, two_gpus());
  begin(1);
  do_all("train 20 fp32 sum");
  EXPECT_TRUE(comes_to("one_rank"));
  EXPECT_NE(cli({"stats", "--interval", "10ms"}).out.find("it has one rank"), std::string::npos);
}

TEST_F(Noise, NothingIsAddedToAGraph) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  EXPECT_TRUE(comes_to("no_gradient"));
  do_all("train 20 fp32 graph");
  EXPECT_TRUE(comes_to("not_measured"));
  EXPECT_EQ(noise()["unmeasured"], json::array({"graph"}));
  EXPECT_NE(cli({"stats", "--interval", "10ms"}).out.find("in a CUDA graph"), std::string::npos);
}

TEST_F(Noise, ARankThatComesLateAndOneThatDies) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  ASSERT_TRUE(rank(0).write_line("train 40 fp32 sum"));
  // It waits on the GPU for the other, and tells nothing.
  ASSERT_TRUE(eventually([&] {
    const auto counts = launched();
    return counts.size() == 2 && counts[0] > counts[1];
  }));
  ASSERT_TRUE(looked_again());
  EXPECT_EQ(noise()["telling_ranks"], 0);
  ASSERT_TRUE(rank(1).write_line("train 40 fp32 sum"));
  for (const std::size_t each : {0u, 1u}) EXPECT_EQ(line_of(rank(each)), "did train");
  const json before = noise_near(expect(2, 40 + train_on("fp32 sum"), "fp32"));
  EXPECT_EQ(before["state"], "measured");
  const long last = launched()[0];
  ::kill(rank(1).pid(), SIGKILL);
  ASSERT_TRUE(eventually([&] { return job_named("gang")["processes"].size() == 1; }));
  ASSERT_TRUE(rank(0).write_line("train 1 fp32 sum"));
  ASSERT_TRUE(eventually([&] { return launched()[0] > last; }));
  ASSERT_TRUE(looked_again());
  EXPECT_EQ(noise(), before);
}

TEST_F(Noise, AnotherMonitorBeginsAnew) {
  {
    auto daemon = monitor({}, two_gpus());
    begin(2);
    do_all("train 60 fp32 sum");
    ASSERT_TRUE(comes_to("measured"));
  }
  auto next = monitor({}, two_gpus());
  ASSERT_TRUE(eventually([&] {
    const json job = job_named("gang");
    return job.is_object() && job["processes"].size() == 2;
  }));
  EXPECT_EQ(noise()["steps"], 0);
  do_all("train 60 fp32 sum");
  EXPECT_TRUE(comes_to("measured"));
}

}  // namespace
}  // namespace switchyard::system_tests
