// A job of several ranks on simulated GPUs of their own, with the simulated NCCL between them.
#pragma once

#include <vector>

#include "tests/system/harness.h"

namespace switchyard::system_tests {

class Gang : public Scene {
 protected:
  void TearDown() override {
    ranks_.clear();
    Scene::TearDown();
  }

  // A job "gang" with so many ranks; each sees one GPU if there are as many, else they share them.
  // They join one job, as the workers of torchrun do.
  void begin(int ranks, int gpus = 2, const Changes& changes = {}) {
    for (int rank = 0; rank < ranks; ++rank) {
      Changes all{{"LD_LIBRARY_PATH", built("fakecuda") + ":" + built("fakenccl")},
                  {"LD_PRELOAD", built("libswitchyard.so")},
                  {"FAKECUDA_DEVICES", std::to_string(gpus)},
                  {"CUDA_VISIBLE_DEVICES", std::to_string(rank % gpus)},
                  {"SWITCHYARD_JOB", "gang"},
                  {"SWITCHYARD_NAME", "gang"}};
      all.insert(all.end(), changes.begin(), changes.end());
      ranks_.push_back(start({built("tests/jobs/job_nccl"), in_folder("id"), std::to_string(ranks),
                              std::to_string(rank)},
                             all));
    }
    for (Child& rank : ranks_) ASSERT_EQ(line_of(rank), "ready");
  }
  // The same line to all ranks, before any of them answers; then their answers.
  Words ask_all(const std::string& command) {
    for (Child& rank : ranks_) EXPECT_TRUE(rank.write_line(command));
    Words said;
    for (Child& rank : ranks_) said.push_back(line_of(rank));
    return said;
  }
  void do_all(const std::string& command) {
    for (const std::string& said : ask_all(command)) {
      EXPECT_EQ(said, "did " + command.substr(0, command.find(' ')));
    }
  }
  Child& rank(std::size_t number) { return ranks_[number]; }

  static Changes two_gpus() { return {{"FAKECUDA_DEVICES", "2"}}; }

  // As `ps` has them, the largest first.
  json communicators() { return job_named("gang")["communicators"]; }
  // What each rank of the first one has launched.
  std::vector<long> launched(std::size_t communicator = 0) {
    std::vector<long> out;
    const json all = communicators();
    if (communicator >= all.size()) return out;
    for (const json& rank : all[communicator]["ranks"]) out.push_back(rank["launched"]);
    return out;
  }

 private:
  std::vector<Child> ranks_;
};

}  // namespace switchyard::system_tests
