// The events between two looks, row by row.
#include "monitor/status/changes.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::status {
namespace {

using std::chrono::seconds;

constexpr JobKey kJob = 3;
constexpr Code kRuns{State::kRunning, Reason::kNone};
constexpr Code kTurn{State::kWaiting, Reason::kTurn};
constexpr Code kRoom{State::kWaiting, Reason::kRoom};
constexpr Code kPaused{State::kPaused, Reason::kPause};
constexpr Code kNothing{};

JobStatus status_of(Code code) { return {.job = {.code = code}, .gpus = {{0, {.code = code}}}}; }

JobStatus on_gpus(std::initializer_list<std::pair<std::size_t, Code>> gpus) {
  JobStatus out{.job = {.code = kRuns}};
  for (const auto& [gpu, code] : gpus) out.gpus.push_back({gpu, {.code = code}});
  return out;
}

std::vector<HistoryEvent> changes(const JobStatus* before, const JobStatus& after) {
  std::vector<HistoryEvent> out;
  add_changes(kJob, before, after, seconds(9), out);
  return out;
}
std::vector<HistoryEvent> changes(const JobStatus& before, const JobStatus& after) {
  return changes(&before, after);
}

TEST(Changes, AJobThatCameHasOneFromUnknown) {
  const auto events = changes(nullptr, status_of(kRuns));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::kState);
  EXPECT_EQ(events[0].job, kJob);
  EXPECT_EQ(Time(events[0].at_ns), seconds(9));
  EXPECT_EQ(code_before(events[0]), kNothing);
  EXPECT_EQ(code_after(events[0]), kRuns);
  EXPECT_EQ(events[0].gpu, 0u);
  EXPECT_EQ(events[0].uid, HistoryEvent::kNobody);
}

TEST(Changes, WhatStaysIsNone) { EXPECT_TRUE(changes(status_of(kTurn), status_of(kTurn)).empty()); }

TEST(Changes, WhatGatesAloneDecideIsWork) {
  EXPECT_EQ(changes(status_of(kRuns), status_of(kTurn)).at(0).kind, EventKind::kWork);
  EXPECT_EQ(changes(status_of(kTurn), status_of(kPaused)).at(0).kind, EventKind::kState);
  EXPECT_EQ(changes(status_of(kPaused), status_of(kRuns)).at(0).kind, EventKind::kState);
  const Code cut{State::kHeld, Reason::kCut};
  const Code turn_ends{State::kHeld, Reason::kTurnEnds};
  EXPECT_EQ(changes(status_of(kRuns), status_of(cut)).at(0).kind, EventKind::kState);
  EXPECT_EQ(changes(status_of(kRuns), status_of(turn_ends)).at(0).kind, EventKind::kWork);
}

TEST(Changes, ThePersonStandsInIt) {
  JobStatus paused = status_of(kPaused);
  paused.job.by = {.uid = 1000, .pid = 77};
  const HistoryEvent event = changes(status_of(kRuns), paused).at(0);
  EXPECT_EQ(event.uid, 1000u);
  EXPECT_EQ(event.pid, 77);
  EXPECT_EQ(event.by_job, 0u);
}

TEST(Changes, AnotherPersonIsAChangeUnlessAJobIsWaitedFor) {
  JobStatus before = status_of(kPaused);
  before.job.by = {.uid = 1000, .pid = 77};
  JobStatus after = before;
  after.job.by.uid = 0;
  ASSERT_EQ(changes(before, after).size(), 1u);
  EXPECT_EQ(changes(before, after)[0].uid, 0u);
  before.job.by.job = after.job.by.job = 5;
  EXPECT_TRUE(changes(before, after).empty()) << "whose that job is";
}

TEST(Changes, TheJobThatIsWaitedForStandsInItAndAnotherIsAChange) {
  JobStatus one = status_of(kRoom);
  one.job.by = {.job = 5, .name = "serve", .uid = 0};
  one.job.bytes = 4096;
  const HistoryEvent event = changes(status_of(kRuns), one).at(0);
  EXPECT_EQ(event.by_job, 5u);
  EXPECT_EQ(event.uid, HistoryEvent::kNobody) << "its owner did nothing";
  EXPECT_EQ(event.value, 4096u);
  JobStatus another = one;
  another.job.by.job = 6;
  ASSERT_EQ(changes(one, another).size(), 1u);
  another = one;
  another.job.bytes = 8192;
  EXPECT_TRUE(changes(one, another).empty()) << "as memory comes, the figure changes all the time";
}

TEST(Changes, EachGpuOfSeveralHasItsOwn) {
  const JobStatus before = on_gpus({{0, kRuns}, {1, kRuns}});
  EXPECT_EQ(changes(nullptr, before).size(), 3u);
  const auto events = changes(before, on_gpus({{0, kRuns}, {1, kTurn}}));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].gpu, 2u);
  EXPECT_EQ(code_after(events[0]), kTurn);
}

TEST(Changes, AGpuThatItLeavesBecomesUnknown) {
  const auto events = changes(on_gpus({{0, kRuns}, {1, kRuns}}), on_gpus({{1, kRuns}}));
  ASSERT_EQ(events.size(), 2u) << "on one GPU it has the state of the job";
  for (const HistoryEvent& event : events) EXPECT_EQ(code_after(event), kNothing);
}

TEST(Changes, OnItsOnlyGpuItHasTheStateOfTheJobUnlessItIsAnother) {
  JobStatus unused = status_of(kPaused);
  unused.gpus[0].status.code = {State::kIdle, Reason::kNoCuda};
  const auto events = changes(nullptr, unused);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].gpu, 1u);
  EXPECT_EQ(code_after(events[1]), unused.gpus[0].status.code);
  ASSERT_EQ(changes(unused, status_of(kPaused)).size(), 1u);
  EXPECT_EQ(code_after(changes(unused, status_of(kPaused))[0]), kNothing);
}

TEST(Changes, TheValueIsWhatTheTextTells) {
  JobStatus after = status_of({State::kHeld, Reason::kLimit});
  after.job.limit = 0.3;
  EXPECT_EQ(changes(status_of(kRuns), after).at(0).value, 300'000u);
  after = status_of({State::kMoving, Reason::kMove});
  after.job.goal = 4;
  EXPECT_EQ(changes(status_of(kRuns), after).at(0).value, 5u);
  after = status_of({State::kUnmanaged, Reason::kOldLibrary});
  after.job.layout = 9;
  EXPECT_EQ(changes(status_of(kRuns), after).at(0).value, 9u);
  after = status_of({State::kStopped, Reason::kSignal});
  after.job.pid = 11;
  EXPECT_EQ(changes(status_of(kRuns), after).at(0).pid, 11);
}

}  // namespace
}  // namespace switchyard::monitor::status
