// Processes that can't act: how long that must last, and how many of them are looked at.
#include "monitor/core/standing.h"

#include <gtest/gtest.h>

#include <list>

#include "switchyard/status.h"
#include "tests/monitor/residency/swaps_scene.h"
#include "tests/monitor/stopped_process.h"

namespace switchyard::monitor::test {
namespace {

TEST(Standing, ABriefStopByADebuggerOrADiskIsNone) {
  const struct {
    Standstill seen;
    Time lasts;
  } cases[] = {{Standstill::kStopped, Time{0}},
               {Standstill::kDumping, Time{0}},
               {Standstill::kFrozen, Time{0}},
               {Standstill::kTraced, standing::kTracedFor},
               {Standstill::kDisk, standing::kDiskFor}};
  for (const auto& each : cases) {
    standing::Known known;
    Time now = seconds(10);
    standing::note(known, each.seen, now);
    EXPECT_EQ(known.why == each.seen, each.lasts == Time{0});
    standing::note(known, Standstill::kNone, now += milliseconds(1));
    EXPECT_EQ(known.why, Standstill::kNone);
    standing::note(known, each.seen, now += milliseconds(1));
    standing::note(known, each.seen, now += each.lasts);
    EXPECT_EQ(known.why, each.seen) << key_of(each.seen);
  }
}

TEST(Standing, OnlyThoseThatHoldSomethingUpAreLookedAtAndNotAllAtOnce) {
  Rig rig;
  std::list<Joined> all;
  for (int i = 0; i < 200; ++i) all.push_back(rig.runs({.job = "j", .name = "x"}));
  const auto looked = [&] {
    std::size_t count = 0;
    for (const Joined& each : all) count += each.client->standing.looked_at == rig.now ? 1 : 0;
    return count;
  };
  rig.pass(seconds(1));
  EXPECT_EQ(looked(), 0u);
  for (const Joined& each : all) each.client->standing.seen = Standstill::kStopped;
  std::size_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    rig.pass(milliseconds(200));
    EXPECT_LE(looked(), standing::kMostLooks);
    sum += looked();
  }
  EXPECT_EQ(sum, all.size()) << "each of them once";
  for (const Joined& each : all) EXPECT_NE(each.client->standing.looked_at, Time{0});
}

// A swappable job of one process that is stopped.
struct Stopped : Swaps {
  StoppedProcess process;
  Joined with_process(Ask ask, std::uint64_t bytes) {
    next_pid = process.pid();
    Joined joined = with(std::move(ask), bytes);
    next_pid = 3'000'000;
    return joined;
  }
  std::string named() const {
    return "its process " + std::to_string(process.pid()) + " is stopped by a signal";
  }
};

TEST(Standing, MemoryOfAStoppedProcessIsNotOrderedOutAndTheStopIsNamed) {
  Stopped rig;
  const Joined a = rig.with_process({.name = "x"}, kGiB);
  for (const json& reply : {rig.tell("swap-out"), rig.release()}) {
    EXPECT_EQ(reply["code"], kRefusedByPolicy);
    EXPECT_NE(reply["error"].get<std::string>().find(rig.named()), std::string::npos) << reply;
  }
  EXPECT_FALSE(a.shim.told_to_leave());
  EXPECT_EQ(rig.job()["state"], "stopped");
  EXPECT_EQ(rig.job()["state_reason"], "signal");
  EXPECT_EQ(rig.job()["processes"][0]["standstill"], "signal");
  rig.process.goes_on();
  rig.pass(milliseconds(200));
  EXPECT_NE(rig.job()["state"], "stopped");
  EXPECT_EQ(rig.tell("swap-out")["ok"], true);
  EXPECT_TRUE(a.shim.told_to_leave());
}

TEST(Standing, OneThatIsStoppedWhileItLeavesIsGivenUpAtOnceByName) {
  Stopped rig;
  const Joined a = rig.with_process({.name = "x"}, kGiB);
  rig.process.goes_on();
  rig.pass(milliseconds(200));
  rig.tell("swap-out");
  rig.leaves(a, kGiB / 2);
  rig.pass(milliseconds(200));
  EXPECT_TRUE(rig.awaited(Awaits::kOut, a).is_null());
  ::kill(rig.process.pid(), SIGSTOP);
  ::waitpid(rig.process.pid(), nullptr, WUNTRACED);
  rig.pass(milliseconds(200));
  const json reply = rig.awaited(Awaits::kOut, a);
  EXPECT_EQ(reply["code"], kRefusedByPolicy) << reply;
  EXPECT_NE(reply.dump().find(rig.named()), std::string::npos) << reply;
}

TEST(Standing, AStoppedJobThatIsOutKeepsNoRoomFromOthers) {
  Stopped rig;
  const Joined a = rig.with_process({.name = "x"}, kGiB);
  rig.process.goes_on();
  rig.pass(milliseconds(200));
  rig.tell("swap-out");
  rig.is_absent(a);
  ::kill(rig.process.pid(), SIGSTOP);
  ::waitpid(rig.process.pid(), nullptr, WUNTRACED);
  rig.pass(milliseconds(200));
  rig.tell("swap-in");
  rig.pass(milliseconds(200));
  EXPECT_TRUE(a.shim.told_to_leave()) << "it could not come";
  EXPECT_EQ(rig.free(), 4 * kGiB);
  rig.process.goes_on();
  rig.pass(milliseconds(200));
  EXPECT_FALSE(a.shim.told_to_leave());
}

}  // namespace
}  // namespace switchyard::monitor::test
