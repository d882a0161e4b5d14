// A job whose memory moves, and the monitor that says so, played.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/system/harness.h"
#include "tests/system/played_monitor.h"

namespace switchyard::system_tests {

class Swap : public Scene {
 protected:
  void SetUp() override {
    Scene::SetUp();
    monitor_.emplace(socket());
  }
  void TearDown() override {
    child_.reset();
    Scene::TearDown();
  }

  // A job with three allocations, one of several chunks, one of which is too small to be moved.
  void begin(const Changes& changes = {}) {
    begin_with({std::to_string(34 * kMiB), std::to_string(3 * kMiB + 12), std::to_string(kMiB)},
               38 * kMiB, changes);
  }

  // A job with `memory`, of which `movable` bytes can leave.
  void begin_with(const std::vector<std::string>& memory, std::uint64_t movable,
                  const Changes& changes = {}) {
    Changes all = {{"LD_PRELOAD", built("libswitchyard.so")},
                   {"SWITCHYARD_JOB", "swapped"},
                   {"SWITCHYARD_SWAPPABLE", "yes"},
                   {"FAKECUDA_PATTERN", "1"}};
    all.insert(all.end(), changes.begin(), changes.end());
    std::vector<std::string> command = within_;
    command.push_back(built("tests/jobs/job_swap"));
    command.insert(command.end(), memory.begin(), memory.end());
    child_.emplace(start(command, all));
    ASSERT_EQ(line(), "ready");
    ASSERT_TRUE(monitor_->joined());
    words().host_limit_bytes.store(1024 * kMiB);
    ASSERT_EQ(words().total_bytes.load(), movable);
    ASSERT_EQ(words().resident_bytes.load(), movable);
  }

  abi::Residency& words() { return monitor_->residency(); }
  abi::Memory& memory() { return monitor_->memory(); }
  std::uint64_t stays(Stays why) { return memory().stays_bytes[static_cast<unsigned>(why)].load(); }
  void out(std::uint64_t limit = 0) {
    words().limit_bytes.store(limit);
    words().limited.store(1);
  }
  void in() { words().limited.store(0); }
  bool becomes(std::uint32_t phase) {
    return eventually([&] { return words().phase.load() == phase; });
  }
  bool swapped_out(std::uint64_t limit = 0) {
    out(limit);
    return becomes(abi::kAbsent);
  }
  bool swapped_in() {
    in();
    return becomes(abi::kResident);
  }
  bool one_is_held() {
    return eventually([&] { return words().held_threads.load() == 1; });
  }
  bool fails(std::uint32_t error) {
    return eventually([&] { return words().error.load() == error; });
  }

  std::string line() { return line_of(*child_); }
  std::string ask(const std::string& command) { return system_tests::ask(*child_, command); }
  // The job ends what it began, and every word is as it was left.
  void expect_right_in_the_end() {
    EXPECT_EQ(ask("end"), "did end");
    EXPECT_EQ(ask("check"), "right");
  }
  // All leaves and comes back, as it was.
  void out_and_in() {
    ASSERT_TRUE(swapped_out());
    EXPECT_EQ(words().resident_bytes.load(), 0u);
    ASSERT_TRUE(swapped_in());
    EXPECT_EQ(ask("check"), "right");
  }
  // The same three times while the job launches. `bytes`: all that moves, each time anew.
  void out_and_in_under_work(std::uint64_t bytes) {
    ask("begin");
    for (int round = 0; round < 3; ++round) {
      ASSERT_TRUE(swapped_out());
      EXPECT_EQ(words().resident_bytes.load(), 0u);
      const std::string held = count();
      ASSERT_TRUE(swapped_in());
      EXPECT_TRUE(eventually([&] { return count() != held; }));
    }
    expect_right_in_the_end();
    EXPECT_EQ(words().moved_bytes.load(), 6 * bytes);
  }
  // What the job says to `command`, which waits while its memory is away.
  std::string said_once_it_is_back(const std::string& command) {
    return swapped_out() ? said_after_the_wait(command) : "it did not leave";
  }
  // The same when it is away already.
  std::string said_after_the_wait(const std::string& command) {
    EXPECT_TRUE(child_->write_line(command));
    EXPECT_TRUE(one_is_held());
    in();
    return line();
  }
  // The job launches all the while; whatever failed, all is there again in the end, as it was.
  void expect_nothing_lost() {
    ask("begin");
    for (int round = 0; round < 2; ++round) {
      out();
      ASSERT_TRUE(eventually([&] {
        return words().phase.load() == abi::kAbsent || words().error.load() != abi::kSwapFine;
      }));
      in();
      ASSERT_TRUE(eventually([&] {
        return words().phase.load() == abi::kResident &&
               words().resident_bytes.load() == words().total_bytes.load();
      }));
    }
    expect_right_in_the_end();
    EXPECT_TRUE(std::filesystem::exists(in_folder("failed"))) << "the call was never refused";
  }

  // Kernels that were launched so far.
  std::string count() { return ask("count"); }

  std::optional<PlayedMonitor> monitor_;
  std::optional<Child> child_;
  Words within_;  // a command that the job is run by
};

// For a parameter that says which call of the driver fails: "cuMemCreate:6=2".
inline std::string name_of(const ::testing::TestParamInfo<const char*>& info) {
  std::string name;
  for (const char c : std::string(info.param)) {
    name += c == ':' ? std::string("Call") : c == '=' ? std::string("With") : std::string(1, c);
  }
  return name;
}

}  // namespace switchyard::system_tests
