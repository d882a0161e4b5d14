// The gradient noise of a job whose reduce-scatters go to a communicator of their own
// (--gradient-noise together with --urgent-collectives), in real processes.
#include "tests/system/noise_scene.h"

namespace switchyard::system_tests {
namespace {

class NoiseWithTwins : public Noise {
 protected:
  NoiseWithTwins() { more_ = {{"SWITCHYARD_URGENT_COLLECTIVES", "yes"}}; }

  // Operations that each rank has launched in a twin.
  std::vector<long> in_twin() {
    std::vector<long> out;
    for (const json& each : communicators()) {
      if (each["twin_of"].is_null()) continue;
      for (const json& rank : each["ranks"]) out.push_back(rank["launched"]);
    }
    return out;
  }
  // A job with a twin is measured as one without; `scattered` buckets of each step go there.
  void expect_both(int ranks, const std::string& way, long scattered) {
    auto daemon = monitor({}, two_gpus());
    train_and_expect(ranks, "fp32", way);
    EXPECT_EQ(ask_all("sums"), Words(ranks_.size(), "sums right"));
    EXPECT_EQ(ask_all("live"), Words(ranks_.size(), "live 2"));
    EXPECT_EQ(in_twin(), std::vector<long>(ranks_.size(), scattered * trained_));
    // The program knows nothing of the twin.
    EXPECT_EQ(noise()["communicator"], original());
  }
  json original() {
    for (const json& each : communicators()) {
      if (each["twin_of"].is_null()) return each["id"];
    }
    return nullptr;
  }
};

TEST_F(NoiseWithTwins, OfSummedGradients) { expect_both(2, "sum", 0); }
TEST_F(NoiseWithTwins, OfScatteredSums) { expect_both(2, "scatter", 3); }
TEST_F(NoiseWithTwins, OfScatteredSumsBehindAllGathers) { expect_both(2, "sharded", 3); }
TEST_F(NoiseWithTwins, OfScatteredAndOtherSums) { expect_both(2, "mixed", 2); }
TEST_F(NoiseWithTwins, OfScatteredAndOtherSumsInAGroup) { expect_both(2, "mixedgroup", 2); }

TEST_F(NoiseWithTwins, EachFourthStepIsEnough) {
  auto daemon = monitor({}, two_gpus());
  begin(2, "4");
  expect_each_fourth("mixed");
  EXPECT_EQ(ask_all("sums"), Words(2, "sums right"));
}

TEST_F(NoiseWithTwins, OfAChildWhoseParentIsDestroyed) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("train 20 fp32 mixed");
  do_all("split");
  EXPECT_EQ(ask_all("live"), Words(2, "live 2"));
  train("fp32 mixed");  // what came before is forgotten by then
  noise_near(expect(2, 20 + trained_, "fp32"));
  EXPECT_EQ(noise()["communicator"], original());
  EXPECT_EQ(ask_all("sums"), Words(2, "sums right"));
  do_all("close");
  EXPECT_EQ(ask_all("live"), Words(2, "live 0"));
  EXPECT_EQ(communicators(), json::array());
}

TEST_F(NoiseWithTwins, AbortedBothLeaveTheGpu) {
  auto daemon = monitor({}, two_gpus());
  begin(2);
  do_all("train 20 fp32 mixed");
  EXPECT_EQ(ask(rank(0), "step fp32 mixed"), "did step");
  do_all("abort");
  do_all("sync");
  EXPECT_EQ(ask_all("live"), Words(2, "live 0"));
  EXPECT_EQ(communicators(), json::array());
}

}  // namespace
}  // namespace switchyard::system_tests
