// The gradient noise scale of ranks that are real processes, against the same computed here.
#include <signal.h>

#include "switchyard/norms.h"
#include "switchyard/status.h"
#include "tests/system/noise_scene.h"

namespace switchyard::system_tests {
namespace {

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
  expect_each_fourth("sum");
}

// The first layers of the first step look as if each were a step.
TEST_F(Noise, OfLayersAlikeEachFourthStepIsEnough) {
  auto daemon = monitor({}, two_gpus());
  begin(2, "4");
  do_all("train 2 fp32 layers");
  noise_after(10);  // layers
  const auto trained_to = [&](auto holds) {
    return eventually([&] {
      do_all("train 4 fp32 layers");
      return holds(noise()["steps"].get<int>());
    });
  };
  EXPECT_TRUE(trained_to([](int steps) { return steps < 10; })) << noise();
  EXPECT_TRUE(trained_to([](int steps) { return steps >= 10; })) << noise();
  // A page has room for the norms of nine steps: no faster than the monitor reads.
  const int before = noise()["steps"];
  for (int told = before + 1; told <= before + 20; ++told) {
    do_all("train 4 fp32 layers");
    noise_after(told);
  }
  // Some may have been on their way before. By layers there were hundreds more.
  EXPECT_LE(noise()["steps"].get<int>(), before + 40);
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
  train_on("fp32 sum");
  const json before = noise_near(expect(2, trained_, "fp32"));
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
