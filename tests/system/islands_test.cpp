// Islands end to end: jobs under the simulated MPS, their server, and jobs outside.
#include <signal.h>

#include <filesystem>

#include "tests/system/island_scene.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

class Islands : public IslandScene {};

TEST_F(Islands, MembersShareTheServerWhoseSliceIsTheirs) {
  const Child monitor = this->monitor();
  Child a = member("a"), b = member("b");
  ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
  const json job = job_named("a"), server = job_named("island-default");
  EXPECT_EQ(job["island"], "default");
  EXPECT_EQ(job["island_server"], false);
  EXPECT_EQ(server["island_server"], true);
  Child plain = loop({"--name", "plain"});
  // Two members count as two jobs.
  EXPECT_TRUE(eventually([this] {
    const int island = slice_of("island-default"), alone = slice_of("plain");
    return alone > 0 && std::abs(island - 2 * alone) <= 1;
  })) << slice_of("island-default")
      << " " << slice_of("plain");
  EXPECT_EQ(gpu_of("a")["compute_slice_us"], 0);
  EXPECT_TRUE(goes_on(a) && goes_on(b) && goes_on(plain));
}

TEST_F(Islands, AServiceOutsideHasTheIslandsShortSlice) {
  const Child monitor = this->monitor();
  Child a = member("a", {"--priority", "low"}), b = member("b", {"--priority", "low"});
  // Two jobs that yield would have no short slice while it rests. An island is one.
  Child service = job({"--name", "service", "--priority", "high"},
                      {built("tests/jobs/job_alloc"), "alloc:1", "wait"});
  ASSERT_EQ(line_of(service), "alloc 0");
  EXPECT_TRUE(eventually([this] {
    const int island = slice_of("island-default");
    return island > 0 && island < 2000 && slice_of("service") >= 10'000;
  })) << slice_of("island-default");
  EXPECT_TRUE(goes_on(a) && goes_on(b));
}

TEST_F(Islands, WhatStandsAgainstOneIsSaid) {
  const Child monitor = this->monitor();
  EXPECT_NE(refusal({"--co-run"}, {{"CUDA_MPS_PIPE_DIRECTORY", "/tmp/other"}})
                .find("CUDA_MPS_PIPE_DIRECTORY is set to /tmp/other"),
            std::string::npos);
  EXPECT_NE(refusal({"--co-run"}, {{"FAKECUDA_COMPUTE_MODE", "3"}}).find("compute mode of GPU 0"),
            std::string::npos);
  EXPECT_NE(refusal({"--co-run"}, {{"FAKECUDA_MIG", "1"}}).find("divided by MIG"),
            std::string::npos);
  EXPECT_NE(refusal({"--co-run"}, {{"PATH", "/bin:/usr/bin"}}).find("nvidia-cuda-mps-control"),
            std::string::npos);
  EXPECT_NE(refusal({"--co-run", "--idle-release", "1m,contexts"}).find("contexts"),
            std::string::npos);
}

TEST_F(Islands, WithoutADaemonAJobOfBestEffortStartsOutside) {
  const Child monitor = this->monitor();
  const Child::End end =
      cli({"run", "--best-effort", "--co-run", "--", "env"}, with({{"PATH", "/bin:/usr/bin"}}));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_NE(end.err.find("the job starts outside of its island"), std::string::npos) << end.err;
  EXPECT_NE(end.out.find("SWITCHYARD_JOB="), std::string::npos) << "it is managed";
  EXPECT_EQ(end.out.find("CUDA_MPS_PIPE_DIRECTORY"), std::string::npos);
}

TEST_F(Islands, AJobOfAnotherClassStandsOutside) {
  const Child monitor = this->monitor();
  Child a = member("a", {"--priority", "low"});
  EXPECT_NE(refusal({"--co-run", "--priority", "high"}).find("island 'default' has job 'a'"),
            std::string::npos);
  Child b = member("b", {"--priority", "low"});
  ASSERT_EQ(cli({"set", "b", "--priority", "high"}).status, 0);
  EXPECT_EQ(job_named("a")["priority"], "high") << "set for one, it is that of all";
  // Another island may have another class.
  Child other = loop({"--name", "c", "--co-run=other", "--priority", "low"}, {}, with());
  EXPECT_TRUE(eventually([this] { return job_named("island-other").is_object(); }));
}

TEST_F(Islands, TheDaemonEndsSomeTimeAfterTheLastJob) {
  const Child monitor = this->monitor();
  int daemon = 0, server = 0;
  {
    Child a = member("a");
    ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
    daemon = daemon_pid();
    server = server_pid();
    ASSERT_GT(daemon, 0);
  }
  const auto ended = [](int pid) { return ::kill(pid, 0) != 0; };
  EXPECT_TRUE(eventually([&] {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;
    return ended(daemon) && ended(server);
  }));
  EXPECT_TRUE(eventually([this] { return job_named("island-default").is_null(); }));
  // The next job has a new one.
  Child b = member("b");
  EXPECT_TRUE(eventually([this] { return server_pid() != 0; }));
  EXPECT_NE(daemon_pid(), daemon);
  EXPECT_TRUE(goes_on(b));
}

// How many processes have this file open, also where it has been removed.
int holders(const std::string& path) {
  int count = 0;
  std::error_code gone;
  for (const auto& process : fs::directory_iterator("/proc")) {
    for (const auto& fd : fs::directory_iterator(process.path() / "fd", gone)) {
      count += fs::read_symlink(fd.path(), gone).string().rfind(path, 0) == 0 ? 1 : 0;
    }
  }
  return count;
}

TEST_F(Islands, NobodyWaitsForAnIslandWhoseFolderHasGone) {
  const Child monitor = this->monitor();
  int daemon = 0, server = 0;
  std::string keeper;
  {
    Child a = member("a");
    ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
    daemon = daemon_pid();
    server = server_pid();
    keeper = folder() + "/keeper";
    ASSERT_GT(daemon, 0);
    EXPECT_EQ(holders(keeper), 1);
    fs::remove_all(folder());
  }
  EXPECT_TRUE(eventually([&] { return holders(keeper) == 0; }));
  for (const int pid : {server, daemon}) ::kill(pid, SIGKILL);
}

TEST_F(Islands, TheEndOfTheServerIsNotFeltOutside) {
  const Child monitor = this->monitor();
  Child a = member("a");
  Child outside = loop({"--name", "outside"});
  ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
  const int server = server_pid();
  ::kill(server, SIGKILL);
  EXPECT_EQ(line_of(a), "error a launch");
  EXPECT_TRUE(goes_on(outside));
  Child b = member("b");
  EXPECT_TRUE(eventually([&] { return server_pid() != 0 && server_pid() != server; }));
  EXPECT_TRUE(goes_on(b) && goes_on(outside));
}

TEST_F(Islands, TheEndOfTheDaemonStopsNobody) {
  const Child monitor = this->monitor();
  Child a = member("a");
  ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
  kill_and_wait(daemon_pid());
  EXPECT_TRUE(goes_on(a));
  Child b = member("b");
  EXPECT_TRUE(goes_on(a) && goes_on(b));
}

TEST_F(Islands, TheServerJoinsTheNextMonitor) {
  Child first = this->monitor();
  Child a = member("a"), b = member("b");
  ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
  const int server = server_pid();
  kill_and_wait(first.pid());
  const Child next = this->monitor();
  EXPECT_TRUE(eventually([&] { return server_pid() == server && job_named("a").is_object(); }));
  Child plain = loop({"--name", "plain"});
  EXPECT_TRUE(eventually([this] {
    const int alone = slice_of("plain");
    return alone > 0 && std::abs(slice_of("island-default") - 2 * alone) <= 1;
  }));
}

TEST_F(Islands, ASeparateJobInsideAMemberIsInNoIsland) {
  const Child monitor = this->monitor();
  Child outer = job(
      {"--name", "outer", "--co-run"},
      {built("switchyard"), "run", "--separate", "--name", "inner", "--", loop_program()}, with());
  ASSERT_EQ(line_of(outer), "ready");
  EXPECT_EQ(job_named("inner")["island"], nullptr);
  EXPECT_TRUE(job_named("island-default").is_null());
  EXPECT_TRUE(goes_on(outer));
}

TEST_F(Islands, AMemberWhoseDaemonIsGoneRunsBesideTheIsland) {
  const Child monitor = this->monitor();
  Child a = member("a");
  ASSERT_TRUE(eventually([this] { return server_pid() != 0; }));
  // As if the daemon had ended before the job's first CUDA call.
  Child b = job({"--name", "b", "--co-run"},
                {"env", "CUDA_MPS_PIPE_DIRECTORY=/nowhere", loop_program()}, with());
  ASSERT_EQ(line_of(b), "ready");
  EXPECT_TRUE(eventually([this] {
    const int island = slice_of("island-default"), own = slice_of("b");
    return own > 0 && std::abs(island - own) <= 1;
  }));
  EXPECT_TRUE(goes_on(a) && goes_on(b));
}

TEST_F(Islands, APausedMemberHoldsNobodyElse) {
  const Child monitor = this->monitor();
  Child a = member("a"), b = member("b");
  ASSERT_EQ(cli({"pause", "a"}).status, 0);
  EXPECT_TRUE(goes_on(b));  // meanwhile it counts what has ended
  const long before = kernels(a);
  EXPECT_TRUE(goes_on(b));
  EXPECT_EQ(kernels(a), before);
  ASSERT_EQ(cli({"resume", "a"}).status, 0);
  EXPECT_TRUE(goes_on(a));
}

TEST_F(Islands, ALimitHoldsItsMemberAlone) {
  const Child monitor = this->monitor();
  Child a = member("a", {"--limit", "10%"}), b = member("b");
  EXPECT_TRUE(eventually([this] {
    const json gpu = gpu_of("a");
    return gpu.is_object() && gpu["gate_armed"] == true;
  }));
  EXPECT_TRUE(goes_on(a) && goes_on(b));
  EXPECT_EQ(gpu_of("b")["gate"], gpu_of("island-default")["gate"]);
}

TEST_F(Islands, QuotasOfMembersAreExactAndTheServersMemoryIsItsOwn) {
  const Child monitor = this->monitor();
  Child a = job({"--name", "a", "--co-run", "--memory", "100MiB"},
                {built("tests/jobs/job_alloc"), "alloc:64", "alloc:64", "wait"}, with());
  EXPECT_EQ(line_of(a), "alloc 0");
  EXPECT_EQ(line_of(a), "alloc 2");
  ASSERT_TRUE(eventually([this] {
    const json gpu = gpu_of("island-default");
    return gpu.is_object() && gpu["memory_used_bytes"] == 8 * kMiB;
  }));
  EXPECT_EQ(gpu_of("a")["memory_used_bytes"], 72 * kMiB);
}

TEST_F(Islands, MemoryOfAMemberLeavesAndItsContextsStay) {
  const Child monitor = this->monitor();
  Child a = member("a", {"--swappable"}), b = member("b");
  const auto refused = cli({"pause", "a", "--release", "--contexts"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_TRUE(says(refused, "it runs in an island")) << refused.err;
  ASSERT_EQ(cli({"pause", "a", "--release"}).status, 0);
  EXPECT_TRUE(goes_on(b));
  ASSERT_EQ(cli({"resume", "a"}).status, 0);
  EXPECT_TRUE(goes_on(a));
}

}  // namespace
}  // namespace switchyard::system_tests
