// What /proc says of processes, also of those that make it long.
#include "monitor/platform/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "switchyard/fd.h"
#include "tests/monitor/stopped_process.h"

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

TEST(Processes, ASlurmJobIsKnownByItsCgroup) {
  EXPECT_EQ(slurm_job_in("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n"), "123");
  EXPECT_EQ(slurm_job_in("4:memory:/slurm/uid_1000/job_77/step_batch\n1:name=systemd:/\n"), "77");
  EXPECT_EQ(slurm_job_in("1:cpu:/\n0::/slurm_node7/job_5"), "5");
  EXPECT_EQ(slurm_job_in("0::/user.slice/job_123/step_0\n"), "") << "a folder of somebody's";
  EXPECT_EQ(slurm_job_in("0::/slurm/uid_1/job_x\n0::/slurm/job_\n0::/slurm/job_12y/z\n"), "");
  EXPECT_EQ(slurm_job_in("0::/slurm/job_" + std::string(30, '1')), "");
}

TEST(Processes, WithoutCgroupsASlurmJobIsKnownByTheIdOfItsJob) {
  EXPECT_EQ(slurm_job_named("slurm-4711"), "4711");
  for (const std::string id : {"", "slurm-", "slurm-12x", "slurm", "myslurm-12", "12"}) {
    EXPECT_EQ(slurm_job_named(id), "") << id;
  }
  EXPECT_EQ(slurm_job_named("slurm-" + std::string(30, '1')), "");
}

TEST(Processes, OfOneWithEndlessMappingsOnlyTheBeginningIsRead) {
  EXPECT_FALSE(may_be_managed(::getpid()));
  const fs::path path =
      fs::temp_directory_path() / (std::string(200, 'm') + std::to_string(::getpid()));
  std::ofstream(path) << std::string(4096, 'x');
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fs::remove(path);
  // Some 2 MB of lines. Two of the same page never become one mapping.
  for (int i = 0; i < 8000; ++i) {
    ASSERT_NE(::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0), MAP_FAILED);
  }
  EXPECT_TRUE(may_be_managed(::getpid())) << "it can't be told";
}

// Forks a process with this number. False: that is not permitted, or the number is in use.
bool fork_as(pid_t number, pid_t& out) {
  struct {
    std::uint64_t flags = 0, pidfd = 0, child_tid = 0, parent_tid = 0, exit_signal = SIGCHLD;
    std::uint64_t stack = 0, stack_size = 0, tls = 0, set_tid = 0, set_tid_size = 1;
  } arguments;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&number);
  out = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof(arguments)));
  if (out != 0) return out > 0;
  for (;;) ::pause();
}

// A child keeps the socket open, and the process that connected has ended.
TEST(Processes, APeerThatHasEndedIsNotTheOneThatHasItsNumberNow) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]);
  bool dead = true;
  EXPECT_TRUE(open_peer(ours.get(), dead) || !dead);
  EXPECT_FALSE(dead) << "the peer is this process";

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "switchyard-test-peer-" + std::to_string(::getpid());
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const Fd connected(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));  // it lives on with us
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::connect(connected.get(), reinterpret_cast<sockaddr*>(&address), length));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(peer_of(accepted.get())->pid, child);
  pid_t other = 0;
  if (!fork_as(child, other)) GTEST_SKIP() << "needs root, to give a process a number";
  EXPECT_EQ(other, child);
  const Fd by_number = open_process(child, dead);
  EXPECT_FALSE(dead) << "another process";
  if (!open_peer(ours.get(), dead)) {
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    GTEST_SKIP() << "this kernel tells no peer";
  }
  open_peer(accepted.get(), dead);
  EXPECT_TRUE(dead);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

TEST(Processes, OneThatASignalHasStoppedStandsStillUntilItGoesOn) {
  const test::StoppedProcess child;
  EXPECT_EQ(standstill_of(child.pid()), Standstill::kStopped);
  child.goes_on();
  EXPECT_EQ(standstill_of(child.pid()), Standstill::kNone);
  EXPECT_EQ(standstill_of(0), Standstill::kNone);
  EXPECT_EQ(standstill_of(3'000'000), Standstill::kNone) << "nobody has this pid";
}

// What proc(5) and cgroups(7) would say.
class MadeUpProcess {
 public:
  MadeUpProcess() { fs::create_directories(process()); }
  ~MadeUpProcess() { fs::remove_all(folder_); }
  std::string process() const { return (folder_ / "process").string(); }
  std::string cgroups() const { return (folder_ / "cgroup").string(); }
  void has(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void is(char state, bool dumps = false) const {
    has("process/status", std::string("Name:\tx\nState:\t") + state + " (x)\nCoreDumping:\t" +
                              (dumps ? "1" : "0") + "\nThreads:\t2\n");
  }
  void threads_are(const std::string& states) const {
    for (std::size_t i = 0; i < states.size(); ++i) {
      has("process/task/" + std::to_string(i + 1) + "/stat",
          "1 (a ) b) " + states.substr(i, 1) + " 0 0");
    }
  }
  Standstill seen() const { return standstill_in(process(), cgroups()); }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("process" + std::to_string(::getpid()));
};

TEST(Processes, ADebuggerOrADiskMustHoldAllThreads) {
  const MadeUpProcess one;
  const struct {
    char state;
    const char* threads;
    Standstill expected;
  } cases[] = {{'t', "tt", Standstill::kTraced}, {'t', "tS", Standstill::kNone},
               {'D', "DD", Standstill::kDisk},   {'D', "DS", Standstill::kNone},
               {'S', "SS", Standstill::kNone},   {'R', "RD", Standstill::kNone},
               {'T', "TT", Standstill::kStopped}};
  for (const auto& each : cases) {
    one.is(each.state);
    one.threads_are(each.threads);
    EXPECT_EQ(one.seen(), each.expected) << each.state << each.threads;
  }
  one.is('S', true);
  EXPECT_EQ(one.seen(), Standstill::kDumping);
}

TEST(Processes, OneInAFrozenCgroupStandsStill) {
  const MadeUpProcess second;
  second.is('S');
  second.has("process/cgroup", "1:name=systemd:/\n0::/user/app\n");
  second.has("cgroup/user/app/cgroup.events", "populated 1\nfrozen 0\n");
  EXPECT_EQ(second.seen(), Standstill::kNone);
  second.has("cgroup/user/app/cgroup.events", "populated 1\nfrozen 1\n");
  EXPECT_EQ(second.seen(), Standstill::kFrozen);
  second.has("process/cgroup", "7:freezer:/app\n");
  EXPECT_EQ(second.seen(), Standstill::kNone);
  second.has("cgroup/freezer/app/freezer.state", "FROZEN\n");
  EXPECT_EQ(second.seen(), Standstill::kFrozen);
  second.has("process/cgroup", "0::/../outside\n");
  EXPECT_EQ(second.seen(), Standstill::kNone);
}

}  // namespace
}  // namespace switchyard::monitor
