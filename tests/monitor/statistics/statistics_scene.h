// A job of two ranks, whose libraries tell in their pages what they launch.
//
// Threading: one thread, the test's.
#pragma once

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

inline constexpr std::uint64_t kId = 77;
inline constexpr std::uint32_t kReduce = 1, kGather = 4, kSend = 9, kReceive = 10;

class Statistics : public ::testing::Test {
 protected:
  // The library's side: a communicator, what is launched in it, and kernels.
  static void place(const Joined& who, std::uint32_t rank, std::uint32_t ranks = 2) {
    who.shim.joins_communicator(kId, rank, ranks);
  }
  void record(const Joined& who, std::uint32_t what) const { who.shim.record(what, rig.now); }
  void collective(const Joined& who, std::uint32_t kind = kReduce, std::uint32_t bytes = 4) const {
    who.shim.collective(kind, bytes, rig.now);
  }
  // 40 iterations of 100 ms; the second rank launches 30 ms after the first.
  void train_with_a_late_second() {
    place(first, 0);
    place(second, 1);
    for (int i = 0; i < 40; ++i) {
      collective(first);
      rig.pass(milliseconds(30));
      collective(second);
      rig.pass(milliseconds(70));
    }
  }
  // As the library does it: only what is asked for.
  void kernel(const Joined& who, std::uint32_t what) const {
    const bool asked = (who.lane().attention & abi::kRecordLaunches) != 0;
    const std::uint32_t kind = what % abi::kLaunchClasses;
    const std::uint64_t wanted = who.shim.page().process.recorded_classes[kind / 64];
    if (asked && (wanted >> kind % 64 & 1) != 0) record(who, what | abi::kLaunchRecord);
  }
  // What the policy counted for its lane on the first GPU (Usage).
  static Client::Lane::Had& had(const Joined& who) { return who.client->lanes[0].had; }
  static void has(const Joined& who, double seconds) {
    had(who).known = true;
    had(who).gpu_ns += seconds * 1e9;
  }
  // As the monitor does it five times a second, at a time of its own.
  void look(Usage& usage, Time now) {
    rig.monitor.look_at_status(rig.now);
    usage.tick(rig.monitor.registry(), rig.monitor.statuses(), now);
  }
  json ask() { return rig.ask({{"op", "ps"}, {"iterations", true}})["jobs"][0]; }
  json process(std::size_t at = 0) { return rig.job()["processes"][at]; }
  json stalls() { return rig.job()["stalls"]; }
  void pass(Time span) {
    for (const Time end = rig.now + span; rig.now < end;) rig.pass(milliseconds(200));
  }

  Rig rig{2};
  Ask x{.job = "x", .name = "x", .swappable = "yes"};
  Joined first = rig.runs(x), second = rig.runs(x);
};

}  // namespace switchyard::monitor::test
