// Memory that is handed over between jobs that take turns, end to end.
#include <signal.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

// Two jobs of 72 MiB in pieces of 6, of which some 104 fit. So at least 32 MiB are handed over,
// more than a part that comes alone. Their turns are short.
class HandedOver : public ReleaseInParts {
 protected:
  void large_ones_at_work(const Changes& environment = {},
                          const Words& capacity = {"--capacity", "120MiB"}) {
    two_at_work(with_short_turns(capacity), environment, {.count = 12, .mebibytes = 6},
                environment);
  }
  static Words with_short_turns(Words options) {
    for (const char* word : {"--worth-handing-over", "32MiB", "--stay-moves", "2"}) {
      options.emplace_back(word);
    }
    return options;
  }
  // On a loaded machine the command line gives up before the monitor answers. A job that looks for
  // a monitor is in no list. So it is asked again.
  json surely(const std::function<json()>& ask) {
    json found;
    EXPECT_TRUE(eventually([&] { return (found = ask()).is_object(); }));
    return found.is_object() ? found : json::object();
  }
  json gpu_of_job(const char* name) {
    return surely([&] { return gpu_of(name); });
  }
  json whole_gpu() {
    return surely([&] {
      const json status = listing("status");
      return status.is_object() ? status["gpus"][0] : json();
    });
  }
  std::uint64_t taken(const char* name) {
    return gpu_of_job(name).value("swap_taken_over_bytes", 0ull);
  }
  std::uint64_t times_out(const char* name) {
    return gpu_of_job(name).value("swap_times_out", 0ull);
  }
  bool moved(const char* name, std::uint64_t times) {
    return eventually([&] { return times_out(name) >= times; });
  }
};

// And goes on so, turn after turn: who comes doesn't begin with memory of its own.
TEST_F(HandedOver, WhatLeavesIsTheOthersAsItIsAndComesBackTheSameWay) {
  large_ones_at_work();
  EXPECT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
  const std::uint64_t taken_then = taken("one");
  ASSERT_TRUE(moved("one", times_out("one") + 2));
  EXPECT_TRUE(moved("two", 3));
  EXPECT_GE(taken("one") - taken_then, 24 * kMiB) << "once at least, of 32 to 40 MiB each time";
  expect_all_right();
}

// With an open descriptor it is no process's by NVML, and must not lessen what there is to give
// out.
TEST_F(HandedOver, OnAWholeGpuNothingOfItIsForeign) {
  large_ones_at_work({{"FAKECUDA_MEMORY", "120MiB"}}, {});
  ASSERT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
  const std::uint64_t then = times_out("one");
  EXPECT_TRUE(eventually([&] {
    // A chunk may be on its way just then.
    EXPECT_LT(whole_gpu().value("memory_outside_bytes", ~0ull), 12 * kMiB);
    return times_out("one") >= then + 2 || HasFailure();
  }));
  expect_all_right();
}

TEST_F(HandedOver, WhoeverIsKilledMeanwhileTheOtherGoesOn) {
  for (const std::size_t killed : {0, 1}) {
    jobs_.clear();
    owner_.reset();
    large_ones_at_work();
    ASSERT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
    const char* name = killed == 0 ? "one" : "two";
    ASSERT_TRUE(caught_moving(name));
    ::kill(jobs_[killed]->pid(), SIGKILL);
    const std::size_t left = 1 - killed;
    EXPECT_TRUE(advances(left));
    expect_right_in_the_end(left);
    EXPECT_TRUE(eventually([&] {
      return whole_gpu().value("memory_used_bytes", 0ull) < 100 * kMiB;
    })) << "the other's memory is nobody's";
  }
}

TEST_F(HandedOver, WhenTheMonitorIsKilledMeanwhileNothingIsLost) {
  large_ones_at_work();
  ASSERT_TRUE(eventually([&] { return taken("one") > 0 && taken("two") > 0; }));
  ASSERT_TRUE(caught_moving("one"));
  ::kill(owner_->pid(), SIGKILL);
  owner_.reset();
  owner_.emplace(monitor(with_short_turns({"--capacity", "120MiB"})));
  expect_all_right();
}

class FailingHandOver : public HandedOver, public ::testing::WithParamInterface<const char*> {};

TEST_P(FailingHandOver, LosesNothing) {
  large_ones_at_work({{"FAKECUDA_FAIL", GetParam()}, {"FAKECUDA_FAILED", in_folder("failed")}});
  EXPECT_TRUE(eventually([&] { return std::filesystem::exists(in_folder("failed")); }));
  EXPECT_TRUE(moved("one", 2));
  EXPECT_TRUE(moved("two", 2));
  expect_all_right();
}

INSTANTIATE_TEST_SUITE_P(Driver, FailingHandOver,
                         ::testing::Values("cuMemExportToShareableHandle:4=999",
                                           "cuMemImportFromShareableHandle:4=999"),
                         [](const auto& info) {
                           const std::string text = info.param;
                           return text.substr(0, text.find(':'));
                         });

}  // namespace
}  // namespace switchyard::system_tests
