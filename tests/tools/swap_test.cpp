// swap-out, swap-in, pause --release, resume and ps, against a monitor that answers as the test
// says.
#include "tools/swap/swap.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "fake_monitor.h"
#include "tools/pause/pause.h"
#include "tools/ps/about.h"
#include "tools/ps/ps.h"
#include "tools/set/set.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr std::uint64_t kGiB = 1ull << 30;

struct Said : CommandEnd {
  bool has(const std::string& text) const { return out.find(text) != std::string::npos; }
};

// Runs one command against a monitor that answers so.
Said run_with(Words words, FakeMonitor::Answer answer) {
  const auto monitor = FakeMonitor::answering(std::move(answer));
  const std::vector<void (*)(CommandLine&)> commands = {&add_pause,   &add_resume, &add_swap_out,
                                                        &add_swap_in, &add_ps,     &add_set};
  return {run_command(monitor.socket(), commands, std::move(words))};
}

// Against one that gives `reply` to everything; `asked` is what it heard last.
Said run(Words words, const json& reply, json* asked = nullptr) {
  return run_with(std::move(words), [&](const json& request) {
    if (asked != nullptr) *asked = request;
    return reply;
  });
}

json job(const std::string& residency, const std::string& state = "running") {
  const bool there = residency == "resident";
  return {{"ok", true},
          {"name", "train"},
          {"state", state},
          {"swappable", true},
          {"residency", residency},
          {"drained", true},
          {"gpus",
           {{{"uuid", "GPU-aa"},
             {"memory_used_bytes", 12 * kGiB},
             {"memory_resident_bytes", there ? 12 * kGiB : 2 * kGiB},
             {"memory_swapped_bytes", there ? 0 : 10 * kGiB},
             {"swap_error", nullptr}}}}};
}

json listing(json one) { return {{"ok", true}, {"jobs", {std::move(one)}}}; }

TEST(Swap, OutAsksAndSaysHowMuchHasLeft) {
  json asked;
  const Said said = run({"swap-out", "train"}, job("swapped"), &asked);
  EXPECT_EQ(said.code, kOk) << said.err;
  EXPECT_EQ(asked, (json{{"op", "swap-out"}, {"target", "train"}}));
  EXPECT_EQ(said.out, "train: its memory (10 GiB) is swapped out\n");
  EXPECT_TRUE(
      run({"swap-out", "train"}, {{"ok", true}, {"residency", "swapped"}}).has("no memory"));
}

TEST(Swap, OutTellsHowMuchOfItIsOnAnotherGpu) {
  json parked = job("swapped");
  parked["gpus"][0]["memory_parked_bytes"] = 6 * kGiB;
  EXPECT_EQ(run({"swap-out", "train"}, parked).out,
            "train: its memory (10 GiB) is swapped out, 6 GiB of it to another GPU\n");
}

// The pause is answered late, and the listing says how far it is.
Said within(Words words, const json& listed, std::chrono::milliseconds late) {
  return run_with(std::move(words), [&, late](const json& request) {
    if (request["op"] == "ps") return listing(listed);
    std::this_thread::sleep_for(late);
    return job("swapped", "paused");
  });
}

TEST(Swap, APauseThatIsNotOutWithinATimeSaysWhatStays) {
  json moving = job("moving", "paused");
  moving["job"] = "slurm-42";
  moving["gpus"][0]["memory_swappable_bytes"] = 12 * kGiB;
  const Words words = {"pause", "--release", "--within", "50ms", "train"};
  const Said late = within(words, moving, std::chrono::seconds(2));
  EXPECT_EQ(late.code, kTimedOut);
  EXPECT_NE(late.err.find("'train' is paused, and 2 GiB are still on the GPU after 50ms"),
            std::string::npos)
      << late.err;
  EXPECT_EQ(late.out, "");
}

TEST(Swap, APauseThatIsOutWithinATimeSaysNothing) {
  const Said early = within({"pause", "--release", "--within", "60s", "train"},
                            job("swapped", "paused"), std::chrono::seconds(0));
  EXPECT_EQ(early.code, kOk);
  EXPECT_EQ(early.err + early.out, "");
  const Said json_too = within({"pause", "--release", "--within", "60s", "--json", "train"},
                               job("swapped", "paused"), std::chrono::seconds(0));
  EXPECT_EQ(json::parse(json_too.out)["residency"], "swapped");
}

TEST(Swap, ATimeToWaitIsOneAndGoesWithARelease) {
  const json reply = job("swapped");
  EXPECT_EQ(run({"pause", "--within", "2s", "train"}, reply).code, kUsage);
  for (const char* bad : {"0", "none", "soon", "-1s"}) {
    EXPECT_EQ(run({"pause", "--release", std::string("--within=") + bad, "train"}, reply).code,
              kUsage)
        << bad;
  }
}

TEST(Swap, InSaysWhereItIs) {
  json asked;
  EXPECT_EQ(run({"swap-in", "train"}, job("resident"), &asked).out,
            "train: its memory is on the GPU\n");
  EXPECT_EQ(asked["op"], "swap-in");
  EXPECT_TRUE(run({"swap-in", "train"}, job("waiting")).has("10 GiB of its memory wait"));
  EXPECT_TRUE(run({"swap-in", "train"}, job("moving")).has("is being copied"));
}

TEST(Swap, AsJson) {
  const Said said = run({"swap-out", "train", "--json"}, job("swapped"));
  EXPECT_EQ(json::parse(said.out)["residency"], "swapped");
}

TEST(Swap, WhatTheMonitorRefusesIsTheExitCodeAndTheReason) {
  for (const int code : {kNoSuchJobOrGpu, kNoPermission, kRefusedByPolicy, kTimedOut}) {
    const Said said =
        run({"swap-out", "train"}, {{"ok", false}, {"code", code}, {"error", "because"}});
    EXPECT_EQ(said.code, code);
    EXPECT_EQ(said.out, "");
    EXPECT_NE(said.err.find("because"), std::string::npos);
  }
}

TEST(Swap, APauseReleasesWhenItIsAskedTo) {
  json asked;
  const Said said =
      run({"pause", "--release", "train", "--timeout", "60s"}, job("swapped", "paused"), &asked);
  EXPECT_EQ(asked["release"], true);
  EXPECT_EQ(asked["timeout_seconds"], 60);
  EXPECT_EQ(said.out, "train: paused for 60s; its memory (10 GiB) is swapped out\n");
  EXPECT_FALSE(asked.contains("contexts"));
  run({"pause", "--release", "--contexts", "train"}, job("swapped", "paused"), &asked);
  EXPECT_EQ(asked["release"], true);
  EXPECT_EQ(asked["contexts"], true);
  run({"pause", "train"}, job("resident", "paused"), &asked);
  EXPECT_FALSE(asked.contains("release"));
}

TEST(Swap, ResumeSaysWhenItHasToWait) {
  EXPECT_EQ(run({"resume", "train"}, job("resident")).out, "train: resumed\n");
  EXPECT_TRUE(run({"resume", "train"}, job("waiting", "paused")).has("for room on the GPU"));
  EXPECT_EQ(run({"resume", "train"}, {{"ok", true}}).out, "train: resumed\n")
      << "a monitor that knows no residency";
}

TEST(Swap, PsShowsWhereTheMemoryIs) {
  EXPECT_TRUE(run({"ps"}, listing(job("swapped", "swapped"))).has(" swapped "));
  EXPECT_TRUE(run({"ps"}, listing(job("moving", "moving"))).has(" moving "));
  EXPECT_TRUE(run({"ps"}, listing(job("resident"))).has(" running "));
}

TEST(Swap, PsShowsTheReasonThatTheMonitorGives) {
  json waiting = job("waiting", "waiting");
  waiting["state_reason"] = "memory of serve";
  EXPECT_TRUE(run({"ps"}, listing(waiting)).has(" waiting: memory of serve "));
  json paused = job("swapped", "paused");
  paused["state_reason"] = "swapped";
  EXPECT_TRUE(run({"ps"}, listing(paused)).has(" paused: swapped "));
  paused["pause_seconds"] = 42;
  EXPECT_TRUE(run({"ps"}, listing(paused)).has(" paused: swapped, 42s left "));
}

TEST(Swap, PsWideShowsWhatIsResidentOfASwappableJob) {
  const Said with = run({"ps", "-o", "wide"}, listing(job("swapped")));
  EXPECT_TRUE(with.has("RESIDENT"));
  EXPECT_TRUE(with.has(" 2G ")) << with.out;
  json plain = job("resident");
  plain["swappable"] = false;
  EXPECT_FALSE(run({"ps", "-o", "wide"}, listing(plain)).has(" 12G ")) << "12G/- is its memory";
  EXPECT_FALSE(run({"ps"}, listing(plain)).has("RESIDENT"));
}

TEST(Swap, PsTellsWhatOfTheMemoryStaysAndWhy) {
  json one = job("swapped");
  json& gpu = one["gpus"][0];
  gpu["memory_swappable_bytes"] = 11 * kGiB;
  gpu["memory_overhead_bytes"] = kGiB / 2;
  gpu["memory_stays_bytes"] = {{"small_allocations", kGiB / 4},
                               {"ipc_exported", kGiB / 4},
                               {"of_a_newer_monitor", 5},
                               {"multicast", 0},
                               {"odd", "text"}};
  gpu["swap_moved_out_bytes"] = 20 * kGiB;
  gpu["swap_moved_in_bytes"] = 9 * kGiB;
  gpu["swap_spared_bytes"] = kGiB;
  gpu["swap_times_out"] = 3;
  EXPECT_EQ(
      run({"ps", "--memory"}, listing(one)).out,
      "NAME   GPU       USED  SWAPPABLE  ON GPU  OVERHEAD     OUT     IN  SKIPPED  TIMES  STAYS\n"
      "train  GPU-aa  12 GiB     11 GiB   1 GiB   512 MiB  20 GiB  9 GiB    1 GiB      3  "
      "256 MiB allocations below 2 MiB, 256 MiB IPC-exported, 5 B of a newer monitor\n");
  EXPECT_EQ(json::parse(run({"ps", "--memory", "--json"}, listing(one))
                            .out)["jobs"][0]["gpus"][0]["swap_times_out"],
            3);
}

TEST(Swap, PsOfAMonitorThatDoesNotKnowWhatStays) {
  const Said said = run({"ps", "--memory"}, listing(job("resident")));
  EXPECT_TRUE(said.has("train  GPU-aa  12 GiB")) << said.out;
  json bare = job("resident");
  bare["gpus"] = json::array();
  EXPECT_TRUE(run({"ps", "--memory"}, listing(bare)).has("train  -"));
  // A page and an account may differ for a moment.
  json more = job("swapped");
  more["gpus"][0]["memory_swappable_bytes"] = 8 * kGiB;
  more["gpus"][0]["memory_swapped_bytes"] = 10 * kGiB;
  EXPECT_TRUE(run({"ps", "--memory"}, listing(more)).has(" 8 GiB     0 B "));
}

TEST(Swap, PsSaysWhyMemoryIsNotWhereItShouldBe) {
  json stuck = job("resident");
  stuck["gpus"][0]["swap_error"] = "the host has no room for it";
  EXPECT_TRUE(
      run({"ps"}, listing(stuck)).has("train: swapping failed: the host has no room for it"));
  stuck["gpus"][0]["swap_error"] = "it waits for room on the GPU";
  stuck["gpus"][0]["swap_waits_for_room"] = true;
  EXPECT_TRUE(run({"ps"}, listing(stuck)).has("\ntrain: it waits for room on the GPU\n"));
}

TEST(Ps, TheListingHasTimesAndCommandsOfOnesOwnJobs) {
  json mine = job("resident");
  mine["uid"] = ::geteuid();
  mine["since_seconds"] = 3600;
  mine["processes"] = {{{"pid", ::getpid()}}};
  const json said = json::parse(run({"ps", "--json"}, listing(mine)).out);
  EXPECT_TRUE(said["monitor"].is_null());
  EXPECT_EQ(said["time"].get<std::string>().size(), std::string("2026-11-26T21:03:12Z").size());
  EXPECT_LT(said["jobs"][0]["started"], said["time"]);
  EXPECT_NE(said["jobs"][0]["command"].get<std::string>().find("tools_test"), std::string::npos);
  EXPECT_EQ(utc_text(std::chrono::system_clock::from_time_t(86400)), "1970-01-02T00:00:00Z");
}

// The process is ours, and the job says that it is another user's.
TEST(Ps, ACommandIsOnlyOfAProcessOfTheJobsOwner) {
  EXPECT_TRUE(command_of(static_cast<std::uint64_t>(::getpid()), ::geteuid() + 1).is_null());
  EXPECT_TRUE(command_of(1u << 30, ::geteuid()).is_null());
}

// Somebody who is neither the owner nor root. (A test that root does not run is one already.)
TEST(Ps, ACommandIsForItsOwnerAndRoot) {
  const auto as_nobody = [] {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(2);
    ::_exit(command_of(1, 0).is_null() ? 0 : 1);
  };
  EXPECT_EXIT(as_nobody(), ::testing::ExitedWithCode(0), "");
  const json own = command_of(static_cast<std::uint64_t>(::getpid()), ::geteuid());
  EXPECT_TRUE(own.is_string());
}

// A monitor that lets its first order of this kind wait until Ctrl-C has come.
TEST(Swap, CtrlCCancelsTheOrderAndSaysSo) {
  const struct {
    Words words;
    const char* op;
    bool was_paused;
    const char* undo;
  } cases[] = {{{"swap-out", "train"}, "swap-out", false, "swap-in"},
               {{"pause", "train", "--release"}, "pause", false, "resume"},
               {{"pause", "train", "--release"}, "pause", true, "swap-in"}};
  const pthread_t waits = ::pthread_self();
  for (const auto& each : cases) {
    Words asked;
    const Said said = run_with(each.words, [&](const json& request) -> json {
      const std::string op = request["op"];
      if (op == "ps") return listing(job("resident", each.was_paused ? "paused" : "running"));
      asked.push_back(op);
      if (op == each.op) {
        ::pthread_kill(waits, SIGINT);
        // The command no longer waits; what the monitor says now reaches nobody.
        std::this_thread::sleep_for(std::chrono::seconds(2));
      }
      return job("resident");
    });
    EXPECT_EQ(said.code, 130) << said.out;
    EXPECT_EQ(asked, (Words{each.op, each.undo}));
    EXPECT_NE(said.err.find(std::string("the ") + each.op + " of 'train' is cancelled"),
              std::string::npos)
        << said.err;
  }
}

TEST(Swap, AResumeOfAJobThatWasNotPausedSaysSo) {
  json reply = job("resident");
  reply["was_paused"] = false;
  EXPECT_TRUE(run({"resume", "train"}, reply).has("train: it was not paused"));
  reply["was_paused"] = true;
  EXPECT_TRUE(run({"resume", "train"}, reply).has("train: resumed"));
  reply.erase("was_paused");
  EXPECT_TRUE(run({"resume", "train"}, reply).has("train: resumed"));
}

TEST(Set, AQuotaBelowWhatIsUsedSaysWhatFollows) {
  json reply = job("resident");
  reply["gpus"][0]["memory_used_bytes"] = 264 << 20;
  reply["gpus"][0]["memory_quota_bytes"] = 100 << 20;
  reply["gpus"][0]["index"] = 3;
  reply["before"] = {{"memory", "1GiB"}};
  const Said said = run({"set", "train", "--memory", "100MiB"}, reply);
  EXPECT_EQ(said.code, 0);
  EXPECT_NE(
      said.err.find("train: 264 MiB are in use on GPU 3: nothing is taken from it; it gets no "
                    "more until it has freed 164 MiB"),
      std::string::npos)
      << said.err;
  reply["gpus"][0]["memory_quota_bytes"] = 300 << 20;
  EXPECT_EQ(run({"set", "train", "--memory", "300MiB"}, reply).err, "");
}

TEST(Set, TheArrowIsOneThatTheLocaleHas) {
  json reply = job("resident");
  reply["before"] = {{"share", "1"}};
  ::setenv("LC_ALL", "C", 1);
  EXPECT_TRUE(run({"set", "train", "--share", "4"}, reply).has("train: share 1 -> 4"));
  ::setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_TRUE(run({"set", "train", "--share", "4"}, reply).has("train: share 1 → 4"));
  ::unsetenv("LC_ALL");
}

}  // namespace
}  // namespace switchyard::tools
