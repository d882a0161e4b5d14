// Each tap and the events that it tells, over the whole monitor.
#include <gtest/gtest.h>

#include "tests/monitor/residency/migrations_scene.h"
#include "tests/monitor/residency/swaps_scene.h"

namespace switchyard::monitor::test {
namespace {

const Peer kAlice{77, 1000};

// The events since it was asked last.
struct Heard {
  explicit Heard(Rig& of) : rig(of) { all(); }
  std::vector<HistoryEvent> of(const EventRing& ring, std::uint64_t& since) const {
    std::vector<HistoryEvent> out;
    since = ring.read(since, out, ring.capacity()).last;
    return out;
  }
  std::vector<HistoryEvent> all() {
    auto out = of(rig.monitor.journal().rare(), rare);
    for (const HistoryEvent& event : of(rig.monitor.journal().timeline(), timeline))
      out.push_back(event);
    return out;
  }
  // Those of the kinds, in their order.
  std::vector<HistoryEvent> only(std::initializer_list<EventKind> kinds) {
    std::vector<HistoryEvent> out;
    for (const HistoryEvent& event : all()) {
      if (std::find(kinds.begin(), kinds.end(), event.kind) != kinds.end()) out.push_back(event);
    }
    return out;
  }
  Rig& rig;
  std::uint64_t rare = 0, timeline = 0;
};

std::vector<EventKind> kinds(const std::vector<HistoryEvent>& events) {
  std::vector<EventKind> out;
  out.reserve(events.size());
  for (const HistoryEvent& event : events) out.push_back(event.kind);
  return out;
}

void expect_by(const HistoryEvent& event, const Peer& peer) {
  EXPECT_EQ(event.uid, peer.uid) << key_of(event.kind);
  EXPECT_EQ(event.pid, peer.pid) << key_of(event.kind);
}
void expect_by_nobody(const HistoryEvent& event) {
  EXPECT_EQ(event.uid, HistoryEvent::kNobody) << key_of(event.kind);
  EXPECT_EQ(event.pid, 0) << key_of(event.kind);
}

json alice(Rig& rig, json request) {
  if (!request.contains("target")) request["target"] = "x";
  return rig.ask(request, kAlice.uid, kAlice.pid);
}

TEST(Taps, AMonitorBeginsAndAJobBeginsAndEnds) {
  Rig rig;
  Heard heard(rig);
  EXPECT_EQ(rig.monitor.journal().rare().at(1).kind, EventKind::kMonitorBegins);
  EXPECT_EQ(rig.monitor.journal().rare().at(1).pid, ::getpid());
  const Joined job = rig.join({.name = "x"});
  auto events = heard.only({EventKind::kJobBegins, EventKind::kJobEnds});
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kJobBegins}));
  expect_by(events[0], job.client->peer);
  const JobKey key = job.client->job;
  rig.now += seconds(1);
  rig.monitor.tick(rig.now);
  rig.monitor.died(job.id);
  events = heard.only({EventKind::kJobBegins, EventKind::kJobEnds});
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kJobEnds}));
  EXPECT_EQ(events[0].job, key);
  EXPECT_EQ(Time(events[0].at_ns), rig.now);
}

TEST(Taps, AJobThatIsMadeForAProcessToComeBeginsThen) {
  Rig rig;
  Heard heard(rig);
  ASSERT_EQ(rig.ask({{"op", "create"}, {"card", {{"name", "x"}}}}, 1000, 77)["ok"], true);
  const auto events = heard.only({EventKind::kJobBegins});
  ASSERT_EQ(events.size(), 1u);
  expect_by(events[0], kAlice);
}

TEST(Taps, APauseNamesWhoAskedAndItsEndWhoEndedIt) {
  Rig rig;
  rig.runs({.name = "x"});
  rig.pass(seconds(1));
  Heard heard(rig);
  ASSERT_EQ(alice(rig, {{"op", "pause"}, {"timeout_seconds", 60}})["ok"], true);
  auto events = heard.only({EventKind::kPaused, EventKind::kResumed});
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kPaused}));
  expect_by(events[0], kAlice);
  EXPECT_EQ(Time(static_cast<Time::rep>(events[0].value)), rig.now + seconds(60));
  rig.tell("resume");
  events = heard.only({EventKind::kPaused, EventKind::kResumed});
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kResumed}));
  expect_by(events[0], {1, 0});
  alice(rig, {{"op", "resume"}});
  EXPECT_TRUE(heard.only({EventKind::kResumed}).empty()) << "it was not paused";
}

TEST(Taps, APauseThatEndsByItselfIsNobodys) {
  Rig rig;
  rig.runs({.name = "x"});
  alice(rig, {{"op", "pause"}, {"timeout_seconds", 60}});
  Heard heard(rig);
  rig.pass(seconds(61));
  const auto events = heard.only({EventKind::kResumed});
  ASSERT_EQ(events.size(), 1u);
  expect_by_nobody(events[0]);
}

TEST(Taps, TheStateOfAPausedJobNamesTheProcessToo) {
  Rig rig;
  rig.runs({.name = "x"});
  rig.pass(seconds(1));
  Heard heard(rig);
  alice(rig, {{"op", "pause"}});
  rig.pass(milliseconds(200));
  const auto events = heard.only({EventKind::kState});
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().state, static_cast<int>(status::State::kPaused));
  expect_by(events.back(), kAlice);
}

constexpr std::initializer_list<EventKind> kSwaps = {EventKind::kLeaves, EventKind::kLeft,
                                                     EventKind::kReturns, EventKind::kIsBack};

TEST(Taps, ASwapHasItsFourSteps) {
  Swaps rig;
  const Joined job = rig.with({.name = "x"}, kGiB);
  Heard heard(rig);
  alice(rig, {{"op", "swap-out"}});
  rig.is_absent(job);
  auto events = heard.only(kSwaps);
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kLeaves, EventKind::kLeft}));
  for (const HistoryEvent& event : events) {
    expect_by(event, kAlice);
    EXPECT_EQ(event.value, static_cast<unsigned>(residency::Reason::kUser));
  }
  rig.tell("swap-in");
  job.shim.be_resident();
  rig.pass(milliseconds(200));
  events = heard.only(kSwaps);
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kReturns, EventKind::kIsBack}));
  for (const HistoryEvent& event : events) expect_by(event, {1, 0});
}

TEST(Taps, WhatLeavesAfterAPersonsSwapForAnotherReasonIsNobodys) {
  Swaps rig;
  const Joined job = rig.with({.name = "x"}, kGiB);
  alice(rig, {{"op", "swap-out"}});
  rig.is_absent(job);
  alice(rig, {{"op", "swap-in"}});
  job.shim.be_resident();
  rig.pass(milliseconds(200));
  Heard heard(rig);
  Job& same = *rig.monitor.registry().find(job.client->job);
  const residency::Reasons idle = residency::Reason::kIdle;
  same.memory.take({.event = residency::Event::kWantedOut, .reasons = idle}, rig.now);
  rig.pass(milliseconds(200));
  const auto events = heard.only(kSwaps);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events[0].kind, EventKind::kLeaves);
  for (const HistoryEvent& event : events) expect_by_nobody(event);
}

// They begin when its ranks are stopped, which is after the command.
TEST(Taps, APauseAndASwapOfAGangNameWhoAsked) {
  Rig rig(2);
  const Ask x{.job = "x", .name = "x", .swappable = "yes"};
  const Joined first = rig.runs(x), second = rig.runs(x);
  std::uint32_t rank = 0;
  for (const Joined* each : {&first, &second}) {
    each->shim.joins_communicator(77, rank++, 2);
    each->shim.swappable(64 * kMiB);
  }
  Heard heard(rig);
  alice(rig, {{"op", "pause"}, {"release", true}});
  for (int i = 0; i < 10 && !first.shim.told_to_leave(); ++i) rig.pass(milliseconds(2));
  const auto events = heard.only({EventKind::kPaused, EventKind::kLeaves});
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kPaused, EventKind::kLeaves}));
  for (const HistoryEvent& event : events) expect_by(event, kAlice);
}

constexpr std::initializer_list<EventKind> kMoves = {
    EventKind::kMovePrepares, EventKind::kMoveLeaves, EventKind::kMoveLands,
    EventKind::kMoveArrives, EventKind::kMoveEnded};

TEST(Taps, AMoveHasItsStepsAndWhoAsked) {
  Moves rig;
  const Joined x = rig.process(kGiB);
  Heard heard(rig);
  alice(rig, {{"op", "migrate"}, {"to", "1"}});
  rig.leave({&x});
  rig.land(x, 1);
  rig.come({&x}, 1);
  rig.pass(milliseconds(50));
  const auto events = heard.only(kMoves);
  EXPECT_EQ(kinds(events), (std::vector{EventKind::kMoveLeaves, EventKind::kMoveLands,
                                        EventKind::kMoveArrives, EventKind::kMoveEnded}));
  for (const HistoryEvent& event : events) {
    expect_by(event, kAlice);
    EXPECT_EQ(event.gpu, 2u);
    EXPECT_EQ(event.value, 0u);
  }
}

TEST(Taps, AMoveThatFailsEndsWithTheCode) {
  Moves rig;
  const Joined x = rig.process(kGiB);
  Heard heard(rig);
  alice(rig, {{"op", "migrate"}, {"to", "1"}});
  rig.leave({&x});
  rig.land(x, 0, abi::kSwapNotMoved);
  rig.come({&x}, 0);
  rig.pass(milliseconds(50));
  const auto events = heard.only(kMoves);
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kMoveLeaves, EventKind::kMoveLands,
                                        EventKind::kMoveArrives, EventKind::kMoveEnded}));
  EXPECT_EQ(events[2].value, 1u) << "back";
  EXPECT_EQ(events[2].gpu, 1u);
  EXPECT_EQ(events[3].value, static_cast<unsigned>(kRefusedByPolicy));
  EXPECT_EQ(events[3].gpu, 1u);
}

TEST(Taps, AGateThatOpensOrClosesIsToldAndOneThatStaysIsNot) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(seconds(1));
  Heard heard(rig);
  rig.tell("pause");
  rig.pass(seconds(1));
  auto gates = heard.only({EventKind::kGate});
  ASSERT_EQ(gates.size(), 1u);
  expect_by(gates[0], job.client->peer);
  EXPECT_EQ(gates[0].gpu, 1u);
  EXPECT_EQ(gates[0].value & 0xffffffffu, abi::kClosedByPause);
  EXPECT_EQ(gates[0].value >> 32, 0u);
  rig.tell("resume");
  gates = heard.only({EventKind::kGate});
  ASSERT_EQ(gates.size(), 1u);
  EXPECT_EQ(gates[0].value, static_cast<std::uint64_t>(abi::kClosedByPause) << 32);
}

TEST(Taps, SlicesAreToldAsTheyAreWritten) {
  Rig rig;
  const Joined low = rig.runs({.name = "low", .priority = "low"});
  const Joined high = rig.runs({.name = "high", .priority = "high"});
  Heard heard(rig);
  rig.settle({&low, &high});
  const auto slices = heard.only({EventKind::kSlice});
  ASSERT_FALSE(slices.empty());
  std::map<JobKey, std::uint64_t> last;
  for (const HistoryEvent& event : slices) last[event.job] = event.value;
  for (const auto& [key, value] : last) {
    const ClientId client = key == low.client->job ? low.id : high.id;
    const Slices wanted = rig.monitor.slice_controller().wanted(0, client);
    EXPECT_EQ(value, static_cast<std::uint64_t>(wanted.copy_us) << 32 | wanted.compute_us);
  }
}

TEST(Taps, RefusedMemoryIsToldOnceAMinute) {
  Rig rig;
  const Joined job = rig.runs({.name = "x", .memory = "1GiB"});
  rig.pass(seconds(1));
  Heard heard(rig);
  for (int i = 0; i < 3; ++i) rig.charge(job, 2 * kGiB);
  const auto events = heard.only({EventKind::kMemoryRefused});
  ASSERT_EQ(events.size(), 1u);
  expect_by(events[0], job.client->peer);
  EXPECT_EQ(events[0].value, 2 * kGiB);
  EXPECT_EQ(events[0].gpu, 1u);
  EXPECT_EQ(events[0].reason, wire::kOverQuota);
}

TEST(Taps, ACommandThatChangesASettingOrIsRefusedHasItsText) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  Heard heard(rig);
  alice(rig, {{"op", "set"}, {"limit", "30%"}});
  rig.ask({{"op", "set"}, {"target", "x"}, {"limit", "40%"}}, 1234, 5);
  rig.tell("ps");
  const auto events = heard.only({EventKind::kCommand, EventKind::kCommandRefused});
  ASSERT_EQ(kinds(events), (std::vector{EventKind::kCommand, EventKind::kCommandRefused}));
  expect_by(events[0], kAlice);
  EXPECT_EQ(events[0].job, job.client->job);
  EXPECT_EQ(rig.monitor.journal().text_of(events[0]), "set 'x': limit none -> 30%");
  expect_by(events[1], {5, 1234});
  EXPECT_NE(rig.monitor.journal().text_of(events[1]).find("refused: job 'x' belongs to"),
            std::string::npos);
}

// 300 jobs whose turns last a millisecond. The work of the taps is counted, not timed: it grows
// with the turns, not with the jobs that are looked at.
TEST(Taps, WithManyJobsTheyTellOfTheTurnsAlone) {
  constexpr unsigned kJobs = 300;
  Settings settings;
  settings.means = Means::kGate;
  settings.rules.kind = policy::Kind::kExclusive;
  Rig rig(1, 400 * kGiB, settings);
  std::vector<Joined> all;
  for (unsigned i = 0; i < kJobs; ++i) {
    all.push_back(rig.join({.name = "job" + std::to_string(i)}, 1000 + i % 2));
    all.back().shim.open_context();
    all.back().shim.launch();
    all.back().shim.ready_gate();
    all.back().shim.gate().held_threads = 1;
  }
  rig.pass(milliseconds(200));
  const auto closed = [&all] {
    std::vector<std::uint32_t> out;
    for (const Joined& each : all) out.push_back(each.client->lanes.at(0).order.closed);
    return out;
  };
  Heard heard(rig);
  std::size_t gates = 0, changes = 0, looks = 0;
  std::vector<std::uint32_t> before = closed();
  for (; looks < 1000; ++looks) {
    rig.now += milliseconds(1);
    rig.monitor.look(rig.now);
    const std::vector<std::uint32_t> after = closed();
    for (unsigned job = 0; job < kJobs; ++job) changes += after[job] != before[job] ? 1 : 0;
    before = after;
    const auto events = heard.all();
    gates += events.size();
    for (const HistoryEvent& event : events) ASSERT_EQ(event.kind, EventKind::kGate);
  }
  EXPECT_GT(changes, 10u) << "nothing was played";
  EXPECT_EQ(gates, changes) << "one for each gate that opens or closes, and nothing else";
  EXPECT_LE(changes, 2 * looks) << "one opens, and one closes";
}

}  // namespace
}  // namespace switchyard::monitor::test
