// The monitor's life: started when needed, alone, gone with its last job, survived when killed.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"
#include "tests/fakecuda/stop.h"

namespace switchyard::system_tests {
namespace {

using MonitorLife = Scene;

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(MonitorLife, RunStartsItAndItEndsAfterItsLastJob) {
  EXPECT_EQ(monitor_pid(), 0);
  {
    auto child = loop({"--name", "only"});
    const int pid = monitor_pid();
    EXPECT_NE(pid, 0);
    EXPECT_EQ(child.finish(kLimit).status, 0);
  }
  EXPECT_TRUE(eventually([this] { return monitor_pid() == 0; })) << "it stays without a job";
  EXPECT_NE(::access(socket().c_str(), F_OK), 0) << "it left its socket behind";
}

TEST_F(MonitorLife, ThePipeOfTheCallerIsNotHeldOpen) {
  // finish() reads until every writer of the pipe has gone: the monitor must not be one.
  const auto end = run({"sh", "-c", "echo $(" + built("switchyard") + " run -- echo hello)"});
  EXPECT_EQ(end.out, "hello\n");
  EXPECT_NE(monitor_pid(), 0);
}

TEST_F(MonitorLife, StartedWithClosedStreamsItWritesIntoNobodysConnection) {
  auto owner = start(
      {"/bin/sh", "-c",
       "exec " + built("switchyardd") + " --log debug --socket " + socket() + " <&- >&- 2>&-"});
  ASSERT_TRUE(eventually([this] { return monitor_pid() != 0; }));
  EXPECT_EQ(cli({"run", "--", built("tests/jobs/job_loop"), "--count", "2"}).out, "kernels 2\n");
  for (const char* stream : {"0", "1", "2"}) {
    const std::string link = "/proc/" + std::to_string(owner.pid()) + "/fd/" + stream;
    EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/null") << stream;
  }
}

TEST_F(MonitorLife, AfterItsEndTheNextRunStartsAnother) {
  EXPECT_EQ(cli({"run", "--", "true"}).status, 0);
  const int first = monitor_pid();
  kill_and_wait(first);
  EXPECT_EQ(cli({"run", "--", "true"}).err, "");
  EXPECT_NE(monitor_pid(), 0);
}

TEST_F(MonitorLife, FiftyStartsAtOnceShareOneMonitor) {
  std::vector<Child> children;
  children.reserve(50);
  for (int i = 0; i < 50; ++i) {
    children.push_back(job({"--require"}, {built("tests/jobs/job_loop"), "--count", "2"}));
  }
  for (Child& child : children) {
    const auto end = child.finish(kLimit);
    EXPECT_EQ(end.status, 0) << end.err << end.out;
    EXPECT_EQ(end.out, "kernels 2\n");
  }
}

TEST_F(MonitorLife, KilledWhileJobsRunTheyGoOnWithTheDriversSlicesAndTheNextRebuildsTheRoster) {
  const auto logged = [this](const std::string& name) {
    return Changes{{"SWITCHYARD_LOG", "debug:" + in_folder(name)}};
  };
  // Short, or the minimum beside a high job that is known by then to work without end.
  const auto yields = [this] {
    const auto us = gpu_of("low")["slice_in_force_us"];
    return us == 20 || us == 1020;
  };
  auto high = loop({"--name", "high", "--priority", "high"}, {}, logged("high.log"));
  auto low =
      loop({"--name", "low", "--priority", "low", "--memory", "1GiB"}, {}, logged("low.log"));
  ASSERT_TRUE(eventually(yields));
  const int first = monitor_pid();
  kill_and_wait(first);

  // Claim 1: both go on.
  const long high_before = kernels(high);
  const long low_before = kernels(low);
  EXPECT_TRUE(eventually([&] { return kernels(high) > high_before && kernels(low) > low_before; }));
  // Claim 2: each takes the driver's own slice again.
  EXPECT_TRUE(eventually([this] {
    return contents(in_folder("low.log")).find("slice: 2048 us on compute group") !=
           std::string::npos;
  })) << contents(in_folder("low.log"));
  // Claim 3: the next monitor learns both jobs from them, knobs included.
  auto second = monitor();
  EXPECT_NE(monitor_pid(), first);
  EXPECT_TRUE(
      eventually([this] { return job_named("high").is_object() && job_named("low").is_object(); }));
  EXPECT_EQ(job_named("low")["priority"], "low");
  EXPECT_EQ(job_named("low")["memory_quota_bytes"], 1 << 30);
  EXPECT_EQ(job_named("high")["priority"], "high");
  // Claim 4: it governs them as the first did.
  EXPECT_TRUE(eventually(yields));
  EXPECT_EQ(high.finish(kLimit).status, 0);
  EXPECT_EQ(low.finish(kLimit).status, 0);
}

TEST_F(MonitorLife, StoppedItsJobsTakeTheDriversSlicesAndFindItAgainWhenItGoesOn) {
  auto high = loop({"--name", "high", "--priority", "high"});
  auto low = loop({"--name", "low", "--priority", "low"}, {},
                  {{"SWITCHYARD_LOG", "debug:" + in_folder("low.log")}});
  const auto yields = [this] {
    const auto us = gpu_of("low")["slice_in_force_us"];
    return us == 20 || us == 1020;
  };
  ASSERT_TRUE(eventually(yields));
  const int stopped = monitor_pid();
  ASSERT_TRUE(fakecuda::stop_process(in_folder("gpu"), stopped));
  EXPECT_TRUE(eventually([this] {
    return contents(in_folder("low.log")).find("slice: 2048 us on compute group") !=
           std::string::npos;
  })) << contents(in_folder("low.log"));
  const long before = kernels(low);
  EXPECT_TRUE(eventually([&] { return kernels(low) > before; }));
  ::kill(stopped, SIGCONT);
  EXPECT_TRUE(eventually(yields));
  EXPECT_EQ(monitor_pid(), stopped);
  EXPECT_EQ(high.finish(kLimit).status, 0);
  EXPECT_EQ(low.finish(kLimit).status, 0);
}

TEST_F(MonitorLife, KilledItsNextHasThePolicyThatAPersonChose) {
  {
    auto first = monitor();
    EXPECT_EQ(cli({"policy", "fair"}).status, 0);
    EXPECT_NE(contents(in_folder("m.log")).find("-> policy fair"), std::string::npos);
    first.finish(std::chrono::milliseconds(0));
  }
  auto second = monitor();
  EXPECT_EQ(listing("policy")["policy"], "fair");
}

// The log of a monitor that `run` started: who did what, in a bounded file.
TEST_F(MonitorLife, AUsersOwnLogsWhoDidWhatIntoAFileOfItsOwn) {
  auto child = loop({"--name", "x"});
  EXPECT_EQ(cli({"pause", "x"}).status, 0);
  EXPECT_TRUE(eventually([this] {
    return contents(in_folder("m.log")).find("): pause 'x'") != std::string::npos;
  })) << contents(in_folder("m.log"));
  const std::string words = contents("/proc/" + std::to_string(monitor_pid()) + "/cmdline");
  EXPECT_NE(words.find("--log-size"), std::string::npos);
}

TEST_F(MonitorLife, AJobThatIsKilledLeavesNothingBehind) {
  auto daemon = monitor();
  {
    auto child = loop({"--name", "victim", "--memory", "2GiB"});
    EXPECT_EQ(listing("status")["gpus"][0]["memory_reserved_bytes"], 2L << 30);
    ::kill(child.pid(), SIGKILL);
    EXPECT_EQ(child.finish(kLimit).status, 128 + SIGKILL);
  }
  EXPECT_TRUE(eventually([this] {
    const json gpu = listing("status")["gpus"][0];
    return gpu["memory_reserved_bytes"] == 0 && gpu["clients"] == 0 && gpu["jobs"] == 0;
  }));
  EXPECT_TRUE(job_named("victim").is_null());
}

}  // namespace
}  // namespace switchyard::system_tests
