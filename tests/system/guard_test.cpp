// `--guard` with real processes. Kernels take no real time on the simulated GPU, so the scene plays
// how much slower the guarded job becomes.
#include <signal.h>

#include "tests/system/gang_scene.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

// So slow that what is tried lasts for longer than it takes to ask about it.
const char* const kDisturbed = "pace 700";

class Guard : public Gang {
 protected:
  void TearDown() override {
    hog_.clear();
    Gang::TearDown();
  }
  json guard() { return job_named("gang")["guard"]; }
  bool state_becomes(const char* state) {
    return eventually([&] { return guard().is_object() && guard()["state"] == state; });
  }
  // A guarded training whose usual pace is known, on as many GPUs as it has ranks.
  void train(int ranks = 1) {
    begin(ranks, 2, {{"SWITCHYARD_GUARD", "20%"}});
    do_all("begin 40");
    ASSERT_TRUE(state_becomes("quiet")) << guard();
  }
  // Another job that works all the time, on GPU 0 and further ones.
  void hog(int ranks = 1) {
    begin_as("hog", hog_, ranks, 2, {});
    system_tests::ask_all(hog_, "begin 2");
  }
  json held_back_for() { return job_named("hog")["held_back_for"]; }
  bool hog_gets_on() {
    const long before = steps_of(hog_)[0];
    return eventually([&] { return steps_of(hog_)[0] > before + 5; });
  }

  Ranks hog_;
};

TEST_F(Guard, AnInterfererIsHeldBackUntilItEnds) {
  auto daemon = monitor({}, two_gpus());
  train(2);
  hog();
  do_all(kDisturbed);
  ASSERT_TRUE(eventually([&] { return held_back_for() == json::array({"gang"}); })) << guard();
  do_all("pace 40");
  ASSERT_TRUE(state_becomes("answering")) << guard();
  for (const Words& words : {Words{"ps"}, Words{"stats", "--interval", "10ms"}}) {
    const std::string text = cli(words).out;
    EXPECT_NE(text.find("gang: its guard ("), std::string::npos) << text;
    EXPECT_NE(text.find("hog gets "), std::string::npos) << text;
  }
  EXPECT_EQ(differences(listing("ps"), read_schema("ps")), Words{});
  EXPECT_EQ(differences(job_named("gang"), read_schema("job")), Words{});
  hog_.clear();
  EXPECT_TRUE(state_becomes("quiet")) << guard();
}

TEST_F(Guard, ItsOwnEvaluationIsNoAlarm) {
  auto daemon = monitor({}, two_gpus());
  // The other is there before, and goes on as it did.
  begin_as("hog", hog_, 1, 2, {});
  system_tests::ask_all(hog_, "begin 20");
  train();
  do_all("pace 120");
  const long evaluated = steps_of(ranks_)[0] + 20;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(held_back_for(), json::array());
    return steps_of(ranks_)[0] > evaluated;
  }));
  do_all("pace 40");
  const long trained = steps_of(ranks_)[0] + 50;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(held_back_for(), json::array());
    return steps_of(ranks_)[0] > trained;
  }));
}

TEST_F(Guard, WhenTheMonitorDiesNobodyStaysHeld) {
  Child daemon = monitor({"--backend", "gate"}, two_gpus());
  train();
  hog();
  // Whatever is done short of a hold does not help.
  do_all(kDisturbed);
  ASSERT_TRUE(eventually([&] {
    const json measures = guard()["answers"][0]["measures"];
    return gpu_of("hog")["gate"] == "guard" && measures == json::array({"hold"});
  })) << guard();
  kill_and_wait(daemon.pid());
  EXPECT_TRUE(hog_gets_on());
  const Child again = monitor({"--backend", "gate"}, two_gpus());
  EXPECT_TRUE(eventually([&] { return job_named("hog").is_object(); }));
  EXPECT_TRUE(hog_gets_on());
  EXPECT_EQ(gpu_of("hog")["gate"], "open");
}

TEST_F(Guard, AGangIsHeldAsAWholeAndComputesTheSame) {
  auto daemon = monitor({"--backend", "gate"}, two_gpus());
  train(2);
  hog(2);
  do_all(kDisturbed);
  const auto closed = [](const json& gpu) { return gpu["gate"] != "open"; };
  ASSERT_TRUE(eventually([&] {
    const json gpus = job_named("hog")["gpus"];
    return guard()["answers"][0]["measures"] == json::array({"hold"}) &&
           std::all_of(gpus.begin(), gpus.end(), closed);
  })) << guard();
  do_all("pace 40");
  ASSERT_EQ(cli({"set", "gang", "--guard", "none"}).status, 0);
  EXPECT_TRUE(hog_gets_on());
  expect_right_in_the_end(ranks_);
  expect_right_in_the_end(hog_);
}

TEST_F(Guard, WhenTheGuardedJobDiesNobodyStaysHeld) {
  auto daemon = monitor({"--backend", "gate"}, two_gpus());
  train();
  hog();
  do_all(kDisturbed);
  ASSERT_TRUE(eventually([&] { return gpu_of("hog")["gate"] == "guard"; })) << guard();
  ::kill(rank(0).pid(), SIGKILL);
  EXPECT_TRUE(hog_gets_on());
  EXPECT_TRUE(eventually([&] { return held_back_for() == json::array(); }));
}

}  // namespace
}  // namespace switchyard::system_tests
