// Classes and weights become slices, and `set` changes them while the jobs run.
#include <algorithm>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

// The loops here work without end, and a high job that does so leaves the others a minimum.
const Words kNoMinimum{"--minimum", "0%"};

class Sharing : public Scene {
 protected:
  bool slice_becomes(const std::string& name, long compute_us) {
    return eventually([&] { return gpu_of(name)["slice_in_force_us"] == compute_us; });
  }
  // The driver's own slice, 2048 us, whether or not the shim had to give it back.
  bool slice_becomes_default(const std::string& name) {
    return eventually([&] {
      const json gpu = gpu_of(name);
      return gpu["compute_slice_us"] == 0 &&
             (gpu["slice_in_force_us"] == 0 || gpu["slice_in_force_us"] == 2048);
    });
  }
  long slice(const std::string& name) { return gpu_of(name)["slice_in_force_us"]; }
};

TEST_F(Sharing, AJobAloneIsLeftAlone) {
  auto only = loop({"--name", "only", "--priority", "low"});
  EXPECT_TRUE(eventually([this] { return gpu_of("only")["active"] == true; }));
  const json gpu = gpu_of("only");
  EXPECT_EQ(gpu["compute_slice_us"], 0);
  EXPECT_EQ(gpu["slice_in_force_us"], 0);
}

TEST_F(Sharing, BesideAnActiveHighALowHasTwentyMicroseconds) {
  auto daemon = monitor(kNoMinimum);
  auto high = loop({"--name", "high", "--priority", "high"});
  auto low = loop({"--name", "low", "--priority", "low"});
  EXPECT_TRUE(slice_becomes("low", 20));
  EXPECT_TRUE(slice_becomes("high", 10000));
  EXPECT_EQ(gpu_of("low")["copy_slice_us"], 50);
  EXPECT_EQ(gpu_of("low")["slice_status"], "accepted");
  // The low one gets its slice back when the high one has gone.
  EXPECT_EQ(high.finish(kLimit).status, 0);
  EXPECT_TRUE(slice_becomes_default("low"));
}

TEST_F(Sharing, AHighThatWorksWithoutEndLeavesTheMinimum) {
  auto high = loop({"--name", "high", "--priority", "high"});
  auto low = loop({"--name", "low", "--priority", "low"});
  EXPECT_TRUE(slice_becomes("low", 1020));
  EXPECT_TRUE(slice_becomes("high", 50000));
}

TEST_F(Sharing, WeightsAreTheRatioOfSlices) {
  auto heavy = loop({"--name", "heavy", "--share", "4"});
  auto light = loop({"--name", "light"});
  EXPECT_TRUE(eventually([this] {
    const long small = slice("light");
    return small >= 2000 && slice("heavy") == 4 * small;
  })) << slice("heavy")
      << " " << slice("light");
  EXPECT_NEAR(gpu_of("heavy")["share_asked_ratio"].get<double>(), 0.8, 0.001);
}

TEST_F(Sharing, SetChangesWeightAndClassOfRunningJobs) {
  auto daemon = monitor(kNoMinimum);
  auto first = loop({"--name", "first"});
  auto second = loop({"--name", "second"});
  ASSERT_TRUE(
      eventually([this] { return slice("first") > 0 && slice("first") == slice("second"); }));
  ASSERT_EQ(cli({"set", "first", "--share", "3"}).status, 0);
  EXPECT_TRUE(
      eventually([this] { return slice("second") > 0 && slice("first") == 3 * slice("second"); }));
  ASSERT_EQ(cli({"set", "first", "--priority", "high"}).status, 0);
  EXPECT_TRUE(slice_becomes("second", 20));
  ASSERT_EQ(cli({"set", "first", "--priority", "low"}).status, 0);
  EXPECT_TRUE(
      eventually([this] { return slice("second") > slice("first") && slice("first") >= 2000; }));
  EXPECT_EQ(first.finish(kLimit).status, 0);
}

TEST_F(Sharing, SetAsJsonShowsTheJob) {
  auto child = loop({"--name", "one"});
  const auto end = cli({"set", "one", "--priority", "high", "--json"});
  const json job = json::parse(end.out);
  EXPECT_EQ(job["schema_version"], 1);
  EXPECT_EQ(job["name"], "one");
  EXPECT_EQ(job["priority"], "high");
}

TEST_F(Sharing, TwoLowJobsBesideAHighOneAreNeverBothShort) {
  auto daemon = monitor(kNoMinimum);
  auto high = loop({"--name", "high", "--priority", "high"});
  auto low1 = loop({"--name", "low1", "--priority", "low"});
  auto low2 = loop({"--name", "low2", "--priority", "low"});
  // They take turns: now one is short, now the other.
  for (const char* holder : {"low1", "low2", "low1"}) {
    EXPECT_TRUE(eventually([this, holder] {
      const auto jobs = listing("ps")["jobs"];
      EXPECT_LE(
          std::count_if(jobs.begin(), jobs.end(),
                        [](const json& job) { return job["gpus"][0]["slice_in_force_us"] == 20; }),
          1);
      return slice(holder) == 20;
    })) << holder;
  }
}

TEST_F(Sharing, MeansNoneGivesTheDriversSlicesBackAndAutoTheOthers) {
  auto daemon = monitor(kNoMinimum);
  auto high = loop({"--name", "high", "--priority", "high"});
  auto low = loop({"--name", "low", "--priority", "low"});
  ASSERT_TRUE(slice_becomes("low", 20));
  ASSERT_EQ(cli({"backend", "none"}).status, 0);
  EXPECT_TRUE(slice_becomes_default("low"));
  EXPECT_TRUE(slice_becomes_default("high"));
  EXPECT_EQ(listing("status")["gpus"][0]["means"], "none");
  ASSERT_EQ(cli({"backend", "auto"}).status, 0);
  EXPECT_TRUE(slice_becomes("low", 20));
}

}  // namespace
}  // namespace switchyard::system_tests
