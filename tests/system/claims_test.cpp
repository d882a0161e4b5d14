// One monitor governs a GPU; what happens where a second one is started; how a monitor ends.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "harness.h"
#include "switchyard/abi.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

// `unshare FLAGS`, also for who is not root.
Words unshare(const Words& flags) {
  Words command{"unshare"};
  if (::geteuid() != 0) command.emplace_back("-r");
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

class TwoMonitors : public Scene {
 protected:
  bool permitted(const Words& flags) { return run(unshare(flags) + Words{"true"}).status == 0; }
  Words second() const {
    return {built("switchyardd"),    "--persist", "--minimum", "0%", "--socket",
            in_folder("second.sock")};
  }
};

class TwoMonitorsApart : public TwoMonitors, public ::testing::WithParamInterface<Words> {};

TEST_P(TwoMonitorsApart, TheSecondFindsTheFirst) {
  if (!permitted(GetParam())) GTEST_SKIP() << "unshare is not permitted here";
  auto first = monitor();
  const auto end = run(unshare(GetParam()) + second());
  EXPECT_EQ(end.status, 6);
  EXPECT_TRUE(says(end, "is managed by")) << end.err;
}

INSTANTIATE_TEST_SUITE_P(Namespaces, TwoMonitorsApart,
                         ::testing::Values(Words{"-n"}, Words{"-m"},
                                           Words{"-p", "-f", "--mount-proc"},
                                           Words{"-n", "-m", "-p", "-f", "--mount-proc"}),
                         [](const auto& flags) {
                           std::string name;
                           for (const std::string& flag : flags.param) {
                             if (flag.size() == 2 && flag != "-f") name += flag[1];
                           }
                           return name;
                         });

// As in a container whose runtime made a device file of its own: no claim holds there.
TEST_F(TwoMonitors, BesideEachOtherNeverHaveTwoShortSlicesInForce) {
  if (!permitted({"-n"})) GTEST_SKIP() << "unshare is not permitted here";
  const Changes there{{"SWITCHYARD_SOCKET", in_folder("second.sock")}};
  auto first = monitor({"--minimum", "0%"});
  auto other = start(unshare({"-n"}) + second(), {{"FAKECUDA_DEVICE_FILE", in_folder("other")}});
  ASSERT_TRUE(eventually([&] { return cli({"policy"}, there).status == 0; }));
  const auto slice = [&](const std::string& name, const Changes& where) {
    const auto listed = json::parse(cli({"ps", "--json"}, where).out, nullptr, false);
    if (!listed.is_object()) return json();
    for (const auto& job : listed["jobs"]) {
      if (job["name"] == name) return job["gpus"][0]["slice_in_force_us"];
    }
    return json();
  };
  const auto is_short = [](const json& us) { return us.is_number() && us > 0 && us < 1000; };
  auto high = loop({"--name", "high", "--priority", "high"});
  auto low = loop({"--name", "low", "--priority", "low"});
  ASSERT_TRUE(eventually([&] { return is_short(slice("low", {})); }));
  {
    auto high_there = loop({"--name", "high", "--priority", "high"}, {}, there);
    auto low_there = loop({"--name", "low", "--priority", "low"}, {}, there);
    EXPECT_TRUE(eventually([&] {
      EXPECT_FALSE(is_short(slice("low", there))) << "the first one's may still be short";
      return !is_short(slice("low", {}));
    }));
    for (int i = 0; i < 10; ++i) {
      EXPECT_FALSE(is_short(slice("low", {}))) << "the other monitor's jobs are there";
      EXPECT_FALSE(is_short(slice("low", there)));
    }
    high_there.finish(kLimit);
    low_there.finish(kLimit);
  }
  EXPECT_TRUE(eventually([&] { return is_short(slice("low", {})); })) << "they have gone";
}

using MonitorEnds = Scene;

TEST_F(MonitorEnds, StopEndsItAndTheNextRunStartsAnother) {
  auto daemon = monitor();
  const int first = monitor_pid();
  const auto end = cli({"stop"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_TRUE(daemon.finish(kLimit).exited);
  EXPECT_EQ(cli({"run", "--", "true"}).err, "");
  EXPECT_NE(monitor_pid(), first);
}

// To open one for writing waits for a reader, and to read one for a writer.
TEST_F(MonitorEnds, AFifoInThePlaceOfItsLogStopsNoRun) {
  ASSERT_EQ(::mkfifo(in_folder("m.log").c_str(), 0666), 0);
  const auto end = cli({"run", "--", "true"});
  EXPECT_EQ(end.status, 0) << end.err;
  const int pid = monitor_pid();
  EXPECT_NE(pid, 0);
  // Also where there is something to be read in it.
  EXPECT_EQ(cli({"stop"}).status, 0);
  // A process that joins the simulated machine before its last one has left sees the GPU there.
  EXPECT_TRUE(eventually([&] { return ::waitpid(pid, nullptr, WNOHANG) == pid; }));
  const auto none = cli({"run", "--require", "--", "true"}, {{"FAKECUDA_DEVICES", "0"}});
  EXPECT_EQ(none.status, 125);
  EXPECT_TRUE(says(none, "did not come up")) << none.err;
}

TEST_F(MonitorEnds, StopWithJobsNeedsForceAndTheJobsGoOn) {
  auto daemon = monitor();
  auto child = loop({"--name", "worker"});
  const auto refused = cli({"stop"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_TRUE(says(refused, "'worker'")) << refused.err;
  EXPECT_EQ(cli({"stop", "--force"}).status, 0);
  const long before = kernels(child);
  EXPECT_TRUE(eventually([&] { return kernels(child) > before; }));
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(MonitorEnds, StopWithPausedJobsResumesThemIfToldTo) {
  auto daemon = monitor();
  auto child = loop({"--name", "held"});
  ASSERT_EQ(cli({"pause", "held"}).status, 0);
  const auto refused = cli({"stop", "--force"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_TRUE(says(refused, "'held'")) << refused.err;
  EXPECT_EQ(cli({"stop", "--resume"}).status, 2);
  EXPECT_EQ(cli({"stop", "--force", "--resume"}).status, 0);
  EXPECT_TRUE(daemon.finish(kLimit).exited);
  const long before = kernels(child);
  EXPECT_TRUE(eventually([&] { return kernels(child) > before; }));
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

// `systemctl stop`, a restart by an upgrade, a shutdown: nobody is there to be asked.
TEST_F(MonitorEnds, ASignalEndsItAlthoughAJobIsPausedAndThePauseStands) {
  auto child = [this] {
    auto daemon = monitor();
    auto made = loop({"--name", "held"});
    EXPECT_EQ(cli({"pause", "held"}).status, 0);
    ::kill(daemon.pid(), SIGTERM);
    EXPECT_EQ(daemon.finish(kLimit).status, 0);
    return made;
  }();
  // Longer than a silent monitor is believed in.
  const long held = kernels(child);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_EQ(kernels(child), held);
  auto next = monitor();
  EXPECT_TRUE(eventually([this] {
    const json found = job_named("held");
    return found.is_object() && found["state"] == "paused";
  }));
  EXPECT_EQ(kernels(child), held);
  EXPECT_EQ(cli({"resume", "held"}).status, 0);
  EXPECT_TRUE(eventually([&] { return kernels(child) > held; }));
}

TEST_F(MonitorEnds, VersionSaysWhichPagesWorkTogether) {
  auto daemon = monitor();
  const json listed = listing("version");
  EXPECT_EQ(listed["layout"], abi::kLayoutVersion);
  EXPECT_EQ(listed["monitor_layout"], abi::kLayoutVersion);
  const auto end = cli({"version"});
  EXPECT_EQ(end.err, "");
  EXPECT_NE(end.out.find(fmt::format("(page layout {})", abi::kLayoutVersion)), std::string::npos);
}

TEST_F(MonitorEnds, StopWithoutAMonitorSaysSo) { EXPECT_EQ(cli({"stop"}).status, 3); }

TEST_F(MonitorEnds, StopByAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  auto daemon = monitor();
  EXPECT_EQ(cli_as_nobody({"stop"}).status, 5);
  EXPECT_NE(monitor_pid(), 0);
}

TEST_F(MonitorEnds, WithoutAGpuItEndsAtOnceWithTheReason) {
  const auto end = run({built("switchyardd"), "--persist"}, {{"FAKECUDA_DEVICES", "0"}});
  EXPECT_EQ(end.status, 4);
  EXPECT_TRUE(says(end, "no GPU") && says(end, "--wait-for-gpu")) << end.err;
}

TEST_F(MonitorEnds, ToldToWaitItServesOnceTheDriverIsThere) {
  fs::create_directory(in_folder("late"));
  auto daemon = start({built("switchyardd"), "--persist", "--wait-for-gpu", "80s"},
                      {{"LD_LIBRARY_PATH", in_folder("late")}});
  EXPECT_EQ(monitor_pid(), 0);
  // At once: a library that is half there would end who loads it.
  fs::copy_file(built("fakecuda/libnvidia-ml.so.1"), in_folder("late/new"));
  fs::rename(in_folder("late/new"), in_folder("late/libnvidia-ml.so.1"));
  EXPECT_TRUE(eventually([this] { return monitor_pid() != 0; }));
}

// However high its number: whoever reads the other end would wait for the monitor.
TEST_F(MonitorEnds, AStartedMonitorHoldsNoDescriptorOfItsCaller) {
  constexpr int kHigh = 3000;
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max <= kHigh) GTEST_SKIP() << "no descriptor may have so high a number here";
  const rlimit more{std::max<rlim_t>(limit.rlim_cur, kHigh + 1), limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &more), 0);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(::dup2(ends[1], kHigh), kHigh);  // without close-on-exec
  EXPECT_EQ(cli({"run", "--", "true"}).status, 0);
  ::close(ends[1]);
  ::close(kHigh);
  EXPECT_NE(monitor_pid(), 0);
  pollfd reads{ends[0], POLLIN, 0};
  EXPECT_EQ(::poll(&reads, 1, 0), 1) << "the monitor holds the pipe";
  ::close(ends[0]);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace switchyard::system_tests
