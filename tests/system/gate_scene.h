// A scene for the gate: a job whose threads do as told, and a monitor that the test plays.
//
// Threading: as harness.h.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "tests/system/harness.h"
#include "tests/system/played_monitor.h"

namespace switchyard::system_tests {

// Launches that a stream's queue takes whatever the size of their batches: the simulated GPU's
// queue holds 1024 entries. A launch takes three at most, with its batch's wait and number, and up
// to 64 timed launches take two more.
constexpr int kFit = 280;

class GateScene : public Scene {
 protected:
  void SetUp() override {
    Scene::SetUp();
    monitor_ = std::make_unique<PlayedMonitor>(socket());
  }
  void TearDown() override {
    child_.reset();
    Scene::TearDown();
  }

  // The job, joined, with its gate armed and seen by the GPU.
  void begin(const Changes& changes = {}) {
    start_job(changes);
    monitor_->arm();
    // The size of a batch grows. How far it grows depends on the speed of this machine.
    for (int i = 0; i < 20; ++i) done(3, "launch 50", "sync");
    warmed_ = 1000;
    ASSERT_EQ(monitor_->gate().state.load(), abi::kGateReady);
    ASSERT_EQ(count(), 0);
    ASSERT_TRUE(no_batch_is_open());
  }

  void start_job(const Changes& changes) {
    Changes all = {{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_JOB", "gated"}};
    all.insert(all.end(), changes.begin(), changes.end());
    child_.emplace(start({built("tests/jobs/job_gate")}, all));
    ASSERT_EQ(line(), "ready");
    ASSERT_TRUE(monitor_->joined());
  }

  void tell(int thread, const std::string& command) {
    ASSERT_TRUE(child_->write_line(std::to_string(thread) + " " + command));
  }
  template <typename... Commands>
  void done(int thread, const Commands&... commands) {
    (tell(thread, commands), ...);
    for (const std::string& command : {std::string(commands)...}) {
      await(thread, command);
    }
  }
  // Reads until the thread's answer to the command has come.
  void await(int thread, const std::string& command) {
    const std::string wanted =
        "did " + std::to_string(thread) + " " + command.substr(0, command.find(' '));
    for (;;) {
      const auto found = std::find(answers_.begin(), answers_.end(), wanted);
      if (found != answers_.end()) {
        answers_.erase(found);
        return;
      }
      const std::string next = line();
      ASSERT_EQ(next.substr(0, 4), "did ") << "waiting for: " << wanted;
      answers_.push_back(next);
    }
  }
  // The gate closes over a queue that is nearly full, and another thread is held.
  void close_behind_the_queue(std::uint32_t why) {
    done(3, "hold", "launch " + std::to_string(kFit));
    monitor_->close(why);
    release();
    tell(4, "launch 5");
    EXPECT_TRUE(held(1));
  }
  // All of them have run.
  void expect_queue_and_held_launched() {
    await(4, "launch");
    done(4, "sync");
    done(3, "sync");
    EXPECT_EQ(count(), kFit + 5);
  }
  // Nothing has run, however long that takes here.
  void expect_nothing_runs() {
    give_it_time();
    EXPECT_EQ(count(), 0);
  }
  // Its launch, which was held, has run, and `kernels` in all.
  void expect_launched(int thread, long kernels) {
    await(thread, "launch");
    done(thread, "sync");
    EXPECT_EQ(count(), kernels);
  }
  bool answered(int thread, const std::string& command) {
    count();  // whatever was said before it is read
    return std::find(answers_.begin(), answers_.end(),
                     "did " + std::to_string(thread) + " " + command) != answers_.end();
  }
  // Kernels that have run, after the first.
  long count() {
    if (!child_->write_line("count")) return -1;
    for (;;) {
      const std::string next = line();
      if (next.rfind("count ", 0) == 0) return std::stol(next.substr(6)) - warmed_;
      if (next.empty()) return -1;
      answers_.push_back(next);
    }
  }
  // A launch that joined an open batch would stand behind that batch's wait, which is over. The end
  // of a batch is left out where another thread looks at the batch just then; the batch is given up
  // after a second.
  bool no_batch_is_open() {
    return eventually([&] {
      const abi::Gate& gate = monitor_->gate();
      for (unsigned slot = 0; slot < abi::kProgressSlots; ++slot) {
        if (gate.done[slot].load() != gate.submitted[slot].load()) return false;
      }
      return true;
    });
  }
  void release() { ASSERT_TRUE(child_->write_line("release")); }
  bool held(unsigned threads) {
    return eventually([&] { return monitor_->gate().held_threads.load() == threads; });
  }
  // The launching thread stands inside the driver.
  bool queue_is_full() {
    std::uint64_t launches = 0;
    return eventually([&] {
      const std::uint64_t before = launches;
      launches = monitor_->lane().launches.load();
      give_it_time();
      return launches > 1500 && launches == before;
    });
  }
  // Work that may still run has run, however slow the machine is: that changes nothing at a closed
  // gate.
  void give_it_time() { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }

  std::string line() { return line_of(*child_); }

  std::unique_ptr<PlayedMonitor> monitor_;
  std::optional<Child> child_;
  std::vector<std::string> answers_;
  long warmed_ = 0;
};

}  // namespace switchyard::system_tests
