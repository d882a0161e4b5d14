// Memory that leaves one GPU and is parked on the other, and makes way there. With the real monitor
// and the command line.
#include <signal.h>

#include <string>

#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

class TwoGpusParking : public Release {
 protected:
  // A job with memory on the first GPU alone, in MiB, that sees both.
  void begin_parker(const char* where, std::uint64_t mebibytes = 40, const Words& options = {},
                    Changes changes = {}) {
    Words all = {"--name", "parker", "--swappable", "--park", where};
    all.insert(all.end(), options.begin(), options.end());
    changes.insert(changes.end(), kTwoGpus.begin(), kTwoGpus.end());
    changes.emplace_back("FAKECUDA_PATTERN", "1");
    child_.emplace(
        job(all, {built("tests/jobs/job_swap"), std::to_string(mebibytes * kMiB)}, changes));
    ASSERT_EQ(line(), "ready");
    ask("begin");
  }
  json parker() { return job_named("parker"); }
  std::uint64_t of_parker(const char* key) {
    const json found = parker();
    return found.is_null() || found["gpus"].empty() ? ~std::uint64_t{0}
                                                    : found["gpus"][0].value(key, std::uint64_t{0});
  }
  std::uint64_t on_second(const char* key) {
    return listing("status")["gpus"][1].value(key, ~std::uint64_t{0});
  }
  bool parks(std::uint64_t mebibytes) {
    return eventually([&] { return of_parker("memory_parked_bytes") == mebibytes * kMiB; });
  }
  bool nothing_on_second() {
    return eventually([&] {
      return on_second("memory_parked_bytes") == 0 && on_second("memory_used_bytes") == 0;
    });
  }
  void swap_out() {
    const Child::End out = cli({"swap-out", "parker"});
    ASSERT_EQ(out.status, 0) << out.err;
  }
  void expect_back_as_it_was() {
    ASSERT_EQ(cli({"swap-in", "parker"}).status, 0);
    const std::string before = ask("count");
    EXPECT_TRUE(eventually([&] { return ask("count") != before; }));
    EXPECT_EQ(ask("end"), "did end");
    EXPECT_EQ(ask("check"), "right");
    EXPECT_EQ(of_parker("memory_swapped_bytes"), 0u);
    EXPECT_TRUE(parks(0));
  }
  // Another job on the second GPU with so much memory there.
  Child neighbour(std::uint64_t mebibytes, const Words& options = {}) {
    Words all = {"--name", "neighbour", "--gpus", "1"};
    all.insert(all.end(), options.begin(), options.end());
    return job(all, {built("tests/jobs/job_swap"), std::to_string(mebibytes * kMiB)}, kTwoGpus);
  }
};

TEST_F(TwoGpusParking, WhatLeavesIsOnTheOtherGpuAndComesBackAsItWas) {
  const Child owner = monitor({"--capacity", "500MiB", "--host-pool", "0"}, kTwoGpus);
  begin_parker("peer");
  for (int round = 0; round < 3; ++round) {
    swap_out();
    EXPECT_EQ(of_parker("memory_swapped_bytes"), 40 * kMiB);
    EXPECT_EQ(of_parker("memory_parked_bytes"), 40 * kMiB);
    EXPECT_EQ(of_parker("memory_resident_bytes"), of_parker("memory_overhead_bytes"));
    EXPECT_EQ(on_second("memory_parked_bytes"), 40 * kMiB);
    EXPECT_TRUE(eventually([&] { return on_second("memory_used_bytes") == 40 * kMiB; }))
        << "no context: " << on_second("memory_used_bytes");
    EXPECT_EQ(parker()["gpus"][1].value("memory_used_bytes", std::uint64_t{1}), 0u)
        << "it is nobody's use of that GPU";
    EXPECT_EQ(parker().value("state_reason", ""), "swap-out, parked on GPU 1");
    const std::string held = ask("count");
    EXPECT_EQ(ask("count"), held);
    ASSERT_EQ(cli({"swap-in", "parker"}).status, 0);
    EXPECT_TRUE(eventually([&] { return ask("count") != held; }));
    EXPECT_TRUE(nothing_on_second());
  }
  swap_out();
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, ItMakesWayForAnAllocationOfAnotherJob) {
  const Child owner = monitor({"--capacity", "100MiB"}, kTwoGpus);
  begin_parker("peer");
  swap_out();
  ASSERT_TRUE(parks(40));
  Child other = neighbour(80);
  ASSERT_EQ(line_of(other), "ready") << "it waited until the room was free";
  EXPECT_LT(of_parker("memory_parked_bytes"), 20 * kMiB);
  EXPECT_EQ(of_parker("memory_swapped_bytes"), 40 * kMiB) << "the rest is in the host";
  expect_back_as_it_was();
  EXPECT_EQ(system_tests::ask(other, "check"), "right");
}

TEST_F(TwoGpusParking, ItMakesWayForAReservation) {
  const Child owner = monitor({"--capacity", "100MiB"}, kTwoGpus);
  begin_parker("peer");
  swap_out();
  ASSERT_TRUE(parks(40));
  Child other = neighbour(80, {"--memory", "95MiB"});
  ASSERT_EQ(line_of(other), "ready");
  EXPECT_EQ(of_parker("memory_parked_bytes"), 0u);
  EXPECT_EQ(of_parker("memory_swapped_bytes"), 40 * kMiB);
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, WhatIsReservedIsNeverParkedIn) {
  const Child owner = monitor({"--capacity", "100MiB"}, kTwoGpus);
  Child other = neighbour(8, {"--memory", "90MiB"});
  ASSERT_EQ(line_of(other), "ready");
  begin_parker("peer");
  const Child::End refused = cli({"swap-out", "parker"});
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("no other GPU that it sees has room"), std::string::npos)
      << refused.err;
  // Room that the attempt might have used counts as parked until the monitor has looked once more.
  EXPECT_TRUE(eventually([&] { return on_second("memory_parked_bytes") == 0; }));
  const std::string before = ask("count");
  EXPECT_TRUE(eventually([&] { return ask("count") != before; })) << "it works on";
}

TEST_F(TwoGpusParking, AutoUsesTheHostForWhatFindsNoRoom) {
  const Child owner = monitor({"--capacity", "100MiB"}, kTwoGpus);
  Child other = neighbour(8, {"--memory", "80MiB"});
  ASSERT_EQ(line_of(other), "ready");
  begin_parker("auto", 72);
  swap_out();
  EXPECT_EQ(of_parker("memory_swapped_bytes"), 72 * kMiB);
  EXPECT_EQ(of_parker("memory_parked_bytes"), 8 * kMiB);
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, WhoSeesOneGpuUsesTheHostAndPsSaysWhy) {
  begin_parker("auto", 40, {"--gpus", "0"});
  swap_out();
  EXPECT_EQ(of_parker("memory_parked_bytes"), 0u);
  EXPECT_EQ(of_parker("memory_swapped_bytes"), 40 * kMiB);
  EXPECT_EQ(parker()["gpus"][0].value("not_parked_reason", ""), "its process sees no other GPU");
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, WhereTheDriverGivesNothingItGoesToTheHost) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  // Two chunks are made on the first GPU; the second that is parked fails.
  begin_parker("auto", 64, {},
               {{"FAKECUDA_FAIL", "cuMemCreate:4=2"}, {"FAKECUDA_FAILED", in_folder("failed")}});
  swap_out();
  EXPECT_EQ(of_parker("memory_parked_bytes"), 32 * kMiB);
  EXPECT_EQ(of_parker("memory_swapped_bytes"), 64 * kMiB);
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, TheContextsLeaveOnlyOnceNothingIsParked) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  begin_parker("auto");
  swap_out();
  ASSERT_TRUE(parks(40));
  const Child::End away = cli({"pause", "--release", "--contexts", "parker"});
  ASSERT_EQ(away.status, 0) << away.err;
  EXPECT_EQ(of_parker("memory_parked_bytes"), 0u);
  EXPECT_TRUE(nothing_on_second());
  ASSERT_EQ(cli({"resume", "parker"}).status, 0);
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, WhoIsKilledAtAnyStepGivesTheRoomBack) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  for (const char* step : {"leaving", "parked", "moving on", "returning"}) {
    begin_parker("peer", 200);
    std::optional<Child> out;
    std::optional<Child> other;
    if (std::string(step) == "leaving") {
      out.emplace(start({built("switchyard"), "swap-out", "parker"}));
      eventually([&] { return of_parker("memory_parked_bytes") != 0; });
    } else {
      swap_out();
      ASSERT_TRUE(parks(200));
    }
    if (std::string(step) == "moving on") other.emplace(neighbour(400));
    if (std::string(step) == "returning") {
      out.emplace(start({built("switchyard"), "swap-in", "parker"}));
    }
    kill_and_wait(child_->pid());
    child_.reset();
    if (out) out->finish(kLimit);
    if (other) {
      EXPECT_EQ(line_of(*other), "ready");
      kill_and_wait(other->pid());
    }
    EXPECT_TRUE(eventually([&] { return parker().is_null(); }));
    EXPECT_TRUE(nothing_on_second()) << step;
  }
}

TEST_F(TwoGpusParking, ANewMonitorFindsWhatIsParked) {
  Child owner = monitor({"--capacity", "100MiB"}, kTwoGpus);
  begin_parker("peer");
  // A person's release outlives the monitor.
  ASSERT_EQ(cli({"pause", "--release", "parker"}).status, 0);
  ASSERT_TRUE(parks(40));
  kill_and_wait(owner.pid());
  const Child again = monitor({"--capacity", "100MiB"}, kTwoGpus);
  ASSERT_TRUE(eventually([&] { return !parker().is_null(); }));
  EXPECT_TRUE(eventually([&] {
    return of_parker("memory_parked_bytes") == on_second("memory_parked_bytes") &&
           of_parker("memory_swapped_bytes") == 40 * kMiB;
  }));
  Child other = neighbour(80);
  EXPECT_EQ(line_of(other), "ready");
  ASSERT_EQ(cli({"resume", "parker"}).status, 0);
  expect_back_as_it_was();
}

TEST_F(TwoGpusParking, AJobThatTakesTurnsParksAndComesBackFromThere) {
  const Child owner = monitor({"--capacity", "100MiB"}, kTwoGpus);
  child_.emplace(job({"--name", "parker", "--oversubscribe", "--park", "auto"},
                     {built("tests/jobs/job_swap"), std::to_string(60 * kMiB)},
                     {{"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_PATTERN", "1"}}));
  ASSERT_EQ(line(), "ready");
  ask("begin");
  Child other = job({"--name", "other", "--oversubscribe", "--gpus", "0"},
                    {built("tests/jobs/job_swap"), std::to_string(60 * kMiB)}, kTwoGpus);
  ASSERT_EQ(line_of(other), "ready") << "the first gave it room";
  EXPECT_NE(of_parker("memory_parked_bytes"), 0u);
  EXPECT_EQ(system_tests::ask(other, "begin"), "did begin");
  const std::string mine = ask("count");
  EXPECT_TRUE(eventually([&] { return ask("count") != mine; }));
  EXPECT_TRUE(parks(0)) << "soon after it works again";
  EXPECT_EQ(system_tests::ask(other, "end"), "did end");
  EXPECT_EQ(system_tests::ask(other, "check"), "right");
  EXPECT_EQ(other.finish(kLimit).status, 0);
  EXPECT_EQ(ask("end"), "did end");
  EXPECT_EQ(ask("check"), "right");
}

}  // namespace
}  // namespace switchyard::system_tests
