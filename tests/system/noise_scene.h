// A job of several ranks whose gradient noise is measured, and the same computed by the test.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gradients.h"
#include "tests/system/gang_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {

// The figures of a training of so many ranks and steps in the end: all steps smoothed, as KungFu
// does it.
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

inline double square(const std::vector<unsigned char>& numbers, ncclDataType_t type) {
  double sum = 0;
  for (std::size_t at = 0; at < numbers.size() / nccl_type_bytes(type); ++at) {
    const double number = gradients::get(numbers.data(), at, type);
    sum += number * number;
  }
  return sum;
}

inline Expected expect(int ranks, int steps, const std::string& type_name) {
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
      for (std::size_t rank = 1; rank < all.size(); ++rank) {
        gradients::add(all[0], all[rank], type);
      }
      mean += square(all[0], type) / (ranks * ranks);
    }
    out.add(local, mean, ranks);
  }
  return out;
}

class Noise : public Gang {
 protected:
  Noise() { program_ = "job_noise"; }

  void begin(int ranks, const std::string& every = "yes") {
    Changes changes{{"SWITCHYARD_GRADIENT_NOISE", every}};
    changes.insert(changes.end(), more_.begin(), more_.end());
    Gang::begin(ranks, 2, changes);
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
  // So many steps that the first ones are forgotten, no faster than the monitor reads.
  void train(const std::string& how) {
    do_all("train 40 " + how);
    train_on(how);
  }
  // After the first 40. The first steps show what repeats, and count only then. The monitor lags by
  // less than the norms that a page has room for.
  void train_on(const std::string& how) {
    int counted = noise_after(15)["steps"];
    for (int i = 0; i < 3; ++i) {
      do_all("train 30 " + how);
      noise_after(counted += 30);
    }
    trained_ += 40 + 3 * 30;
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
  // pre: two ranks, which were told to measure each fourth step.
  void expect_each_fourth(const std::string& way) {
    do_all("train 60 fp32 " + way);
    ASSERT_TRUE(comes_to("measured"));
    // A norm before and one after each sum, on each rank; a step may have a metric besides.
    constexpr long kOfAStep = 2 * 2 * std::size(gradients::kBuckets);
    constexpr long kOfAMetric = 2 * 2;
    // Until the monitor has told the library how it finds a step.
    ASSERT_TRUE(eventually([&] {
      fresh_norms();
      do_all("train 8 fp32 " + way);
      return fresh_norms() <= 3 * kOfAStep + kOfAMetric;
    }));
    const int before = noise()["steps"];
    for (int i = 1; i <= 5; ++i) {
      do_all("train 40 fp32 " + way);
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
  void expect_measured(int ranks, const std::string& type, const std::string& way) {
    auto daemon = monitor({}, two_gpus());
    train_and_expect(ranks, type, way);
  }
  // pre: a monitor.
  void train_and_expect(int ranks, const std::string& type, const std::string& way) {
    begin(ranks);
    train(type + " " + way);
    const Expected expected = expect(ranks, trained_, type);
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

  int trained_ = 0;  // steps
  Changes more_;     // in the environment of all ranks

 private:
  long norms_ = 0;
};

}  // namespace switchyard::system_tests
