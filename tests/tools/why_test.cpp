// Why a job does not run, or is slow: each row of the table of sentences.h.
#include "tools/why/why.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "fake_monitor.h"
#include "tools/why/sentences.h"

namespace switchyard::tools::why_tests {
namespace {

using nlohmann::json;

constexpr std::uint64_t kGiB = 1ull << 30;

json serve() {
  return {{"job", "jserve"},      {"name", "serve"},     {"user", "bob"},
          {"priority", "normal"}, {"share_weight", 3.0}, {"swappable", true}};
}

// The job "train" of alice, for 42 s in this state.
json train(const std::string& state, const json& reason, const std::string& text = "") {
  return {{"job", "jtrain"},
          {"name", "train"},
          {"user", "alice"},
          {"priority", "normal"},
          {"share_weight", 1.0},
          {"state", state},
          {"reason", reason},
          {"state_text", text.empty() ? state : text},
          {"state_since_seconds", 42.0},
          {"residency", "resident"},
          {"gpus", {{{"index", 0}, {"memory_used_bytes", 8 * kGiB}, {"active", true}}}}};
}

json by_serve(json job) {
  job["state_by"] = {{"job", "jserve"}, {"name", "serve"}, {"user", "bob"}};
  return job;
}

json by_person(json job, const std::string& user) {
  job["state_by"] = {{"job", nullptr}, {"name", nullptr}, {"user", user}};
  return job;
}

json swapped(json job, std::uint64_t away, const std::string& residency) {
  job["residency"] = residency;
  job["gpus"][0]["memory_swappable_bytes"] = 8 * kGiB;
  job["gpus"][0]["memory_swapped_bytes"] = away;
  return job;
}

json standing(json job, const std::string& why, std::initializer_list<unsigned> pids) {
  job["processes"] = json::array({{{"pid", 1}, {"standstill", nullptr}}});
  for (const unsigned pid : pids) job["processes"].push_back({{"pid", pid}, {"standstill", why}});
  return job;
}

std::string why(const json& job, const json& lately = nullptr, const json& other = serve()) {
  return why_text({job, other}, job, lately);
}

json lately(double gpu, json waits, json slices_of = json::array()) {
  return {{"interval_seconds", 1.0},
          {"gpu_seconds", gpu},
          {"gpu_seconds_estimated", 0.0},
          {"waits_ratio", std::move(waits)},
          {"slices_of", std::move(slices_of)}};
}

TEST(Why, PausedNamesThePersonAndTheTimeThatIsLeft) {
  json job = by_person(train("paused", "pause"), "root");
  EXPECT_EQ(why(job),
            "train has been paused for 42 s, by root: no new work of it reaches the GPU. "
            "`switchyard resume train` lets it go on.");
  job["pause_seconds"] = 60.0;
  EXPECT_EQ(why(job),
            "train has been paused for 42 s, by root: no new work of it reaches the GPU. The pause "
            "ends by itself in 1 min 00 s. `switchyard resume train` lets it go on now.");
  EXPECT_NE(why(swapped(job, 8 * kGiB, "swapped")).find("8 GiB of its memory are off the GPU"),
            std::string::npos);
}

TEST(Why, StoppedNamesTheProcessAndWhatLetsItGoOn) {
  EXPECT_EQ(why(standing(train("stopped", "signal"), "signal", {7, 8})),
            "train has been stopped for 42 s: a signal, as of Ctrl-Z, stops processes 7, 8. `kill "
            "-CONT 7 8` lets it go on, and so does `fg` in its shell.");
  EXPECT_EQ(why(standing(train("stopped", "debugger"), "debugger", {7})),
            "train has been stopped for 42 s: a debugger holds process 7. It goes on when the "
            "debugger continues it or detaches.");
  EXPECT_NE(why(standing(train("stopped", "frozen"), "frozen", {7})).find("docker unpause"),
            std::string::npos);
  EXPECT_NE(
      why(standing(train("stopped", "core dump"), "core dump", {7})).find("core dump. It ends"),
      std::string::npos);
  EXPECT_NE(why(standing(train("stopped", "disk"), "disk", {7})).find("process 7 waits for a disk"),
            std::string::npos);
}

TEST(Why, AMoveToAnotherGpuSaysWhereAndHowFar) {
  json job = swapped(train("moving", "move"), 2 * kGiB, "moving");
  job["state_reason"] = "to GPU 1";
  EXPECT_EQ(
      why(job),
      "train has been on its way to GPU 1 for 42 s. 25% of 8 GiB are out. Nothing needs to be "
      "done: it goes on by itself.");
  job["reason"] = "move prepares";
  EXPECT_NE(why(job).find("and still works where it is"), std::string::npos);
}

TEST(Why, WhoWaitsForRoomIsToldWhoseItIs) {
  const json job =
      by_serve(swapped(train("waiting", "room", "waiting: 8 GiB of serve"), 8 * kGiB, "waiting"));
  EXPECT_EQ(why(job),
            "train has waited for room on GPU 0 for 42 s: 8 GiB of its memory are off the GPU and "
            "are wanted back. The job 'serve' of bob has the memory. Room comes when serve frees "
            "memory or ends; `switchyard swap-out serve` makes room now.");
  json fixed = serve();
  fixed["swappable"] = false;
  EXPECT_EQ(why(job, nullptr, fixed).find("swap-out serve"), std::string::npos);
  json sees_two = job;
  sees_two["gpus"].push_back({{"index", 1}, {"memory_used_bytes", 0}});
  EXPECT_EQ(why(sees_two), why(job)) << "it has nothing there";
}

TEST(Why, AnAllocationThatWaitsHasItsSizeAndItsHelp) {
  json job = train("waiting", "allocation", "waiting: 2 GiB");
  job["memory_quota_bytes"] = 8 * kGiB;
  EXPECT_EQ(why(job),
            "train has waited for 42 s in an allocation, of 2 GiB. Its quota is 8 GiB; `switchyard "
            "set train --memory SIZE` raises that. `switchyard ps --memory` shows which jobs have "
            "the memory.");
  job["memory_quota_bytes"] = nullptr;
  job["memory_quota_ratio"] = 0.45;
  EXPECT_NE(why(job).find(" Its quota is 45 % of each GPU; "), std::string::npos);
  EXPECT_NE(why(by_serve(train("waiting", "allocation", "waiting: 2 GiB of serve")))
                .find("of 2 GiB. The job 'serve' of bob has the memory."),
            std::string::npos);
}

TEST(Why, SwappedSaysForWhomAndWhatBringsItBack) {
  EXPECT_EQ(why(by_person(swapped(train("swapped", "swap-out"), 8 * kGiB, "swapped"), "carol")),
            "train has been off the GPU for 42 s, for a swap-out by carol: 8 GiB of its memory are "
            "swapped out. `switchyard swap-in train` brings it back.");
  json idle = swapped(train("swapped", "idle release"), 8 * kGiB, "swapped");
  idle["idle_release_seconds"] = 600.0;
  EXPECT_EQ(
      why(idle),
      "train has been off the GPU for 42 s, because it brought no work for 10 min 00 s: 8 GiB "
      "of its memory are swapped out. It comes back by itself with the job's next work.");
  EXPECT_NE(why(by_serve(swapped(train("swapped", "yield"), 8 * kGiB, "swapped")))
                .find("The job 'serve' of bob needs it."),
            std::string::npos);
  EXPECT_NE(
      why(swapped(train("swapped", nullptr), 8 * kGiB, "swapped")).find("8 GiB of its memory"),
      std::string::npos);
}

TEST(Why, MemoryOnItsWaySaysInWhichDirectionAndHowFar) {
  EXPECT_EQ(
      why(swapped(train("moving", "swap-out"), 2 * kGiB, "moving")),
      "The memory of train has been on its way out for 42 s, and it waits meanwhile. 25% of 8 "
      "GiB are out. `switchyard swap-in train` brings it back.");
  EXPECT_EQ(why(swapped(train("moving", "returns"), 2 * kGiB, "moving")),
            "The memory of train has been on its way in for 42 s, and it waits meanwhile. 75% of 8 "
            "GiB are back. Nothing needs to be done: it goes on by itself.");
  for (const json& reason : {json("idle release"), json("yield"), json(nullptr)}) {
    EXPECT_NE(why(swapped(train("moving", reason), kGiB, "moving")).find("on its way out"),
              std::string::npos);
  }
}

TEST(Why, RanksThatAreBeingStoppedSayForWhat) {
  EXPECT_NE(why(train("held", "cut", "stopping for a swap")).find("for a swap, for 42 s"),
            std::string::npos);
  EXPECT_NE(why(train("held", "cut", "stopping for a pause")).find("for a pause, for 42 s"),
            std::string::npos);
  EXPECT_NE(why(train("held", "turn ends")).find("for another job's turn, for 42 s"),
            std::string::npos);
}

TEST(Why, HeldByALimitSaysWhichAndWhatItHadLately) {
  json job = train("held", "limit", "held: limit 30%");
  job["limit_ratio"] = 0.3;
  EXPECT_TRUE(needs_lately(job));
  EXPECT_EQ(why(job, lately(0.3, {{"limit", 0.7}})),
            "train is held, for 42 s: it has used up its --limit of 30% of the GPU's time. "
            "`switchyard set train --limit PART` allows more, and `--limit none` all. In the last "
            "1.0 s it had 30% of the GPU's time, and waited for: limit 70%.");
}

TEST(Why, HeldByAGuardNamesTheJobThatGuardsItself) {
  EXPECT_EQ(why(by_serve(train("held", "guard"))),
            "train is held, for 42 s: it slows down the job 'serve' of bob, which has a --guard. "
            "`switchyard set serve --guard PART` lets it be slowed down by more.");
}

TEST(Why, WaitingForATurnNamesTheJobThatHasTheGpu) {
  const json job = by_serve(train("waiting", "turn"));
  EXPECT_EQ(why(job),
            "train waits for its turn, for 42 s: the job 'serve' of bob has the GPU. `switchyard "
            "set train --share WEIGHT` gives it more; its weight is 1, that of serve 3.");
  json high = serve();
  high["priority"] = "high";
  EXPECT_NE(why(job, nullptr, high)
                .find("serve has priority high and goes first; `switchyard set train --priority "
                      "high` makes them equal."),
            std::string::npos);
  json low = serve();
  low["priority"] = "low";
  EXPECT_NE(why(job, nullptr, low).find("the higher priority"), std::string::npos);
}

TEST(Why, ARunningJobThatOthersSlowDownNamesThem) {
  const json slices = {{{"job", "jx"}, {"name", "x"}, {"ratio", 0.03}},
                       {{"job", "jserve"}, {"name", "serve"}, {"ratio", 0.65}}};
  EXPECT_EQ(
      why(train("running", nullptr), lately(0.3, {{"slices", 0.68}}, slices)),
      "train runs, slowed down by time slices of other jobs. In the last 1.0 s it had 30% of "
      "the GPU's time, and waited for: slices 68% (serve 65%, x 3%). The job 'serve' of bob "
      "had most of that: 65%. `switchyard set train --share WEIGHT` gives it more; its weight "
      "is 1, that of serve 3.");
}

TEST(Why, ARunningJobIsToldWhatItLackedMost) {
  json job = train("running", nullptr);
  const auto says = [&](const json& had, const std::string& text) {
    EXPECT_NE(why(job, had).find(text), std::string::npos) << why(job, had);
  };
  says(lately(0.97, {{"slices", 0.02}}), "nothing holds it: its own work takes the time.");
  says(lately(0.4, {{"turn", 0.6}}), "slowed down by turns of other jobs.");
  says(lately(0.4, {{"memory", 0.6}}), "train runs again.");
  says(lately(0.3, {{"slices", 0.1}}), "nothing of Switchyard's holds it.");
  says(lately(0.3, {{"slices", 0.1}}), "its CPU brought no work");
  // Beside a CPU that brings little work, others still take what they take.
  says(lately(0.1, {{"slices", 0.27}}), "slowed down by time slices of other jobs.");
  says(lately(0.1, {{"slices", 0.27}}), "For the rest its CPU brought no work.");
  job["limit_ratio"] = 0.4;
  says(lately(0.4, {{"limit", 0.6}}), "slowed down by its limit.");
  job["held_back_for"] = {"serve"};
  says(lately(0.4, {{"guard", 0.6}}), "`switchyard set serve --guard PART`");
  EXPECT_EQ(why(job), "train runs.") << "nothing is known of the last second";
  json had = lately(0.97, json::object());
  had["gpu_seconds_estimated"] = 0.9;
  says(had, "it had about 97% of the GPU's time");
}

TEST(Why, OfSeveralGpusItHadTheMean) {
  json job = train("running", nullptr);
  job["gpus"].push_back(job["gpus"][0]);
  EXPECT_NE(why(job, lately(1.0, {{"slices", 0.5}})).find("it had 50% of the GPU's time"),
            std::string::npos);
}

TEST(Why, IdleIsNotOurDoing) {
  EXPECT_EQ(why(train("idle", nullptr)),
            "train has brought no work to the GPU for 42 s. Nothing of Switchyard's holds it.");
  EXPECT_EQ(why(train("idle", "no CUDA")),
            "train has made no CUDA context yet, for 42 s, and none of its processes has called "
            "CUDA. Nothing of Switchyard's holds it.");
  EXPECT_FALSE(needs_lately(train("idle", nullptr)));
}

TEST(Why, UnmanagedNeedsARestart) {
  EXPECT_NE(why(train("unmanaged", "old library")).find("A restart of the job gives it"),
            std::string::npos);
}

TEST(Why, RanksThatStandStillAndFailedSwapsAreTold) {
  json job = train("idle", nullptr);
  job["stalls"] = {{{"rank", 1},
                    {"pid", 9},
                    {"reason", "late"},
                    {"operation", 4},
                    {"waiting_ranks", 1},
                    {"seconds", 5.0},
                    {"does", "stopped"}}};
  EXPECT_NE(why(job).find("Rank 1 (pid 9) has not launched operation number 4, which 1 rank waits "
                          "for, for 5 s: it is stopped by a signal."),
            std::string::npos)
      << why(job);
  job["gpus"][0]["swap_error"] = "the host has no room for it";
  EXPECT_NE(why(job).find("Its last swap failed: the host has no room for it."), std::string::npos);
  job["gpus"][0]["swap_waits_for_room"] = true;
  EXPECT_EQ(why(job).find("Its last swap failed"), std::string::npos) << "it has not failed yet";
}

TEST(Why, AStateOfANewerMonitorIsSaidAsItSaysIt) {
  EXPECT_EQ(why(train("queued", "place", "queued: place 2")),
            "train is queued: place 2, for 42 s.");
}

// The monitor's listings are compared with that schema (tests/system/schema_test.cpp).
TEST(Why, EachReasonOfTheSchemaHasARow) {
  std::ifstream file(SWITCHYARD_SCHEMAS "/job.schema.json");
  const json schema = json::parse(file);
  const json& states = schema["properties"]["state"]["enum"];
  const json& reasons = schema["properties"]["reason"]["enum"];
  ASSERT_GT(reasons.size(), 15u);
  for (const json& reason : reasons) {
    bool told = false;
    for (const json& state : states) {
      const std::string unknown = "train is " + state.get<std::string>() + ", for 42 s.";
      told = told || why(train(state, reason)) != unknown;
    }
    EXPECT_TRUE(told) << reason;
  }
}

struct Said : CommandEnd {
  int asked = 0;
};

// `why WORDS...`, where the monitor lists `job` first and then `later`.
Said command(std::vector<std::string> words, const json& job, const json& later) {
  Said said;
  const auto monitor = FakeMonitor::answering([&](const json&) -> json {
    const json& one = said.asked++ == 0 ? job : later;
    return {{"ok", true}, {"jobs", one.is_null() ? json::array() : json::array({one})}};
  });
  words.insert(words.begin(), "why");
  static_cast<CommandEnd&>(said) = run_command(monitor.socket(), {&add_why}, std::move(words));
  return said;
}

TEST(WhyCommand, LooksTwiceOnlyWhereThatIsPartOfTheAnswer) {
  const json paused = train("paused", "pause");
  const Said once = command({"train"}, paused, paused);
  EXPECT_EQ(once.asked, 1);
  EXPECT_NE(once.out.find("train has been paused"), std::string::npos) << once.err;
  const json job = train("running", nullptr);
  EXPECT_EQ(command({"train"}, job, job).asked, 2);
}

TEST(WhyCommand, AsJsonItHasTheStateTheParagraphAndWhatItHadLately) {
  const json paused = by_person(train("paused", "pause"), "root");
  const Said once = command({"train", "--json"}, paused, paused);
  ASSERT_EQ(once.code, kOk) << once.err;
  const json listing = json::parse(once.out);
  ASSERT_EQ(listing["jobs"].size(), 1u);
  const json& job = listing["jobs"][0];
  EXPECT_EQ(listing["schema_version"], kSchemaVersion);
  EXPECT_EQ(job["state"], "paused");
  EXPECT_EQ(job["reason"], "pause");
  EXPECT_EQ(job["state_by"]["user"], "root");
  EXPECT_EQ(job["why"], why(paused));
  EXPECT_TRUE(job["lately"].is_null());
  const json runs = train("running", nullptr);
  const json had = json::parse(command({"train", "--json"}, runs, runs).out)["jobs"][0]["lately"];
  EXPECT_GT(had["interval_seconds"], 0.9);
  EXPECT_TRUE(had["waits_ratio"].is_object());
}

TEST(WhyCommand, AJobThatIsNotThereOrEndsMeanwhileIs4) {
  const json job = train("running", nullptr);
  EXPECT_EQ(command({"other"}, job, job).code, kNoSuchJobOrGpu);
  const Said ended = command({"train"}, job, nullptr);
  EXPECT_EQ(ended.code, kNoSuchJobOrGpu);
  EXPECT_NE(ended.err.find("ended meanwhile"), std::string::npos) << ended.err;
  EXPECT_EQ(command({}, job, job).code, kUsage);
}

}  // namespace
}  // namespace switchyard::tools::why_tests
