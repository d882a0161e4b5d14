// Rates of collectives between two listings, and the time that they take.
#include "tools/stats/stats.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <sstream>

#include "switchyard/norms.h"
#include "switchyard/paths.h"
#include "tests/tools/fake_monitor.h"
#include "tools/base/terminal.h"
#include "tools/stats/communication.h"
#include "tools/stats/ended.h"
#include "tools/stats/latency.h"
#include "tools/stats/noise.h"
#include "tools/stats/progress.h"
#include "tools/stats/rates.h"
#include "tools/stats/table.h"
#include "tools/stats/waits.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

json rank(int number, long launched, long bytes) {
  return {{"rank", number}, {"pid", 100 + number}, {"launched", launched},
          {"bytes", bytes}, {"point_to_point", 0}, {"last_seconds", 0.5}};
}
json process(int number, const json& kinds) {
  json bytes = json::object();
  for (const auto& [kind, count] : kinds.items()) bytes[kind] = 100 * count.get<long>();
  return {{"pid", 100 + number}, {"collectives", kinds}, {"collective_bytes", bytes}};
}
json listing(const json& ranks, const json& processes) {
  return {{"jobs",
           {{{"job", "j1"},
             {"name", "train"},
             {"processes", processes},
             {"communicators", {{{"id", "aa"}, {"size", 2}, {"ranks", ranks}}}}}}}};
}

TEST(Stats, ARateIsThatOfTheBusiestRankAndProcess) {
  const json before = listing({rank(0, 10, 1000), rank(1, 10, 1000)},
                              {process(0, {{"all_reduce", 10}}), process(1, {{"all_reduce", 10}})});
  const json after = listing(
      {rank(0, 30, 5000), rank(1, 20, 3000)},
      {process(0, {{"all_reduce", 26}, {"broadcast", 4}}), process(1, {{"all_reduce", 20}})});
  const json job = rates(before, after, 2)["jobs"][0];
  EXPECT_EQ(job["collectives_per_second"], 10.0);
  EXPECT_EQ(job["bytes_per_second"], 2000.0);
  EXPECT_EQ(job["kinds_per_second"], (json{{"all_reduce", 8.0}, {"broadcast", 2.0}}));
  EXPECT_EQ(job["kind_bytes_per_second"], (json{{"all_reduce", 800.0}, {"broadcast", 200.0}}));
  const json communicator = job["communicators"][0];
  EXPECT_EQ(communicator["collectives_per_second"], 10.0);
  EXPECT_EQ(communicator["bytes_per_second"], 2000.0);
  EXPECT_EQ(communicator["behind"],
            (json{{{"rank", 1}, {"pid", 101}, {"operations", 10}, {"last_seconds", 0.5}}}));
}

json burst_waits(std::initializer_list<int> counts, double sum) {
  const json most = {1e-4, 2e-4, nullptr};
  json buckets = json::array();
  for (const int count : counts) {
    buckets.push_back({{"most_seconds", most[buckets.size()]}, {"count", count}});
  }
  return {{"sum_seconds", sum}, {"buckets", std::move(buckets)}};
}

json with_waits(const json& waits) {
  return {{"jobs", {{{"job", "j1"}, {"name", "chat"}, {"burst_waits", waits}}}}};
}

TEST(Latency, IsWhatCameBetweenTheTwoLooks) {
  const json job = rates(with_waits(burst_waits({10, 5, 1}, 1.5)),
                         with_waits(burst_waits({40, 5, 11}, 2.0)), 2)["jobs"][0];
  const json& latency = job["latency"];
  EXPECT_EQ(latency["waits"], 40);
  EXPECT_EQ(latency["sum_seconds"], 0.5);
  EXPECT_EQ(latency["buckets"], (json{{{"most_seconds", 1e-4}, {"count", 30}},
                                      {{"most_seconds", 2e-4}, {"count", 0}},
                                      {{"most_seconds", nullptr}, {"count", 10}}}));
  EXPECT_EQ(latency_text(job),
            "chat: 40 waits of bursts for the GPU in 2.0 s, 12.5 ms on average\n"
            "  up to 0.1 ms       30 ##############################\n"
            "  up to 0.2 ms        0 \n"
            "  longer             10 ##########\n");
}

// The monitor was replaced: its counts begin anew.
TEST(Latency, NeverFallsBelowZero) {
  const json job = rates(with_waits(burst_waits({10, 5, 1}, 1.5)),
                         with_waits(burst_waits({0, 6, 0}, 0.1)), 2)["jobs"][0];
  EXPECT_EQ(job["latency"]["waits"], 1);
  EXPECT_EQ(job["latency"]["sum_seconds"], 0);
}

TEST(Latency, WhereThereIsNoneTheTextSaysWhy) {
  const json none = with_waits(burst_waits({0, 0, 0}, 0));
  EXPECT_EQ(latency_text(rates(none, none, 2)["jobs"][0]),
            "chat: no burst was seen to wait in 2.0 s\n");
  const json low = rates(with_waits(nullptr), with_waits(nullptr), 2)["jobs"][0];
  EXPECT_TRUE(low["latency"].is_null());
  EXPECT_EQ(latency_text(low),
            "chat: its waits are not counted: they are those of jobs of priority high\n");
}

TEST(Latency, IsAskedForAndSaysWhichWaitsItSees) {
  json asked = json::array();
  int count = 0;
  const auto monitor = FakeMonitor::answering([&](const json& request) -> json {
    asked.push_back(request.contains("latency"));
    count += 10;
    json out = with_waits(burst_waits({count, 0, 0}, 0));
    out["ok"] = true;
    return out;
  });
  const auto said =
      run_command(monitor.socket(), {&add_stats}, {"stats", "--latency", "--interval", "10ms"});
  EXPECT_EQ(said.code, kOk) << said.err;
  EXPECT_EQ(asked, (json{true, true}));
  EXPECT_NE(said.out.find("chat: 10 waits of bursts"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("while a lower job works beside it"), std::string::npos) << said.out;
  asked = json::array();
  run_command(monitor.socket(), {&add_stats}, {"stats", "--interval", "10ms"});
  EXPECT_EQ(asked, (json{false, false}));
}

TEST(Stats, ASelectionThatNoJobFitsIsSaidAndAnUnknownGpuIsAnError) {
  const auto monitor = FakeMonitor::answering([](const json& request) -> json {
    json out = listing(json::array(), json::array());
    if (request["op"] == "status") out = {{"gpus", {{{"index", 0}, {"uuid", "GPU-aa"}}}}};
    out["ok"] = true;
    return out;
  });
  const auto stats = [&](const char* option, const char* value) {
    return run_command(monitor.socket(), {&add_stats},
                       {"stats", option, value, "--interval", "10ms"});
  };
  for (const auto& said : {stats("--user", "nobody-here"), stats("--gpu", "0")}) {
    EXPECT_EQ(said.code, kOk) << said.err;
    EXPECT_NE(said.err.find("no job fits"), std::string::npos) << said.err;
  }
  for (const char* gpu : {"9", "GPU-b"}) {
    const auto said = stats("--gpu", gpu);
    EXPECT_EQ(said.code, kNoSuchJobOrGpu) << gpu;
    EXPECT_NE(said.err.find("there is no GPU " + std::string(gpu)), std::string::npos) << said.err;
  }
}

TEST(Stats, TheListingNamesItsMonitor) {
  const json served = {{"monitor", {{"pid", 7}}}, {"jobs", json::array()}};
  const json unserved = {{"monitor", nullptr}, {"jobs", json::array()}};
  EXPECT_EQ(rates(served, served, 1)["monitor"], (json{{"pid", 7}}));
  EXPECT_EQ(rates(served, unserved, 1)["monitor"], json()) << "it has ended meanwhile";
}

TEST(Stats, EqualRanksAreNotBehind) {
  const json same = listing({rank(0, 10, 0), rank(1, 10, 0)}, json::array());
  const json job = rates(same, same, 1)["jobs"][0];
  EXPECT_EQ(job["communicators"][0]["behind"], json::array());
  EXPECT_EQ(job["collectives_per_second"], 0.0);
}

TEST(Stats, AProcessThatCameOrWasReplacedHasNoRateYet) {
  const json before =
      listing(json::array({rank(0, 100, 100)}), json::array({process(0, {{"all_reduce", 100}})}));
  const json after = listing({rank(0, 5, 5), rank(1, 5, 5)},
                             {process(0, {{"all_reduce", 5}}), process(1, {{"all_reduce", 5}})});
  const json job = rates(before, after, 1)["jobs"][0];
  EXPECT_EQ(job["collectives_per_second"], 0.0);
  EXPECT_EQ(job["communicators"][0]["collectives_per_second"], 0.0);
  EXPECT_EQ(job["kinds_per_second"], json::object());
}

TEST(Stats, AJobThatCameMeanwhileIsLeftOut) {
  const json after = listing(json::array(), json::array());
  EXPECT_EQ(rates({{"jobs", json::array()}}, after, 1)["jobs"], json::array());
}

TEST(Stats, BytesOfCopiesAreThoseOfAllGpusPerSecond) {
  const auto copied = [](long link, long device) {
    json out = listing(json::array(), json::array());
    out["jobs"][0]["gpus"] = {{{"copied_link_bytes", link}, {"copied_device_bytes", device}},
                              {{"copied_link_bytes", 100}, {"copied_device_bytes", 0}}};
    return out;
  };
  const json job = rates(copied(1000, 50), copied(5000, 70), 2)["jobs"][0];
  EXPECT_EQ(job["copied_link_bytes_per_second"], 2000.0);
  EXPECT_EQ(job["copied_device_bytes_per_second"], 10.0);
  const json fewer = rates(copied(5000, 50), copied(1000, 50), 2)["jobs"][0];
  EXPECT_EQ(fewer["copied_link_bytes_per_second"], 0.0) << "a process has ended";
}

// --- communication ---

json timed(int number, double ratio, const json& hidden, const json& peers) {
  return {{"pid", 100 + number},
          {"communication_state", "timed"},
          {"communication_ratio", ratio},
          {"communication_hidden_ratio", hidden},
          {"communication_peers_ratio", peers}};
}
json communicating(const json& processes) {
  return listing({rank(0, 1, 1), rank(1, 1, 1)}, processes)["jobs"][0];
}

TEST(Communicating, AJobHasTheMeanOfItsRanks) {
  const json out =
      rate_communication(communicating({timed(0, 0.1, 0.5, 0.0), timed(1, 0.3, 0.9, 0.2)}));
  EXPECT_EQ(out["communication_state"], "timed");
  EXPECT_DOUBLE_EQ(out["communication_ratio"], 0.2);
  EXPECT_DOUBLE_EQ(out["communication_hidden_ratio"], 0.8) << "weighted by what it is a part of";
  EXPECT_DOUBLE_EQ(out["communication_peers_ratio"], 0.1);
  EXPECT_EQ(
      out["communication_ranks"][1],
      (json{
          {"rank", 1}, {"pid", 101}, {"ratio", 0.3}, {"hidden_ratio", 0.9}, {"peers_ratio", 0.2}}));
  EXPECT_EQ(communication_text(out), "20% (80% hidden, 10% for peers)");
}

TEST(Communicating, TheRankThatWaitsLeastIsTheOneThatOthersWaitFor) {
  const json out =
      rate_communication(communicating({timed(0, 0.3, 1.0, 0.25), timed(1, 0.1, 1.0, 0.0)}));
  EXPECT_EQ(out["waited_for_rank"], (json{{"rank", 1}, {"pid", 101}, {"ratio", 0.25}}));
  const json same =
      rate_communication(communicating({timed(0, 0.3, 1.0, 0.2), timed(1, 0.3, 1.0, 0.2)}));
  EXPECT_TRUE(same["waited_for_rank"].is_null());
}

TEST(Communicating, WhatIsNotKnownIsLeftOut) {
  const json out =
      rate_communication(communicating(json::array({timed(0, 0.25, nullptr, nullptr)})));
  EXPECT_TRUE(out["communication_hidden_ratio"].is_null());
  EXPECT_TRUE(out["waited_for_rank"].is_null());
  EXPECT_EQ(communication_text(out), "25%");
}

TEST(Communicating, WhyNothingIsKnownIsSaid) {
  const auto text = [](const json& state) {
    const json out =
        rate_communication(communicating(json::array({{{"communication_state", state}}})));
    EXPECT_EQ(out["communication_state"], state);
    EXPECT_TRUE(out["communication_ratio"].is_null());
    return communication_text(out);
  };
  EXPECT_EQ(text("in_graphs"), "not timed in graphs");
  EXPECT_EQ(text("refused"), "not timed");
  EXPECT_EQ(text("measuring"), "-");
  EXPECT_EQ(text(nullptr), "-");
}

TEST(Communicating, AJobOfWhichSomethingIsStillMeasuredIsWaitedFor) {
  json job = communicating(json::array({{{"communication_state", "measuring"},
                                         {"iterations_per_second", 3.0},
                                         {"observer", false}}}));
  job["state"] = "running";
  EXPECT_TRUE(still_measuring(job));
  job["processes"][0]["communication_state"] = "timed";
  EXPECT_FALSE(still_measuring(job));
}

// --- the gradient noise scale ---

json with_noise(const char* state, const json& more = json::object()) {
  json noise = {{"state", state},
                {"ranks", 4},
                {"telling_ranks", 3},
                {"steps", 120},
                {"critical_batch_ratio", nullptr},
                {"gradient_square", nullptr},
                {"unmeasured", json::array()}};
  noise.update(more);
  return {{"gradient_noise", noise}};
}

TEST(NoiseText, SaysTheCriticalBatch) {
  EXPECT_EQ(
      noise_text(with_noise("measured", {{"critical_batch_ratio", 3.21},
                                         {"critical_batch_spread", 0.4},
                                         {"gradient_square", 2.0},
                                         {"gradient_variance", 25.68}})),
      "gradient noise: critical batch about 3.21 x yours (spread 0.4, 120 steps); variance of "
      "a rank's gradient 12.8 x |G|^2");
}

TEST(NoiseText, SaysWhyThereIsNone) {
  EXPECT_EQ(noise_text({{"gradient_noise", nullptr}}), "");
  EXPECT_EQ(noise_text(json::object()), "");
  const std::pair<const char*, const char*> cases[] = {
      {"measuring", "not enough steps were seen yet"},
      {"unclear", "after 120 steps the gradient is not told apart from its noise (yet)"},
      {"one_rank", "it has one rank, and the noise is what ranks differ by"},
      {"no_gradient", "no sum or average of 8192 floating-point numbers or more was launched"},
      {"ranks_missing", "3 of 4 ranks tell their norms"},
      {"several_communicators",
       "several communicators sum large tensors, and which of them holds gradients is unknown"},
  };
  for (const auto& [state, text] : cases) {
    EXPECT_EQ(noise_text(with_noise(state)), std::string("gradient noise: ") + text);
  }
}

TEST(NoiseText, NamesEachReasonWhySomeWereNotMeasured) {
  const std::string text =
      noise_text(with_noise("not_measured", {{"unmeasured", {"graph", "type"}}}));
  EXPECT_EQ(text,
            "gradient noise: nothing is known; not measured: its collectives are in a CUDA graph, "
            "where nothing is added; its numbers are neither fp32 nor fp16 nor bf16");
  for (const UnmeasuredWords& each : kUnmeasured) {
    EXPECT_NE(noise_text(with_noise("measuring", {{"unmeasured", {each.key}}})).find(each.text),
              std::string::npos);
  }
}

// `switchyard stats WORDS...` at this socket: its exit code, stdout and stderr.
struct StatsSaid {
  int code;
  std::string out, err;
};
StatsSaid stats_said(std::vector<std::string> words) {
  CommandLine line("", "");
  add_stats(line);
  words.insert(words.begin(), "stats");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = line.run(words);
  std::fflush(stdout);
  ::unsetenv("XDG_RUNTIME_DIR");
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

StatsSaid stats_at(const std::string& socket, std::vector<std::string> words) {
  ::setenv("SWITCHYARD_SOCKET", socket.c_str(), 1);
  return stats_said(std::move(words));
}

StatsSaid stats_without_a_monitor(std::vector<std::string> words) {
  ::unsetenv("SWITCHYARD_SOCKET");
  ::setenv("XDG_RUNTIME_DIR", "/tmp/switchyard-no-folder", 1);
  return stats_said(std::move(words));
}

TEST(Stats, WithoutAMonitorTheTableIsEmptyAndSaysSo) {
  if (::access(kSystemSocket, F_OK) == 0) GTEST_SKIP() << "root's monitor serves everybody here";
  const auto table = stats_without_a_monitor({"--interval", "1ms"});
  EXPECT_EQ(table.code, kOk);
  EXPECT_NE(table.out.find("NAME"), std::string::npos) << table.out;
  EXPECT_NE(table.err.find("no monitor runs here; the next `switchyard run -- COMMAND` starts one"),
            std::string::npos)
      << table.err;
  const auto list = stats_without_a_monitor({"--interval", "1ms", "--json"});
  EXPECT_EQ(list.code, kOk);
  EXPECT_EQ(list.err, "");
}

TEST(Stats, AJobIsNamedWithoutAMonitorWhichEnds4) {
  if (::access(kSystemSocket, F_OK) == 0) GTEST_SKIP() << "root's monitor serves everybody here";
  const auto end = stats_without_a_monitor({"train"});
  EXPECT_EQ(end.code, kNoSuchJobOrGpu);
  EXPECT_EQ(end.out, "");
  EXPECT_NE(end.err.find("no monitor"), std::string::npos) << end.err;
}

// A monitor with one job, which has the GPU for half of the time and ends after so many answers.
FakeMonitor::Answer a_job_for(int answers) {
  return [answers, asked = std::make_shared<std::atomic<int>>(0)](const json& request) -> json {
    EXPECT_EQ(request["op"], "ps");
    const int n = asked->fetch_add(1);
    if (n >= answers) return {{"ok", true}, {"jobs", json::array()}};
    return {{"ok", true},
            {"jobs",
             {{{"job", "j1"},
               {"name", "train"},
               {"state", "running"},
               {"since_seconds", 10.0 + n},
               {"gpu_seconds", 5 + 0.5 * n},
               {"processes", {{{"pid", 1}, {"observer", false}}}}}}}};
  };
}

TEST(Stats, AJobThatEndsWhileItIsWatchedIsShownAsItWasSeenLast) {
  const FakeMonitor monitor = FakeMonitor::answering(a_job_for(3));
  const auto said = stats_at(monitor.socket(), {"train", "--interval", "60s"});
  EXPECT_EQ(said.code, kOk) << said.err;
  EXPECT_NE(said.out.find("train (ended)"), std::string::npos) << said.out;
  EXPECT_NE(said.out.find("0.50"), std::string::npos) << said.out;
  EXPECT_NE(said.err.find("job 'train' has ended: these figures are of its last 2.0 s"),
            std::string::npos)
      << said.err;
}

TEST(Stats, AJobThatEndsAtOnceIsShownWithoutRates) {
  const FakeMonitor monitor = FakeMonitor::answering(a_job_for(1));
  const auto said = stats_at(monitor.socket(), {"train", "--json"});
  ASSERT_EQ(said.code, kOk) << said.err;
  const json job = json::parse(said.out)["jobs"][0];
  EXPECT_EQ(job["ended"], true);
  EXPECT_EQ(job["interval_seconds"], 0.0);
  EXPECT_EQ(job["gpu_seconds"], 0.0);
}

TEST(Stats, WatchedAJobThatEndsIsShownOnce) {
  const FakeMonitor monitor = FakeMonitor::answering(a_job_for(2));
  const auto one = stats_at(monitor.socket(), {"train", "--watch", "--json"});
  EXPECT_EQ(one.code, kOk) << one.err;
  EXPECT_NE(one.out.find("\"ended\":true"), std::string::npos) << one.out;
}

TEST(Stats, AJobThatAnOptionExcludesHasNotEnded) {
  const FakeMonitor monitor = FakeMonitor::answering(a_job_for(1000));
  const auto said = stats_at(monitor.socket(), {"train", "--state", "paused", "--interval", "1ms"});
  EXPECT_EQ(said.code, kOk) << said.err;
  EXPECT_NE(said.err.find("no job fits"), std::string::npos) << said.err;
  EXPECT_EQ(said.err.find("has ended"), std::string::npos) << said.err;
}

TEST(Stats, AmongAllJobsOneThatHasEndedIsShown) {
  const FakeMonitor monitor = FakeMonitor::answering(a_job_for(2));
  const auto all = stats_at(monitor.socket(), {"--interval", "600ms", "--json"});
  ASSERT_EQ(all.code, kOk) << all.err;
  EXPECT_EQ(json::parse(all.out)["jobs"][0]["ended"], true);
}

TEST(Stats, AJobThatHasEndedIsForgottenOnceItWasShown) {
  json listing = {{"jobs", json::array()}};
  keep_ended({{"jobs", {{{"job", "j1"}}, {{"job", "j2"}}}}}, listing);
  ASSERT_EQ(listing["jobs"].size(), 2u);
  EXPECT_TRUE(has_ended(listing["jobs"][0]));
  keep_ended({{"jobs", {{{"job", "j2"}}}}}, listing);
  EXPECT_EQ(listing["jobs"].size(), 2u);
  forget_ended(listing);
  EXPECT_EQ(listing["jobs"], json::array());
}

TEST(Stats, ItSaysThatItLooksLongerForWhatRepeatsAndEnds) {
  const FakeMonitor monitor = FakeMonitor::answering(a_job_for(1000));
  const auto said = stats_at(monitor.socket(), {});
  EXPECT_EQ(said.code, kOk);
  EXPECT_NE(said.err.find("nothing that repeats is known of 'train' yet: looking for at most 2 s "
                          "more; --interval 1s does not wait"),
            std::string::npos)
      << said.err;
  EXPECT_EQ(stats_at(monitor.socket(), {"--interval", "100ms"}).err, "");
}

TEST(Stats, ARateIsOnTheClockOfTheMonitor) {
  const auto at = [](double since, double gpu) {
    json out = listing(json::array(), json::array());
    out["jobs"][0]["since_seconds"] = since;
    out["jobs"][0]["gpu_seconds"] = gpu;
    return out;
  };
  const json job = rates(at(10, 5), at(12, 7), 1.5)["jobs"][0];
  EXPECT_EQ(job["interval_seconds"], 2.0);
  EXPECT_EQ(job["gpu_seconds"], 2.0);
  const json anew = rates(at(100, 5), at(1, 6), 1.5)["jobs"][0];
  EXPECT_EQ(anew["interval_seconds"], 1.5) << "another monitor";
}

TEST(Stats, IterationsBetweenTwoLooksAreCountedByTheAgeOfTheJobAtEach) {
  const auto at = [](double age, long count, double ago) {
    json one = {{"pid", 100},
                {"iterations", count},
                {"iterations_counted_anew", 1},
                {"last_iteration_seconds", ago},
                {"iterations_per_second", 99.0}};
    json job = {{"since_seconds", age}, {"processes", {one}}};
    return job;
  };
  // The last ones began at 9.5 and 29.5.
  const json said = rate_progress(at(10, 100, 0.5), at(30, 140, 0.5), 20);
  EXPECT_NEAR(said["iterations_per_second"].get<double>(), 2.0, 1e-9);
}

TEST(Stats, IterationsThatWereCountedAnewMeanwhileHaveTheRateThatTheMonitorKnows) {
  const auto at = [](double age, long count, int anew) {
    json one = {{"pid", 100},
                {"iterations", count},
                {"iterations_counted_anew", anew},
                {"last_iteration_seconds", 0.5},
                {"iterations_per_second", 3.0}};
    json job = {{"since_seconds", age}, {"processes", {one}}};
    return job;
  };
  for (const long count : {5, 900}) {
    const json said = rate_progress(at(10, 100, 1), at(30, count, 2), 20);
    EXPECT_EQ(said["iterations_per_second"], 3.0) << count;
    EXPECT_EQ(said["iterations_estimated"], true) << count;
  }
}

TEST(Stats, WhereNoIterationBeganTheRateIsZeroOnlyIfTwoShouldHave) {
  const json job = {{"processes",
                     {{{"pid", 100},
                       {"iterations", 7},
                       {"iterations_counted_anew", 1},
                       {"iterations_per_second", 1.0}}}}};
  const json few = rate_progress(job, job, 1.9);
  EXPECT_EQ(few["iterations_per_second"], 1.0);
  EXPECT_EQ(few["iterations_estimated"], true);
  const json none = rate_progress(job, job, 2);
  EXPECT_EQ(none["iterations_per_second"], 0.0);
  EXPECT_EQ(none["iterations_estimated"], false);
}

TEST(Stats, TheSlowestRankIsTheOneThatIsLatestWhereverItStands) {
  const auto late = [](int pid, double seconds) {
    return json{{"pid", pid}, {"late_seconds", seconds}};
  };
  const json job = {{"processes", {late(100, 0.1), late(101, 0.3), late(102, 0.2)}}};
  EXPECT_EQ(rate_progress(job, job, 1)["slowest_rank"]["pid"], 101);
}

TEST(Stats, PartsOfTheTimeAreBetweenNoneAndAll) {
  const auto waited = [](double turn, double slices) {
    return json{{"waits_seconds", {{"turn", turn}}},
                {"slices_of", {{{"job", "jx"}, {"name", "x"}, {"seconds", slices}}}}};
  };
  const json more = rate_progress(waited(1, 1), waited(5, 5), 2);
  EXPECT_EQ(more["waits_ratio"]["turn"], 1.0);
  EXPECT_EQ(more["slices_of"][0]["ratio"], 1.0) << "the looks are not of one instant";
  const json fewer = rate_progress(waited(5, 5), waited(1, 1), 2);
  EXPECT_EQ(fewer["waits_ratio"]["turn"], 0.0) << "a process has ended";
  EXPECT_EQ(fewer["slices_of"], json::array());
}

// --- what it waited for ---

TEST(WaitsText, PartsThatAreRoundedAddUpToTheWhole) {
  EXPECT_EQ(waits_text({{"waits_ratio", {{"guard", 0.335}, {"slices", 0.335}, {"turn", 0.33}}}}),
            "guard 34%, slices 33%, turn 33%");
  EXPECT_EQ(waits_text({{"waits_ratio", {{"turn", 0.6}, {"slices", 0.004}}}}), "turn 60%");
  EXPECT_EQ(waits_text({{"waits_ratio", json::object()}}), "-");
}

TEST(WaitsText, ThreeOthersAreNamedAndTheRestIsCounted) {
  const auto of = [](int others) {
    json job = {{"waits_ratio", {{"slices", 0.8}}}, {"slices_of", json::array()}};
    for (int i = 1; i <= others; ++i) {
      job["slices_of"].push_back({{"name", "x" + std::to_string(i)}, {"ratio", 0.1 * i}});
    }
    return waits_text(job);
  };
  EXPECT_EQ(of(0), "slices 80%");
  EXPECT_EQ(of(3), "slices 80% (x3 30%, x2 20%, x1 10%)");
  EXPECT_EQ(of(4), "slices 80% (x4 40%, x3 30%, x2 20% and 1 more)");
}

// Eight trainings of 16 ranks, each in three communicators.
std::vector<std::string> lines_of_eight_trainings(std::size_t columns) {
  StatsTable table({columns, true});
  for (int i = 0; i < 8; ++i) {
    table.add_job({"training-" + std::to_string(i), "12.3", "~15.98",
                   "slices 70% (training-1 40%, training-2 20%, training-3 7% and 4 more)",
                   "32% (10% hidden, 5% for peers)", "", "", "120", "3.0 GiB",
                   "all_reduce 80 (2.0 GiB), all_gather 40 (1.0 GiB)", "", "rank 13 by 3.1 ms"});
    for (const char* size : {"16", "8", "2"}) {
      table.add_communicator({"", "", "", "", "", "0123456789abcdef", size, "40", "1.0 GiB", "",
                              "rank 3 (pid 4711) by 3", ""});
    }
  }
  std::vector<std::string> out;
  std::istringstream text(table.render());
  for (std::string line; std::getline(text, line);) out.push_back(line);
  return out;
}

TEST(StatsTable, EightJobsOfSixteenRanksFitAScreenThatSaysWhatIsNotShown) {
  for (const std::size_t columns : {72, 80, 100, 120, 160, 300}) {
    const auto lines = lines_of_eight_trainings(columns);
    EXPECT_LE(lines.size(), 12u) << "of 24";
    for (const std::string& line : lines) EXPECT_LE(width_of(line), columns) << line;
    EXPECT_EQ(lines[8].rfind("traini", 0), 0u) << lines[8];
    EXPECT_NE(lines[8].find(" 16 "), std::string::npos) << lines[8];
    const std::string said = lines[9] + " " + (lines.size() > 10 ? lines[10] : "");
    EXPECT_NE(said.find("16 smaller communicators"), std::string::npos) << said;
    EXPECT_EQ(said.find("SLOWEST") != std::string::npos, columns < 200) << said;
  }
}

TEST(StatsTable, APipeGetsAllColumnsAndARowForEachCommunicator) {
  const auto lines = lines_of_eight_trainings(0);
  ASSERT_EQ(lines.size(), 1 + 8 * 4u);
  EXPECT_NE(lines[0].find("COMMUNICATOR"), std::string::npos);
  EXPECT_NE(lines[1].find("rank 13 by 3.1 ms"), std::string::npos);
  EXPECT_NE(lines[4].find("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace switchyard::tools
