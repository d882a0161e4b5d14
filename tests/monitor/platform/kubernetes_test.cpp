// Pods by the names of links that a kubelet keeps.
#include "monitor/platform/kubernetes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

const std::string kId(64, 'a');
const std::string kOther = std::string(63, '0') + "b";

TEST(Kubernetes, TheNameOfALinkTellsPodNamespaceAndContainer) {
  const auto found = pod_names_in("train-5d4f.x_team-a_main-" + kId + ".log");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, kId);
  EXPECT_EQ(found->second, (PodNames{"train-5d4f.x", "team-a", "main"}));
  EXPECT_EQ(pod_names_in("p_n_a-b-" + kId + ".log")->second.container, "a-b");
}

TEST(Kubernetes, OtherNamesTellNothing) {
  for (const std::string& link :
       {std::string(), std::string(".log"), "p_n_c-" + kId, "p_n_c-" + kId + ".gz",
        "p_n_c-" + kId.substr(1) + ".log", "p_n_c-x" + kId.substr(1) + ".log",
        "p_n_c" + kId + ".log", kId + ".log", "-" + kId + ".log", "p_n-" + kId + ".log",
        "_n_c-" + kId + ".log", "p__c-" + kId + ".log", "p_n_-" + kId + ".log",
        "p_n_c_d-" + kId + ".log", "p_n_c\"-" + kId + ".log", "P_n_c-" + kId + ".log"}) {
    EXPECT_FALSE(pod_names_in(link)) << link;
  }
}

class PodLinks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "pods-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }
  // As the kubelet: to a file that is not there for us.
  void link(const std::string& pod, const std::string& id) {
    fs::create_symlink("/nowhere", folder / (pod + "_n_c-" + id + ".log"));
  }
  // The names, once the folder has been read; the clock stands still.
  static PodNames soon(Pods& pods, const std::string& id, Time now) {
    for (int i = 0; i < 6000; ++i) {
      if (PodNames found = pods.of(id, now); !found.pod.empty()) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
  }

  fs::path folder;
};

TEST_F(PodLinks, AContainerIsKnownOnceTheFolderHasBeenRead) {
  link("a", kId);
  Pods pods(folder.string());
  EXPECT_EQ(pods.of("", seconds(1)), PodNames{});
  EXPECT_EQ(pods.of(kId, seconds(1)), PodNames{}) << "nobody waits for the folder";
  EXPECT_EQ(soon(pods, kId, seconds(1)), (PodNames{"a", "n", "c"}));
}

TEST_F(PodLinks, TheFolderIsReadAgainForANewContainerAndNotTooOften) {
  link("a", kId);
  Pods pods(folder.string());
  ASSERT_EQ(soon(pods, kId, seconds(1)).pod, "a");
  link("b", kOther);
  const Time early = seconds(1) + Pods::kReadAgain - std::chrono::nanoseconds(1);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(pods.of(kOther, early), PodNames{});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(soon(pods, kOther, seconds(1) + Pods::kReadAgain).pod, "b");
  EXPECT_EQ(pods.of(kId, seconds(99)).pod, "a");
}

TEST_F(PodLinks, WithoutTheFolderNothingIsKnown) {
  Pods pods((folder / "none").string());
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pods.of(kId, seconds(20 * i)), PodNames{});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace
}  // namespace switchyard::monitor
