// A job of several ranks on simulated GPUs of their own, with the simulated NCCL between them.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/system/harness.h"

namespace switchyard::system_tests {

// The ranks of one job.
using Ranks = std::vector<Child>;

// The same line to all ranks, before any of them answers; then their answers.
inline Words ask_all(Ranks& ranks, const std::string& command) {
  for (Child& rank : ranks) EXPECT_TRUE(rank.write_line(command));
  Words said;
  for (Child& rank : ranks) said.push_back(line_of(rank));
  return said;
}
// Steps that each rank has made. By "hold" none of them begins more than one more.
inline std::vector<long> steps_of(Ranks& ranks, const std::string& command = "steps") {
  std::vector<long> out;
  for (const std::string& said : ask_all(ranks, command)) out.push_back(std::stol(said.substr(6)));
  return out;
}
// What the job computes: each adds its number plus one, then all are summed.
inline std::string expected_sum(std::size_t ranks, long steps) {
  std::vector<std::uint32_t> values;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const float one = 1.0f / static_cast<float>(rank + 1);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &one, sizeof bits);
    values.push_back(bits);
  }
  for (long i = 0; i < steps; ++i) {
    std::uint32_t sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sum += values[rank] + static_cast<std::uint32_t>(rank) + 1;
    }
    std::fill(values.begin(), values.end(), sum);
  }
  return "sum " + std::to_string(values[0]);
}
// All ranks make as many steps in the end, and have what an undisturbed run has: the sum is the
// same function of the steps.
inline void expect_right_in_the_end(Ranks& ranks) {
  // Else one that is fast has made more before it is told.
  const auto so_far = steps_of(ranks, "hold");
  const long last = *std::max_element(so_far.begin(), so_far.end()) + 20;
  for (const std::string& said : ask_all(ranks, "until " + std::to_string(last))) {
    EXPECT_EQ(said, "end " + std::to_string(last));
  }
  for (const std::string& sum : ask_all(ranks, "sum")) {
    EXPECT_EQ(sum, expected_sum(ranks.size(), last));
  }
}

class Gang : public Scene {
 protected:
  void TearDown() override {
    ranks_.clear();
    Scene::TearDown();
  }

  // A job "gang" with so many ranks; each sees one GPU if there are as many, else they share them.
  // They join one job, as the workers of torchrun do.
  void begin(int ranks, int gpus = 2, const Changes& changes = {}) {
    begin_as("gang", ranks_, ranks, gpus, changes);
  }
  void begin_as(const std::string& name, Ranks& made, int ranks, int gpus, const Changes& changes) {
    begin_each(name, made, gpus, std::vector<Changes>(static_cast<std::size_t>(ranks), changes));
  }
  // With changes of each rank's own.
  void begin_each(const std::string& name, Ranks& made, int gpus,
                  const std::vector<Changes>& changes) {
    start_each(name, made, gpus, changes);
    for (Child& rank : made) ASSERT_EQ(line_of(rank), "ready");
  }
  void start_each(const std::string& name, Ranks& made, int gpus,
                  const std::vector<Changes>& changes) {
    const int ranks = static_cast<int>(changes.size());
    for (int rank = 0; rank < ranks; ++rank) {
      Changes all{{"LD_LIBRARY_PATH", built("fakecuda") + ":" + built("fakenccl")},
                  {"LD_PRELOAD", built("libswitchyard.so")},
                  {"FAKECUDA_DEVICES", std::to_string(gpus)},
                  {"CUDA_VISIBLE_DEVICES", std::to_string(rank % gpus)},
                  {"SWITCHYARD_JOB", name},
                  {"SWITCHYARD_NAME", name}};
      const Changes& own = changes[static_cast<std::size_t>(rank)];
      all.insert(all.end(), own.begin(), own.end());
      made.push_back(start({built("tests/jobs/" + program_), in_folder("id-" + name),
                            std::to_string(ranks), std::to_string(rank)},
                           all));
    }
  }
  Words ask_all(const std::string& command) { return system_tests::ask_all(ranks_, command); }
  void do_all(const std::string& command) {
    for (const std::string& said : ask_all(command)) {
      EXPECT_EQ(said, "did " + command.substr(0, command.find(' ')));
    }
  }
  Child& rank(std::size_t number) { return ranks_[number]; }

  static Changes two_gpus() { return {{"FAKECUDA_DEVICES", "2"}}; }

  // As `ps` has them, the largest first.
  json communicators() { return job_named("gang")["communicators"]; }
  // The launches of each rank of the first one.
  std::vector<long> launched(std::size_t communicator = 0) {
    std::vector<long> out;
    const json all = communicators();
    if (communicator >= all.size()) return out;
    for (const json& rank : all[communicator]["ranks"]) out.push_back(rank["launched"]);
    return out;
  }
  // Stops rank 1 by a signal in a moment when its peer has gone on.
  bool stop_behind() {
    return eventually([&] {
      ::kill(rank(1).pid(), SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto counts = launched();
      if (counts.size() == 2 && counts[1] < counts[0]) return true;
      ::kill(rank(1).pid(), SIGCONT);
      return false;
    });
  }

  std::string program_ = "job_nccl";
  Ranks ranks_;
};

}  // namespace switchyard::system_tests
