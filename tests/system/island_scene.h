// A scene with islands: jobs under the simulated MPS, whose daemons end soon after the last job.
//
// Threading: as harness.h.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/system/harness.h"

namespace switchyard::system_tests {

class IslandScene : public Scene {
 protected:
  void SetUp() override {
    Scene::SetUp();
    ASSERT_EQ(::mkdir(in_folder("run").c_str(), 0700), 0);
  }
  Changes with(Changes more = {}) const {
    more.insert(more.begin(), {{"PATH", built("fakecuda") + ":" + std::getenv("PATH")},
                               {"XDG_RUNTIME_DIR", in_folder("run")},
                               {"SWITCHYARD_TEST_ISLAND_GRACE_MS", "200"}});
    return more;
  }
  Child member(const std::string& name, Words options = {}, const Words& loop_options = {}) {
    options.insert(options.begin(), {"--name", name, "--co-run"});
    return loop(options, loop_options, with());
  }
  // Why `run` with these options does not start.
  std::string refusal(Words options, const Changes& more = {}) {
    Words words{"run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", "true"});
    const Child::End end = cli(words, with(more));
    EXPECT_EQ(end.status, 125) << end.err;
    return end.err;
  }
  int server_pid() {
    const json server = job_named("island-default");
    if (!server.is_object() || server["processes"].empty()) return 0;
    return server["processes"][0]["pid"].get<int>();
  }
  std::string folder() const {
    const std::string islands = in_folder("run") + "/switchyard/islands";
    for (const auto& each : std::filesystem::directory_iterator(islands)) return each.path();
    return "";
  }
  int daemon_pid() const {
    int pid = 0;
    std::ifstream(folder() + "/pipe/nvidia-cuda-mps-control.pid") >> pid;
    return pid;
  }
  bool goes_on(Child& job) {
    const long before = kernels(job);
    return before >= 0 && eventually([&] { return kernels(job) > before + 20; });
  }
  // The slice of a job as the driver has it, in microseconds.
  int slice_of(const std::string& name) {
    const json gpu = gpu_of(name);
    return gpu.is_object() ? gpu["slice_in_force_us"].get<int>() : -1;
  }
};

}  // namespace switchyard::system_tests
