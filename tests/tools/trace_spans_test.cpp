// Spans out of a recording: each case is a row of spans.h, or a law.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "switchyard/status.h"
#include "tests/support/seeds.h"
#include "tests/tools/chosen.h"
#include "tests/tools/trace_scene.h"
#include "tools/trace/only.h"
#include "tools/trace/spans.h"

namespace switchyard::tools::trace {
namespace {

using Texts = std::vector<std::string>;

// "0-10 running" of each span, in milliseconds.
Texts told(const Timeline& timeline, std::size_t lane) {
  Texts out;
  for (const Span& span : timeline.lanes.at(lane).spans) {
    out.push_back(std::to_string((span.from - kBegin) / kMs) + "-" +
                  std::to_string((span.to - kBegin) / kMs) + " " + label_of(timeline, span));
  }
  return out;
}

Texts users(const Timeline& timeline, std::size_t gpu = 0) {
  Texts out;
  for (const Users& each : timeline.users.at(gpu)) {
    out.push_back(std::to_string((each.from - kBegin) / kMs) + "-" +
                  std::to_string((each.to - kBegin) / kMs) + " " + label_of(timeline, each));
  }
  return out;
}

TEST(TraceSpans, TurnsAtGatesAreExactAndNameWhoseTurnItIs) {
  Scene scene(40);
  const JobKey a = scene.job("a"), b = scene.job("b", kRuns, 2);
  scene.turn(10, a, b);
  scene.turn(25, b, a);
  const Timeline timeline = scene.timeline();
  ASSERT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(told(timeline, 0),
            (Texts{"0-10 running", "10-25 waiting: turn of b", "25-40 running"}));
  EXPECT_EQ(told(timeline, 1),
            (Texts{"0-10 waiting: turn of a", "10-25 running", "25-40 waiting: turn of a"}));
  EXPECT_EQ(users(timeline), (Texts{"0-10 a", "10-25 b", "25-40 a"}));
}

TEST(TraceSpans, AnArrowLeadsFromWhoRanToWhoRunsNext) {
  Scene scene(40);
  const JobKey a = scene.job("a"), b = scene.job("b", kRuns, 2);
  scene.gate(10, a, 2, 0);
  scene.gate(12, b, 0, 2);  // what a had on the GPU has ended
  const Timeline timeline = scene.timeline();
  ASSERT_EQ(timeline.arrows.size(), 1u);
  const Arrow& arrow = timeline.arrows[0];
  EXPECT_EQ(timeline.lanes[arrow.from_lane].job, a);
  EXPECT_EQ(timeline.lanes[arrow.to_lane].job, b);
  EXPECT_EQ(timeline.lanes[arrow.from_lane].spans[arrow.from_span].to, kBegin + 10 * kMs);
  EXPECT_EQ(timeline.lanes[arrow.to_lane].spans[arrow.to_span].from, kBegin + 12 * kMs);
  EXPECT_EQ(users(timeline), (Texts{"0-10 a", "12-40 b"})) << "meanwhile nobody runs";
}

TEST(TraceSpans, NothingLeadsToAJobThatDidNotWaitOrBeganToWaitLater) {
  Scene scene(100);
  const JobKey a = scene.job("a", kIdles), b = scene.job("b");
  scene.state(10, a, kRuns, kIdles);
  scene.gate(20, b, 4, 0);  // for its limit: that is nobody's turn
  scene.gate(30, b, 2, 4);
  scene.gate(40, b, 0, 2);
  EXPECT_TRUE(scene.timeline().arrows.empty()) << "a ended before b waited";
  scene.state(50, a, kIdles, kRuns);
  scene.gate(60, b, 2, 0);
  scene.gate(70, a, 2, 0);
  scene.gate(75, b, 0, 2);
  scene.state(80, b, kRuns, kIdles);
  scene.state(90, b, kIdles, kRuns);
  EXPECT_EQ(scene.timeline().arrows.size(), 1u) << "from a to b, and not again when b is busy anew";
}

// Slices of the driver divide the GPU: nobody sees who has it, and no gate decides.
TEST(TraceSpans, JobsThatShareBySlicesRunAtOnce) {
  Scene scene(40);
  scene.job("a");
  const JobKey b = scene.job("b", kIdles);
  scene.state(20, b, kRuns, kIdles);
  const Timeline timeline = scene.timeline();
  EXPECT_EQ(users(timeline), (Texts{"0-20 a + b", "20-40 a"}));
  EXPECT_TRUE(timeline.arrows.empty());
}

TEST(TraceSpans, APauseBeginsAndEndsWithItsGateAndNamesThePerson) {
  Scene scene(1000);
  const JobKey a = scene.job("a");
  scene.happens(300, a, Kind::kPaused, 0);
  scene.gate(300, a, 1, 0);
  scene.state(400, a, kRuns, {State::kPaused, "pause"});
  scene.happens(700, a, Kind::kResumed, 0);
  scene.gate(700, a, 0, 1);
  scene.state(800, a, {State::kPaused, "pause"}, kRuns);
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-300 running", "300-700 paused by root", "700-1000 running"}));
}

TEST(TraceSpans, OfAPauseInAnothersTurnThePauseIsTold) {
  Scene scene(100);
  const JobKey a = scene.job("a");
  scene.gate(10, a, 2, 0);
  scene.happens(20, a, Kind::kPaused, 0);
  scene.gate(20, a, 3, 2);
  scene.happens(60, a, Kind::kResumed, 0);
  scene.gate(60, a, 2, 3);
  scene.gate(80, a, 0, 2);
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-10 running", "10-20 waiting: turn", "20-60 paused by root",
                   "60-80 waiting: turn", "80-100 running"}));
}

TEST(TraceSpans, ASwapHasItsMomentsFromTheMemoryAndItsReasonFromTheState) {
  Scene scene(3000);
  const JobKey a = scene.job("a");
  scene.happens(500, a, Kind::kLeaves);
  scene.state(600, a, kRuns, {State::kMoving, "yield"});
  scene.happens(900, a, Kind::kLeft);
  scene.state(1000, a, {State::kMoving, "yield"}, {State::kSwapped, "yield"});
  scene.happens(2000, a, Kind::kReturns);
  scene.state(2200, a, {State::kSwapped, "yield"}, {State::kMoving, "returns"});
  scene.happens(2500, a, Kind::kIsBack);
  scene.state(2600, a, {State::kMoving, "returns"}, kRuns);
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-500 running", "500-900 swapping out: another job needs the memory",
                   "900-2000 swapped out: another job needs the memory", "2000-2500 swapping in",
                   "2500-3000 running"}));
}

TEST(TraceSpans, WhoGetsTheMemoryOfAnotherFollowsIt) {
  Scene scene(2000);
  const JobKey a = scene.job("a"), b = scene.job("b");
  const Code waits{State::kWaiting, "room"};
  scene.state(400, b, kRuns, waits, a, 3u << 20);
  scene.happens(600, a, Kind::kLeaves);
  scene.state(800, b, waits, {State::kMoving, "returns"});
  scene.happens(1200, b, Kind::kIsBack);
  const Timeline timeline = scene.timeline();
  EXPECT_EQ(told(timeline, 1), (Texts{"0-400 running", "400-800 waiting: 3 MiB of a",
                                      "800-1200 swapping in", "1200-2000 running"}));
  ASSERT_EQ(timeline.arrows.size(), 1u);
  EXPECT_EQ(timeline.lanes[timeline.arrows[0].from_lane].job, a);
  EXPECT_EQ(timeline.lanes[timeline.arrows[0].to_lane].job, b);
}

TEST(TraceSpans, AGateThatClosesOverAnIdleJobHoldsNobody) {
  Scene scene(1000);
  const JobKey a = scene.job("a", kRuns);
  scene.gate(100, a, 2, 0);
  scene.gate(200, a, 0, 2);
  scene.state(400, a, kIdles, kRuns);
  scene.gate(500, a, 4, 0);
  scene.gate(600, a, 0, 4);
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-400 idle", "400-500 running", "500-600 held: limit", "600-1000 running"}));
}

TEST(TraceSpans, AStateThatContradictsItsGateIsWhatTheGateSays) {
  Scene scene(1000);
  const JobKey a = scene.job("a", kRuns);
  scene.gate(100, a, 2, 0);
  scene.state(200, a, {State::kWaiting, "turn"}, kRuns);  // it looked like that for a moment
  scene.gate(300, a, 0, 2);
  scene.state(400, a, kRuns, {State::kWaiting, "turn"});
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-100 running", "100-300 waiting: turn", "300-1000 running"}));
}

TEST(TraceSpans, AJobIsHeldWhenAllOfItsProcessesAre) {
  Scene scene(100);
  const JobKey a = scene.job("a");
  scene.recording.jobs[a].gates.push_back({1, 7, 0});
  scene.gate(10, a, 2, 0);
  scene.add(20, {.kind = Kind::kGate, .job = a, .gpu = 1, .pid = 7, .value = 2});
  scene.gate(40, a, 0, 2);
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-20 running", "20-40 waiting: turn", "40-100 running"}));
}

// No event tells that a process ended. It counts until its last one.
TEST(TraceSpans, AProcessThatIsNoMoreOpensNothing) {
  Scene scene(100);
  const JobKey a = scene.job("a");
  scene.add(10,
            {.kind = Kind::kGate, .job = a, .gpu = 1, .pid = 7, .value = std::uint64_t{2} << 32});
  scene.gate(40, a, 2, 0);
  scene.gate(60, a, 0, 2);
  EXPECT_EQ(told(scene.timeline(), 0),
            (Texts{"0-40 running", "40-60 waiting: turn", "60-100 running"}));
}

TEST(TraceSpans, AJobHasSpansFromItsBeginningToItsEnd) {
  Scene scene(1000);
  const JobKey a = scene.job("a");
  scene.recording.jobs[a] = {.id = "id-a", .name = "a", .user = "anna"};
  scene.happens(200, a, Kind::kJobBegins);
  scene.state(200, a, {}, {State::kIdle, "no CUDA"});
  scene.state(400, a, {State::kIdle, "no CUDA"}, kRuns);
  scene.happens(700, a, Kind::kJobEnds);
  scene.sample(500, a, 0.5, 1);
  EXPECT_EQ(told(scene.timeline(), 0), (Texts{"200-400 no CUDA yet", "400-700 running"}));
}

TEST(TraceSpans, OnEachGpuItHasTheStateThatItHasThere) {
  Scene scene(1000, 2);
  const JobKey a = scene.job("a");
  scene.recording.jobs[a].gpus[2].now = kIdles;
  scene.recording.jobs[a].gates.push_back({2, Scene::pid(a), 0});
  scene.state(500, a, kRuns, kIdles, 0, 0, 2);
  scene.state(800, a, kRuns, {State::kStopped, "signal"});
  scene.state(800, a, kRuns, {}, 0, 0, 1);
  const Timeline timeline = scene.timeline();
  ASSERT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(told(timeline, 0), (Texts{"0-800 running", "800-1000 stopped: signal"}));
  EXPECT_EQ(told(timeline, 1), (Texts{"0-500 running", "500-1000 idle"}));
  EXPECT_EQ(timeline.lanes[1].gpu, 1u);
}

TEST(TraceSpans, WhereItIsAgainAsOnItsOtherGpusItsOwnStateThereEnds) {
  Scene scene(1000, 2);
  const JobKey a = scene.job("a");
  scene.recording.jobs[a].gates.push_back({2, Scene::pid(a), 0});
  scene.state(200, a, {}, {State::kHeld, "cut"}, 0, 0, 1);
  scene.state(600, a, {State::kHeld, "cut"}, {}, 0, 0, 1);
  const Timeline timeline = scene.timeline();
  ASSERT_EQ(timeline.lanes.size(), 2u);
  EXPECT_EQ(told(timeline, 0), (Texts{"0-200 running", "200-600 held: cut", "600-1000 running"}));
  EXPECT_EQ(told(timeline, 1), Texts{"0-1000 running"});
}

TEST(TraceSpans, WhatComesAfterTheEndSaysWhatWasBefore) {
  Scene scene(100);
  const JobKey a = scene.job("a", kIdles);
  scene.state(150, a, kRuns, kIdles);
  scene.gate(160, a, 2, 0);
  EXPECT_EQ(told(scene.timeline(), 0), Texts{"0-100 running"});
}

TEST(TraceSpans, AGpuThatAJobNeverUsedHasNoTrackOfIt) {
  Scene scene(100, 2);
  scene.job("a");
  const Timeline timeline = scene.timeline();
  ASSERT_EQ(timeline.lanes.size(), 1u);
  EXPECT_EQ(timeline.lanes[0].gpu, 0u);
  EXPECT_TRUE(timeline.users[1].empty());
}

TEST(TraceSpans, SamplesAreHandedToTheirJobAndGpu) {
  Scene scene(1000);
  const JobKey a = scene.job("a");
  scene.sample(200, 0, -1, 5);
  scene.sample(200, a, 0.25, 3);
  scene.sample(1200, a, 0.5, 4);  // after what is drawn
  const Timeline timeline = scene.timeline();
  ASSERT_EQ(timeline.lanes[0].samples.size(), 1u);
  EXPECT_EQ(timeline.lanes[0].samples[0].share, 0.25);
  ASSERT_EQ(timeline.samples[0].size(), 1u);
  EXPECT_EQ(timeline.samples[0][0].memory_bytes, 5u);
}

// Any events, in any order: a monitor of another version may send what this one never would.
void play(Scene& scene, std::mt19937_64& random) {
  const auto below = [&](std::uint64_t end) { return random() % end; };
  const std::string reasons[] = {"", "turn", "limit", "pause", "yield", "returns", "move", "cut"};
  const auto code = [&] { return Code{static_cast<State>(below(kStates)), reasons[below(8)]}; };
  for (int i = 0; i < 300; ++i) {
    const double at = static_cast<double>(below(1200)) - 50;
    const JobKey job = 1 + below(3);
    const unsigned gpu = static_cast<unsigned>(below(4));
    if (below(2) == 0) {
      scene.gate(at, job, below(16), below(16), gpu);
    } else if (below(3) != 0) {
      scene.state(at, job, code(), code(), below(4), below(4), gpu);
    } else {
      const auto kind = 1 + below(9);
      const bool rare = below(8) == 0 || (kind != 1 && kind != 2);
      if (rare)
        scene.happens(at, job, static_cast<Kind>(kind), static_cast<std::uint32_t>(below(2)));
    }
  }
}

TEST(TraceSpans, NeverOverlapAndAddUpToTheTimeThatWasRecorded) {
  for (std::uint64_t seed = 1; seed <= test_support::seeds(200); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Scene scene(1000, 2);
    for (const char* name : {"a", "b", "c"}) scene.job(name, kRuns, random() % 2 * 2);
    play(scene, random);
    const Timeline timeline = scene.timeline();
    for (const Lane& lane : timeline.lanes) {
      std::int64_t begins = kBegin, ends = scene.recording.to;
      for (const Event& event : scene.recording.events) {
        if (event.job != lane.job || event.at > ends) continue;
        if (event.kind == Kind::kJobBegins) begins = std::max(begins, event.at);
        if (event.kind != Kind::kJobEnds) continue;
        ends = event.at;
        break;
      }
      std::int64_t at = lane.spans.front().from, sum = 0;
      EXPECT_EQ(at, begins);
      for (const Span& span : lane.spans) {
        EXPECT_EQ(span.from, at) << "no gap, and no overlap";
        EXPECT_LT(span.from, span.to);
        at = span.to;
        sum += span.to - span.from;
      }
      EXPECT_EQ(sum, ends - begins);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// Where every job is held by its gate but one, no two of them run at once.
TEST(TraceSpans, TurnsThatExcludeEachOtherDoNotOverlap) {
  const Timeline timeline = busy_minute().timeline();
  ASSERT_EQ(timeline.lanes.size(), 8u);
  std::int64_t at = kBegin;
  for (const Users& each : timeline.users[0]) {
    ASSERT_EQ(each.lanes.size(), 1u);
    ASSERT_EQ(each.from, at);
    at = each.to;
  }
  EXPECT_EQ(at, timeline.to);
  EXPECT_EQ(timeline.users[0].size(), 60'000u);
  EXPECT_EQ(timeline.arrows.size(), 59'999u) << "one to each turn but the first";
}

// Turns of a and b on the first GPU; c is on the second one.
Timeline three_jobs(Scene& scene) {
  const JobKey a = scene.job("a"), b = scene.job("b", kRuns, 2), c = scene.job("c");
  scene.recording.jobs[c].gpus = {{2, {kRuns, 0}}};
  scene.recording.jobs[c].gates = {{2, 3, 0}};
  scene.recording.jobs[b].user = "bob";
  scene.turn(10, a, b);
  scene.turn(20, b, a);
  return scene.timeline();
}

TEST(TraceOnly, TracksOfOtherJobsAreLeftOutAndTheirNamesStay) {
  const auto lanes = [](const Selection& selection, const nlohmann::json& living = {}) {
    Scene scene(40, 2);
    Timeline timeline = three_jobs(scene);
    EXPECT_FALSE(keep_only(timeline, selection, living));
    std::string out;
    for (const Lane& lane : timeline.lanes) out += timeline.jobs[lane.job].name;
    for (const auto& users : timeline.users) {
      for (const Users& each : users) {
        EXPECT_FALSE(each.lanes.empty());
        for (const std::size_t lane : each.lanes) EXPECT_LT(lane, timeline.lanes.size());
      }
    }
    for (const Arrow& arrow : timeline.arrows) {
      EXPECT_LT(std::max(arrow.from_lane, arrow.to_lane), timeline.lanes.size());
    }
    return out;
  };
  EXPECT_EQ(lanes(chosen({})), "abc");
  EXPECT_EQ(lanes(chosen({"c"})), "c");
  EXPECT_EQ(lanes(chosen({}, "bob")), "b");
  EXPECT_EQ(lanes(chosen({}, "", "1")), "c");
  EXPECT_EQ(lanes(chosen({"?"}, "", "0")), "ab");
  const nlohmann::json living = {
      {{"job", "id-b"}, {"state", "waiting"}, {"processes", {{{"pid", 77}}}}}};
  EXPECT_EQ(lanes(chosen({"77"}), living), "b");
  EXPECT_EQ(lanes(chosen({}, "", "", "waiting"), living), "b");

  Scene scene(40, 2);
  Timeline timeline = three_jobs(scene);
  const auto refused = keep_only(timeline, chosen({"none"}), {});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, kNoSuchJobOrGpu);
  timeline = three_jobs(scene);
  ASSERT_FALSE(keep_only(timeline, chosen({"a"}), {}));
  EXPECT_TRUE(timeline.arrows.empty()) << "each led to b, or came from it";
  bool waits = false;
  for (const Span& span : timeline.lanes[0].spans) {
    waits = waits || label_of(timeline, span) == "waiting: turn of b";
  }
  EXPECT_TRUE(waits);
}

TEST(TraceOnly, ArrowsLeadToTheLanesThatStay) {
  Scene scene(40, 2);
  scene.job("first", kRuns, 2);  // its lane is before theirs, and held all the time
  Timeline timeline = three_jobs(scene);
  const auto ends = [&timeline] {
    std::string out;
    for (const Arrow& arrow : timeline.arrows) {
      out += timeline.jobs[timeline.lanes.at(arrow.from_lane).job].name + ">" +
             timeline.jobs[timeline.lanes.at(arrow.to_lane).job].name + " ";
    }
    return out;
  };
  const std::string before = ends();
  ASSERT_NE(before.find("a>b"), std::string::npos) << before;
  ASSERT_FALSE(keep_only(timeline, chosen({"a", "b"}), {}));
  EXPECT_EQ(ends(), before);
}

}  // namespace
}  // namespace switchyard::tools::trace
