// Libraries and monitors of different versions at work together: this one and two made-up next ones
// (tests/successors), in both directions.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

// Which version has what. "this" is this one; the monitors come one after the other.
struct Meeting {
  const char* name;
  const char* library;
  std::vector<const char*> monitors;
};

// Where scripts/compat.sh has built another revision; empty: it has not.
std::string other_build() {
  const char* path = std::getenv("SWITCHYARD_TEST_OTHER");
  return path != nullptr ? path : "";
}

std::string of_version(const std::string& version, const std::string& file) {
  if (version == "other") return other_build() + "/" + file;
  return built(version == "this" ? file : "successors/" + version + "/" + file);
}

class Successors : public Scene, public ::testing::WithParamInterface<Meeting> {
 protected:
  static constexpr int kPairs = 10;  // of a job that computes and one whose memory moves

  void TearDown() override {
    loops_.clear();
    lenders_.clear();
    Scene::TearDown();
  }

  Child monitor_of(const std::string& version) {
    return monitor({}, {}, of_version(version, "switchyardd"));
  }
  Changes library() const {
    return {{"SWITCHYARD_LIBRARY", of_version(GetParam().library, "libswitchyard.so")},
            {"SWITCHYARD_MADE_UP", "later"},
            {"FAKECUDA_PATTERN", "1"}};
  }
  static std::string loop_name(int i) { return "loop-" + std::to_string(i); }
  static std::string lender_name(int i) { return "lender-" + std::to_string(i); }

  void start_jobs() {
    for (int i = 0; i < kPairs; ++i) {
      loops_.push_back(
          loop({"--name", loop_name(i), "--priority", i == 0 ? "high" : "normal"}, {}, library()));
      lenders_.push_back(job({"--name", lender_name(i), "--swappable", "--memory", "60MiB"},
                             {built("tests/jobs/job_swap"), std::to_string(8 * kMiB)}, library()));
      ASSERT_EQ(line_of(lenders_.back()), "ready");
    }
  }
  // Every process is a client, and its job is what it was made as.
  void expect_all_managed() {
    ASSERT_TRUE(eventually([this] {
      const json all = listing("ps");
      return all.is_object() && all["jobs"].size() == 2 * kPairs && all["outside"].empty();
    })) << listing("ps");
    EXPECT_EQ(job_named(loop_name(0))["priority"], "high");
    EXPECT_EQ(gpu_of(lender_name(1)).value("memory_quota_bytes", 0ull), 60 * kMiB);
    EXPECT_EQ(cli({"set", lender_name(2), "--share", "3"}).status, 0);
  }
  void expect_quota(int i) {
    const std::string more = std::to_string(60 * kMiB);
    EXPECT_EQ(ask(lenders_[i], "alloc " + more).rfind("failed alloc", 0), 0u);
  }
  bool moves(int i) {
    const long before = kernels(loops_[i]);
    return eventually([&] { return kernels(loops_[i]) > before; });
  }
  bool stands_still(int i) {
    long before = kernels(loops_[i]);
    return eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return std::exchange(before, kernels(loops_[i])) == before;
    });
  }
  bool residency(int i, const std::string& wanted) {
    return eventually([&] {
      const json found = gpu_of(lender_name(i));
      return !found.is_null() && found.value("residency", "") == wanted;
    });
  }
  bool state(const std::string& name, const std::string& wanted) {
    return eventually([&] {
      const json found = job_named(name);
      return found.is_object() && found["state"] == wanted;
    });
  }
  void out_and_in(int i) {
    EXPECT_EQ(cli({"swap-out", lender_name(i)}).status, 0);
    EXPECT_TRUE(residency(i, "swapped"));
    EXPECT_EQ(cli({"swap-in", lender_name(i)}).status, 0);
    EXPECT_TRUE(residency(i, "resident"));
    EXPECT_EQ(ask(lenders_[i], "check"), "right");
  }
  // Leaves a paused job, one whose memory is away, and one that is both.
  void pause_some() {
    for (const Words& words : {Words{"pause", loop_name(1)}, Words{"swap-out", lender_name(3)},
                               Words{"pause", "--release", lender_name(4)}}) {
      const auto said = cli(words);
      EXPECT_EQ(said.status, 0) << words[0] << ": " << said.err;
    }
    EXPECT_TRUE(stands_still(1));
  }
  // The next monitor knows of the pauses, and says "go on".
  void expect_pauses_and_end_them() {
    EXPECT_TRUE(state(loop_name(1), "paused"));
    EXPECT_TRUE(state(lender_name(4), "paused"));
    EXPECT_TRUE(stands_still(1));
    EXPECT_EQ(cli({"resume", loop_name(1)}).status, 0);
    EXPECT_EQ(cli({"resume", lender_name(4)}).status, 0);
    EXPECT_TRUE(moves(1));
    for (const int i : {3, 4}) {
      EXPECT_TRUE(residency(i, "resident"));
      EXPECT_EQ(ask(lenders_[static_cast<std::size_t>(i)], "check"), "right");
    }
  }

  std::vector<Child> loops_, lenders_;
};

TEST_P(Successors, KeepEveryPromise) {
  auto daemon = std::make_unique<Child>(monitor_of(GetParam().monitors.front()));
  start_jobs();
  for (std::size_t next = 1; !HasFailure(); ++next) {
    expect_all_managed();
    expect_quota(5);
    out_and_in(6);
    EXPECT_TRUE(moves(0));
    if (next == GetParam().monitors.size()) break;
    pause_some();
    kill_and_wait(daemon->pid());
    daemon = std::make_unique<Child>(monitor_of(GetParam().monitors[next]));
    expect_pauses_and_end_them();
    EXPECT_EQ(job_named(lender_name(2))["share_weight"], 3.0) << "what was set is kept";
  }
  // It leaves little to the others.
  EXPECT_EQ(cli({"set", loop_name(0), "--priority", "normal"}).status, 0);
  for (int i = 0; i < kPairs; ++i) {
    EXPECT_TRUE(moves(i));
    EXPECT_EQ(ask(lenders_[static_cast<std::size_t>(i)], "check"), "right");
  }
}

// One from before 0.2.0: refused in one line, whichever of the two is older.
class OldVersions : public Scene, public ::testing::WithParamInterface<const char*> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OldVersions);

TEST_P(OldVersions, AreRefusedInOneLine) {
  const bool old_library = std::string(GetParam()) == "Library";
  auto daemon = monitor({}, {}, of_version(old_library ? "this" : "other", "switchyardd"));
  const std::string library = of_version(old_library ? "other" : "this", "libswitchyard.so");
  const auto ended = run({loop_program(), "--count", "1"}, {{"LD_PRELOAD", library}});
  EXPECT_EQ(ended.status, 0) << "it runs unmanaged";
  EXPECT_TRUE(says(ended, "refused this process")) << ended.err;
  EXPECT_TRUE(says(ended, "speaks layout")) << ended.err;
  EXPECT_EQ(says(ended, "old library"), old_library) << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

std::vector<Meeting> with_other() {
  if (other_build().empty()) return {};
  return {{"ThisLibrary", "this", {"other", "this", "other"}},
          {"TheOtherLibrary", "other", {"this", "other", "this"}}};
}
std::vector<const char*> old_ones() {
  if (other_build().empty()) return {};
  return {"Library", "Monitor"};
}
INSTANTIATE_TEST_SUITE_P(OtherRevision, Successors, ::testing::ValuesIn(with_other()),
                         [](const auto& meeting) { return meeting.param.name; });
INSTANTIATE_TEST_SUITE_P(OldRevision, OldVersions, ::testing::ValuesIn(old_ones()),
                         [](const auto& which) { return which.param; });

INSTANTIATE_TEST_SUITE_P(
    All, Successors,
    ::testing::Values(Meeting{"ThisLibrary", "this", {"this", "more", "fewer", "this"}},
                      Meeting{"ALibraryWithMore", "more", {"this", "more", "fewer"}},
                      Meeting{"ALibraryWithFewer", "fewer", {"more", "this", "fewer"}}),
    [](const auto& meeting) { return meeting.param.name; });

}  // namespace
}  // namespace switchyard::system_tests
