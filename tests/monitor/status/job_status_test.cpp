// Each row of the table of states and reasons, and its texts.
#include "monitor/status/job_status.h"

#include <gtest/gtest.h>

#include "monitor/core/lanes.h"
#include "monitor/status/snapshot.h"
#include "tests/monitor/plants.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::status {
namespace {

using stalls::Hold;
using std::chrono::seconds;

constexpr JobKey kSelf = 1, kOther = 2;

// A job with two processes on the first of two GPUs, and another job beside it.
class JobStatusOf : public ::testing::Test {
 protected:
  JobStatusOf() {
    snapshot.now = seconds(100);
    snapshot.indices = {0, 3};
    for (const JobKey key : {kSelf, kOther}) {
      SeenJob job{.key = key, .name = key == kSelf ? "train" : "serve", .uid = 1000};
      job.gpus = {0, 1};
      for (const ClientId id : {10 * key, 10 * key + 1}) {
        job.processes.push_back({.client = id, .pid = static_cast<pid_t>(id), .lanes = {{}}});
        job.processes.back().lanes[0].used = true;
      }
      snapshot.jobs.emplace(key, job);
    }
  }
  SeenJob& job() { return snapshot.jobs.at(kSelf); }
  SeenLane& lane(std::size_t process = 0) { return job().processes[process].lanes[0]; }
  SeenLane& others_lane() { return snapshot.jobs.at(kOther).processes[0].lanes[0]; }
  JobStatus all() { return statuses_of(snapshot).at(kSelf); }
  Status status() { return all().job; }
  Status on(std::size_t gpu) { return all().gpus[gpu].status; }
  // As people are told it: state, reason, and the whole.
  void expect(State state, const std::string& reason, const std::string& text,
              const std::string& person = "") {
    const Status is = status();
    EXPECT_STREQ(key_of(is.code.state), key_of(state));
    EXPECT_EQ(reason_text(is), reason);
    EXPECT_EQ(text_of(is, person), text);
  }

  Snapshot snapshot;
};

TEST_F(JobStatusOf, IsOfTheFirstRowThatHolds) {
  // From the last row to the first: each hides those before it.
  const auto expect_row = [&](State state, Reason reason, Hold hold) {
    const Code code = status().code;
    EXPECT_STREQ(key_of(code.state), key_of(state));
    EXPECT_EQ(code.reason, reason) << "instead of " << static_cast<int>(reason);
    EXPECT_EQ(hold_of(code), hold);
    EXPECT_EQ(on(0).code, code) << "its GPU says the same";
  };
  expect_row(State::kIdle, Reason::kNone, Hold::kNone);
  lane().works = true;
  expect_row(State::kRunning, Reason::kNone, Hold::kNone);
  lane().held_by = abi::kClosedByTurn;
  expect_row(State::kWaiting, Reason::kTurn, Hold::kTurn);
  lane().held_by |= abi::kClosedByLimit;
  expect_row(State::kHeld, Reason::kLimit, Hold::kLimit);
  lane().held_by |= abi::kClosedByGuard;
  expect_row(State::kHeld, Reason::kGuard, Hold::kGuard);
  job().stage = GangHold::Stage::kTurnEnds;
  expect_row(State::kHeld, Reason::kTurnEnds, Hold::kCut);
  job().stage = GangHold::Stage::kGathering;
  expect_row(State::kHeld, Reason::kCut, Hold::kCut);
  lane(1).asks_since = seconds(90);
  expect_row(State::kWaiting, Reason::kAllocation, Hold::kMemory);
  job().where = ResidencyState::kMoving;
  expect_row(State::kMoving, Reason::kReturns, Hold::kSwap);
  job().wanted_out = residency::Reason::kYield;
  expect_row(State::kMoving, Reason::kYield, Hold::kSwap);
  job().where = ResidencyState::kSwapped;
  expect_row(State::kSwapped, Reason::kYield, Hold::kSwap);
  job().wanted_out = residency::Reason::kYield | residency::Reason::kIdle;
  expect_row(State::kSwapped, Reason::kIdleRelease, Hold::kSwap);
  job().wanted_out = job().wanted_out.with(residency::Reason::kUser);
  expect_row(State::kSwapped, Reason::kSwapOut, Hold::kSwap);
  job().where = ResidencyState::kWaiting;
  expect_row(State::kWaiting, Reason::kRoom, Hold::kMemory);
  job().moves = true;
  expect_row(State::kMoving, Reason::kMove, Hold::kSwap);
  job().prepares = true;
  expect_row(State::kMoving, Reason::kMovePrepares, Hold::kNone);
  job().stands = true;
  job().processes[1].stands = Standstill::kFrozen;
  expect_row(State::kStopped, Reason::kFrozen, Hold::kNone);
  job().paused = true;
  expect_row(State::kPaused, Reason::kPause, Hold::kPause);
}

TEST_F(JobStatusOf, AtTheEndOfItsTurnAClosedGateIsTheTurn) {
  job().stage = GangHold::Stage::kTurnEnded;
  expect(State::kHeld, "cut", "stopping for another's turn");
  lane().held_by = abi::kClosedByTurn;
  expect(State::kWaiting, "turn", "waiting: turn");
}

TEST_F(JobStatusOf, AJobRunsWhereOneOfItsGpusRuns) {
  SeenLane second{.gpu = 1, .used = true, .works = true};
  job().processes[1].lanes.push_back(second);
  lane().held_by = abi::kClosedByLimit;
  expect(State::kRunning, "", "running");
  EXPECT_EQ(on(0).code, (Code{State::kHeld, Reason::kLimit}));
  EXPECT_EQ(on(1).code, (Code{State::kRunning, Reason::kNone}));
}

TEST_F(JobStatusOf, OneHeldProcessHoldsTheGpu) {
  lane(0).works = true;
  lane(1).held_by = abi::kClosedByTurn;
  expect(State::kWaiting, "turn", "waiting: turn");
}

TEST_F(JobStatusOf, AGpuThatItNeverUsedHasNoPartInIt) {
  job().paused = true;
  EXPECT_EQ(on(0).code.state, State::kPaused);
  EXPECT_EQ(on(1).code, (Code{State::kIdle, Reason::kNoCuda}));
}

TEST_F(JobStatusOf, BeforeItsFirstContextItHasNoCuda) {
  for (SeenProcess& process : job().processes) process.lanes[0].used = false;
  expect(State::kIdle, "no CUDA yet", "no CUDA yet");
  job().processes.clear();
  expect(State::kIdle, "no CUDA yet", "no CUDA yet");
  job().old_layout = 9;
  expect(State::kUnmanaged, "old library", "unmanaged: old library (page layout 9)");
}

TEST_F(JobStatusOf, ALimitSaysHowMuchItIs) {
  lane().held_by = abi::kClosedByLimit;
  job().limit = 0.3;
  expect(State::kHeld, "limit", "held: limit 30%");
}

TEST_F(JobStatusOf, ATurnSaysWhoHasTheGpu) {
  lane().held_by = abi::kClosedByTurn;
  others_lane().works = true;
  expect(State::kWaiting, "turn", "waiting: turn of serve");
  EXPECT_EQ(status().by.job, kOther);
  EXPECT_EQ(status().by.uid, 1000);
  EXPECT_EQ(on(0).by, status().by);
}

TEST_F(JobStatusOf, OfSeveralThatHaveTheGpuTheTurnIsOfTheOneWithMost) {
  SeenJob third = snapshot.jobs.at(kOther);
  third.key = 3;
  third.name = "third";
  third.processes[0].lanes[0].works = true;
  third.processes[0].lanes[0].share = 0.6;
  snapshot.jobs.emplace(3, third);
  others_lane().works = true;
  others_lane().share = 0.3;
  lane().held_by = abi::kClosedByTurn;
  expect(State::kWaiting, "turn", "waiting: turn of third");
}

TEST_F(JobStatusOf, ATurnOnTwoGpusIsTheOneOfTheFirstAndEachGpuSaysItsOwn) {
  SeenJob third = snapshot.jobs.at(kOther);
  third.key = 3;
  third.processes[0].lanes[0].gpu = 1;
  third.processes[0].lanes[0].works = true;
  snapshot.jobs.emplace(3, third);
  others_lane().works = true;
  lane().held_by = abi::kClosedByTurn;
  job().processes[1].lanes = {{.gpu = 1, .used = true, .held_by = abi::kClosedByTurn}};
  EXPECT_EQ(on(0).by.job, kOther);
  EXPECT_EQ(on(1).by.job, 3u);
  EXPECT_EQ(status().by.job, kOther);
}

TEST_F(JobStatusOf, WaitingForMemorySaysHowMuchAndWhose) {
  lane().asks_since = seconds(90);
  lane().asks_bytes = 3ull << 29;
  lane(1).asks_since = seconds(95);
  lane(1).asks_bytes = 1ull << 29;
  expect(State::kWaiting, "memory", "waiting: 2.00 GiB");
  EXPECT_EQ(status().since, seconds(90));
  job().waits_for = kOther;
  expect(State::kWaiting, "memory of serve", "waiting: 2.00 GiB of serve");
  job().where = ResidencyState::kWaiting;
  job().away_bytes = 1ull << 30;
  expect(State::kWaiting, "memory of serve", "waiting: 1.00 GiB of serve");
}

TEST_F(JobStatusOf, APersonWhoHoldsItIsNamed) {
  job().paused = true;
  job().paused_by = Peer{7, 0};
  expect(State::kPaused, "", "held: paused by root", "root");
  EXPECT_EQ(status().by.uid, 0);
  job().where = ResidencyState::kSwapped;
  expect(State::kPaused, "swapped", "held: paused");
  job().paused = false;
  job().wanted_out = residency::Reason::kUser;
  job().out_by = Peer{8, 1001};
  expect(State::kSwapped, "swap-out", "swapped: swap-out by eve", "eve");
}

TEST_F(JobStatusOf, AGuardSaysForWhom) {
  lane().held_by = abi::kClosedByGuard;
  job().guarded = kOther;
  expect(State::kHeld, "guard", "held: guard of serve");
}

TEST_F(JobStatusOf, WhoNeedsTheMemoryIsNamedToTheOneThatGivesIt) {
  job().where = ResidencyState::kSwapped;
  job().wanted_out = residency::Reason::kYield;
  job().places = {1};
  expect(State::kSwapped, "GPU 3: another job needs the memory",
         "swapped: GPU 3: another job needs the memory");
  snapshot.jobs.at(kOther).waits_for = kSelf;
  expect(State::kSwapped, "GPU 3: another job needs the memory",
         "swapped: GPU 3: serve needs the memory");
  job().where = ResidencyState::kMoving;
  expect(State::kMoving, "GPU 3", "moving out");
  job().wanted_out = {};
  expect(State::kMoving, "GPU 3", "moving in");
}

TEST_F(JobStatusOf, AMoveSaysWhere) {
  job().moves = true;
  job().goal = 1;
  expect(State::kMoving, "to GPU 3", "moving to GPU 3");
  job().back = true;
  expect(State::kMoving, "back to GPU 3", "moving back to GPU 3");
}

TEST_F(JobStatusOf, ACutSaysWhatFollows) {
  job().stage = GangHold::Stage::kGathering;
  expect(State::kHeld, "cut", "stopping for a pause");
  job().leaves_at_cut = true;
  expect(State::kHeld, "cut", "stopping for a swap");
}

TEST_F(JobStatusOf, OneOfSeveralThatIsStoppedIsNamed) {
  job().stands = true;
  job().processes[1].stands = Standstill::kStopped;
  expect(State::kStopped, "signal: pid 11", "stopped: signal: pid 11");
  job().processes[0].stands = Standstill::kTraced;
  expect(State::kStopped, "debugger", "stopped: debugger");
}

TEST_F(JobStatusOf, AProcessIsHeldByItsOwnGatesAndAllocations) {
  lane(0).asks_since = seconds(90);
  lane(1).held_by = abi::kClosedByLimit;
  const JobStatus is = all();
  EXPECT_EQ(is.processes[0].hold, Hold::kMemory);
  EXPECT_EQ(is.processes[1].hold, Hold::kLimit);
}

TEST_F(JobStatusOf, GoesOnSinceItBegan) {
  lane().works = true;
  const JobStatus before = all();
  snapshot.now = seconds(107);
  JobStatus after = all();
  keep_since(before, after);
  EXPECT_EQ(after.job.since, seconds(100));
  EXPECT_EQ(after.gpus[0].status.since, seconds(100));
  lane().works = false;
  JobStatus idle = all();
  keep_since(before, idle);
  EXPECT_EQ(idle.job.since, seconds(107));
}

// --- in the monitor's listings ---

using test::Joined;
using test::json;
using test::Plants;
using test::Rig;

TEST(JobStatusListed, APauseNamesThePersonWhoAskedForIt) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(seconds(1));
  EXPECT_EQ(rig.tell("pause")["ok"], true);
  json listed = rig.job();
  EXPECT_EQ(listed["state"], "paused");
  EXPECT_EQ(listed["state_reason"], nullptr);
  EXPECT_EQ(listed["state_text"], "held: paused by root");
  EXPECT_EQ(listed["state_by"], (json{{"job", nullptr}, {"name", nullptr}, {"user", "root"}}));
  EXPECT_EQ(listed["gpus"][0]["state"], "paused");
  rig.pass(seconds(2));
  EXPECT_EQ(rig.job()["state_since_seconds"], 2);
  job.shim.launch();
  rig.tell("resume");
  listed = rig.job();
  EXPECT_EQ(listed["state"], "running");
  EXPECT_EQ(listed["state_text"], "running");
  EXPECT_EQ(listed["state_by"], nullptr);
  EXPECT_EQ(listed["state_since_seconds"], 0);
}

TEST(JobStatusListed, ATurnNamesTheJobThatHasIt) {
  Rig rig;
  rig.runs({.name = "serve"}).client->lanes[0].active = true;
  const Joined waits = rig.runs({.name = "train"});
  waits.client->lanes[0].order.closed = abi::kClosedByTurn;
  waits.shim.gate().held_threads = 1;
  rig.monitor.look_at_status(rig.now);
  const Status said = rig.monitor.statuses().of(*rig.monitor.registry().find_target("train")).job;
  EXPECT_EQ(text_of(said, ""), "waiting: turn of serve");
}

TEST(JobStatusListed, TheLowerOfItsLimitAndACeilingIsItsLimit) {
  Rig rig;
  const Joined a = rig.runs({.name = "x"});
  Job& job = *rig.monitor.registry().find(a.client->job);
  const auto limit = [&] { return see(rig.monitor.registry(), job).limit; };
  EXPECT_EQ(limit(), 0);
  Plants::in(job.restraint).ceiling = 0.4;
  EXPECT_EQ(limit(), 0.4);
  job.knobs.limit = 0.3;
  EXPECT_EQ(limit(), 0.3);
  job.knobs.limit = 0.5;
  EXPECT_EQ(limit(), 0.4);
}

TEST(JobStatusListed, AJobWhoseLibraryIsRefusedSaysSo) {
  Rig rig;
  std::string why;
  ASSERT_NE(rig.monitor.create(test::card_of({.name = "old"}), 1000, ::getpid(), {0}, rig.now, why),
            nullptr);
  EXPECT_EQ(rig.job()["state_reason"], "no CUDA yet");
  rig.monitor.refused_processes().note({::getpid(), 1000}, "layout", 9, rig.now);
  EXPECT_EQ(rig.job()["state"], "unmanaged");
  EXPECT_EQ(rig.job()["state_reason"], "old library");
  EXPECT_EQ(rig.job()["gpus"][0]["state_text"], "unmanaged: old library (page layout 9)");
  rig.now += RefusedProcesses::kForgotten + seconds(1);
  EXPECT_EQ(rig.job()["state"], "idle") << "it does not ask any more";
}

TEST(JobStatusCodes, AreWhatWasStored) {
  const char* const states[] = {"unknown", "running", "idle",   "held",    "waiting",
                                "paused",  "swapped", "moving", "stopped", "unmanaged"};
  for (unsigned i = 0; i < std::size(states); ++i) {
    EXPECT_STREQ(key_of(static_cast<State>(i)), states[i]);
  }
  const char* const reasons[] = {
      "pause", "signal",    "debugger", "core dump",    "frozen", "disk",    "move prepares",
      "move",  "room",      "swap-out", "idle release", "yield",  "returns", "allocation",
      "cut",   "turn ends", "guard",    "limit",        "turn",   "no CUDA", "old library"};
  EXPECT_EQ(key_of(Reason::kNone), nullptr);
  for (unsigned i = 0; i < std::size(reasons); ++i) {
    EXPECT_STREQ(key_of(static_cast<Reason>(i + 1)), reasons[i]);
  }
}

}  // namespace
}  // namespace switchyard::monitor::status
