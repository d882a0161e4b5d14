// A scene: one simulated GPU, one monitor and the command line, apart from every other scene.
//
// Concept. Each test has a folder of its own with the GPU's state and the monitor's socket, so
// tests run side by side. Whatever a scene starts, also what double-forks away from it, ends with
// it. Every wait has a limit that only a hang reaches; no test depends on speed.
//
// Threading: one scene belongs to one thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/base/child.h"

namespace switchyard::system_tests {

using nlohmann::json;
using tools::Child;
using Words = std::vector<std::string>;
using Changes = std::vector<std::pair<std::string, std::string>>;

// A machine of two GPUs.
inline const Changes kTwoGpus = {{"FAKECUDA_DEVICES", "2"}};

inline constexpr std::uint64_t kMiB = 1u << 20;

// How long a wait may last. Only a hang reaches it. A test that has failed already does not wait as
// long for events that will not come either. It ends about a minute after it got stuck.
struct Limit {
  operator std::chrono::milliseconds() const {  // NOLINT: it stands for the duration
    return std::chrono::seconds(::testing::Test::HasFailure() ? 2 : 60);
  }
};
inline constexpr Limit kLimit;

// Files of this build.
std::string built(const std::string& name);  // "switchyard", "libswitchyard.so", "tests/jobs/..."
std::string loop_program();                  // job_loop
// Whether what the program wrote on stderr has this text in it.
bool says(const Child::End& end, const std::string& text);

class Scene : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Starts a program in the scene's environment.
  Child start(const Words& command, const Changes& changes = {});
  // The same, and waits for its end.
  Child::End run(const Words& command, const Changes& changes = {});
  // `switchyard WORDS...`
  Child::End cli(const Words& words, const Changes& changes = {});
  // The same as the user nobody. pre: this is root.
  Child::End cli_as_nobody(const Words& words);
  // `switchyard run OPTIONS -- COMMAND`, left running.
  Child job(const Words& options, const Words& command, const Changes& changes = {});
  // The same for job_loop, once its first kernel has ended.
  Child loop(const Words& options, const Words& loop_options = {}, const Changes& changes = {});
  // 'holder' has most of the GPU's memory, and an allocation of 'waiter' waits for it. Then
  // `meanwhile` is called. Then 'holder' frees it, and the allocation must succeed.
  void play_allocation_that_waits(const std::function<void()>& meanwhile = [] {});
  // Kills a process of the scene and waits until the kernel has taken back all that it had. Until
  // then the claims and the lock of a monitor stand in the way of the next one.
  void kill_and_wait(pid_t pid);
  // A monitor that stays, started by hand: this version's, or `program`.
  Child monitor(const Words& options = {}, const Changes& changes = {},
                const std::string& program = built("switchyardd"));

  json listing(const std::string& what,
               const Changes& changes = {});     // `switchyard WHAT --json`; null on failure
  json job_named(const std::string& name);       // as `ps` has it; null when there is none
  json gpu_of(const std::string& name);          // its first GPU; null when there is none
  int monitor_pid(const Changes& changes = {});  // 0 when none answers
  bool eventually(const std::function<bool()>& condition);

  std::string in_folder(const std::string& name) const { return folder_ + "/" + name; }
  std::string socket() const { return in_folder("m.sock"); }

 private:
  Changes environment(const Changes& changes) const;

  std::string folder_;
};

// "key VALUE" in the output of a job: the value, or -1.
long value_of(const std::string& output, const std::string& key);

// The next line that a job says; empty when none comes.
std::string line_of(Child& job);
// What it answers a line of ours; empty when it doesn't.
std::string ask(Child& job, const std::string& command);

// Asks a running job_loop for its kernels; -1 when it has gone.
long kernels(Child& loop);

}  // namespace switchyard::system_tests
