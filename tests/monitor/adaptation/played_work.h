// A training and others beside it on one GPU, as their pages show them to a whole monitor.
//
// Threading: one test, one thread.
#pragma once

#include <functional>
#include <vector>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

class PlayedWork : public ::testing::Test {
 protected:
  static constexpr Time kStep = milliseconds(10);

  explicit PlayedWork(Settings settings = {}) : rig(1, 4 * kGiB, std::move(settings)) {}

  // An iteration of the training: what its library records.
  void iterate(const Joined& who) {
    who.shim.iterate(began_);
    who.shim.launch();
    ++iterations;
  }
  // It launches, or sleeps before its closed gate.
  void work(const Joined& who, bool copies = false) {
    const bool held = who.shim.gate().closed != 0;
    who.shim.gate().held_threads = held ? 1 : 0;
    if (held) return;
    if (copies) {
      who.shim.lane().copies += 10;
    } else {
      who.shim.launch();
    }
  }
  // Time passes; the training takes so long for an iteration, and `others` do as they do.
  void pass(Time span) {
    for (const Time end = rig.now + span; rig.now < end;) step();
  }
  template <typename Holds>
  bool until(Holds holds, Time span = seconds(30)) {
    for (const Time end = rig.now + span; rig.now < end;) {
      step();
      if (holds()) return true;
    }
    return false;
  }
  void step() {
    rig.now += kStep;
    while (trains && began_ + period() <= rig.now) {
      began_ += period();
      iterate(train);
    }
    if (!trains) began_ = rig.now;
    if (others) others();
    if (++steps_ % 20 == 0) rig.monitor.tick(rig.now);
    // As the loop does it.
    rig.monitor.look_at_due(rig.now);
    if (steps_ % 20 == 0) rig.monitor.look(rig.now);
    for (const Joined* each : present) each->shim.apply_slices();
  }
  json named(const std::string& name) {
    const json all = rig.ask({{"op", "ps"}});
    for (const json& each : all["jobs"]) {
      if (each["name"] == name) return each;
    }
    return {};
  }

  Rig rig;
  Joined train = rig.runs({.job = "train", .name = "train"});
  std::vector<const Joined*> present = {&train};
  bool trains = true;
  std::uint64_t iterations = 0;
  std::function<Time()> period = [] { return milliseconds(100); };
  std::function<void()> others;

 private:
  Time began_ = rig.now;
  unsigned steps_ = 0;
};

}  // namespace switchyard::monitor::test
