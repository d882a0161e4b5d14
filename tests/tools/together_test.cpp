// What `why` says of jobs that share a GPU, of islands that failed, and of jobs that have ended.
#include "tools/why/together.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tools/why/ended.h"
#include "tools/why/sentences.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json member(const std::string& name, int pid) {
  json out = {{"job", "j" + name}, {"name", name},           {"user", "alice"},
              {"island", "x"},     {"island_server", false}, {"priority", "low"}};
  out["gpus"] = json::array();
  out["processes"] = json::array();
  out["processes"].push_back({{"pid", pid}, {"name", "python3"}});
  return out;
}

std::string together(const json& jobs, const CoreLooks& cores) {
  return together_text(jobs, json::array(), jobs[0], cores);
}

TEST(Together, MembersThatLackCoresAreNamed) {
  json jobs = json::array();
  for (const auto& [name, pid] : {std::pair{"a", 1}, {"b", 2}, {"c", 3}}) {
    jobs.push_back(member(name, pid));
  }
  jobs[2]["island"] = "y";
  CoreLooks cores{{{1, {{1, 0}}}, {2, {{2, 100}, {20, 0}}}, {3, {{3, 0}}}},
                  {{1, {{1, 199'000'000}}},
                   {2, {{2, 100}, {20, 450'000'000}, {21, 900'000'000}}},
                   {3, {{3, 900'000'000}}}},
                  1.0};
  EXPECT_EQ(together(jobs, cores),
            " For want of CPU cores these members of its island fall behind: b (45%).");
  cores.seconds = 0;
  EXPECT_EQ(together(jobs, cores), "") << "nobody looked";
}

TEST(Together, AnIslandThatDoesLessThanSlicesIsTold) {
  json jobs = json::array();
  jobs.push_back(member("a", 1));
  jobs[0]["island_gain_ratio"] = 1.2;
  jobs[0]["island_slices_ratio"] = 1.6;
  EXPECT_EQ(together(jobs, {}),
            " Its island does 1.20 times what one member does alone, and slices would give 1.60: "
            "leave --co-run out.");
  jobs[0]["island_gain_ratio"] = 1.56;
  EXPECT_EQ(together(jobs, {}), "");
  jobs[0]["island_gain_ratio"] = nullptr;
  EXPECT_EQ(together(jobs, {}), "");
}

TEST(Cores, ThreadsOfMembersAreReadWherePidsAreOurs) {
  char root[] = "/tmp/switchyard-cores-XXXXXX";
  ASSERT_NE(::mkdtemp(root), nullptr);
  const auto process = [&](const std::string& pid, const std::string& name) {
    const std::string folder = std::string(root) + "/" + pid;
    fs::create_directories(folder + "/task/" + pid);
    std::ofstream(folder + "/comm") << name << "\n";
    std::ofstream(folder + "/task/" + pid + "/schedstat") << "500 77 3\n";
  };
  process("1", "python3");
  process("2", "another");
  json jobs = json::array();
  jobs.push_back(member("a", 1));
  jobs.push_back(member("b", 2));
  jobs.push_back(member("plain", 1));
  jobs[2]["island"] = nullptr;
  const CoreWaits waits = core_waits_of_members(jobs, root);
  EXPECT_EQ(waits, (CoreWaits{{1, {{1, 77}}}}));
  fs::remove_all(root);
}

json event(const std::string& kind, const std::string& text) {
  return {{"kind", kind}, {"text", text}};
}

TEST(Ended, TheEndAndTheFailureBeforeItAreTold) {
  json events = json::array();
  events.push_back(event("job begins", "begins"));
  events.push_back(event("island fault", "its island has failed"));
  EXPECT_EQ(ended_text("a", events), "") << "it lives";
  events.push_back(event("job ends", "ends: exit code 1"));
  EXPECT_EQ(ended_text("a", events),
            "job 'a' has ended: exit code 1; before that its island has failed");
  // Another job of that name.
  events.push_back(event("job begins", "begins"));
  events.push_back(event("job ends", "ends"));
  EXPECT_EQ(ended_text("a", events), "job 'a' has ended");
}

TEST(Ended, AFailedIslandIsToldOfAJobThatLives) {
  json jobs = json::array();
  jobs.push_back(member("a", 1));
  jobs[0].update({{"state", "idle"}, {"reason", nullptr}, {"state_since_seconds", 3.0}});
  jobs[0]["island_failure"] = {{"ago_seconds", 4.0},
                               {"error", 700},
                               {"text", "illegal address (error 700)"},
                               {"suspects", json::array({"a", "b"})}};
  EXPECT_EQ(
      why_text(jobs, jobs[0], nullptr),
      "a has brought no work to the GPU for 3 s. Nothing of Switchyard's holds it. Its island "
      "failed 4 s ago: illegal address (error 700). At work then were a, b: the driver does "
      "not tell which of them it was. Its CUDA calls fail until it is started anew.");
  jobs[0]["island_failure"]["error"] = nullptr;
  jobs[0]["island_failure"]["text"] = "its MPS server ended";
  EXPECT_NE(why_text(jobs, jobs[0], nullptr).find("4 s ago: its MPS server ended. Its CUDA calls"),
            std::string::npos);
}

}  // namespace
}  // namespace switchyard::tools
