// A machine with root's system monitor: no user starts another, and one that is there hands over.
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "switchyard/claim.h"
#include "switchyard/fd.h"
#include "switchyard/paths.h"
#include "users_scene.h"

namespace switchyard::system_tests {
namespace {

// Root, with a /run of the test's own.
class SystemMonitor : public UsersScene {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/run", "tmpfs", 0, "mode=0755") != 0) {
      GTEST_SKIP() << "a /run of its own is not permitted here";
    }
    mounted_ = true;
    UsersScene::SetUp();
  }
  void TearDown() override {
    if (!IsSkipped()) Scene::TearDown();
    if (mounted_) ::umount2("/run", MNT_DETACH);
  }

  // The machine has been served by a system monitor since it started, and is not now.
  void install() {
    auto service = system_monitor();
    service.finish(std::chrono::milliseconds(0));  // killed
  }
  Child system_monitor(const Words& options = {}) {
    Words command{built("switchyardd"), "--system", "--log", "debug:" + in_folder("m.log")};
    command.insert(command.end(), options.begin(), options.end());
    Child child = start(command, shared());
    EXPECT_TRUE(eventually([&] { return pid_of_monitor() == child.pid(); })) << "it does not serve";
    return child;
  }
  // Of root's, which is that of everybody.
  int pid_of_monitor() { return monitor_pid(shared()); }
  std::string user_monitor_pid() {
    const auto end = as_user({in_folder("lib/switchyard"), "status", "--json"});
    const auto status = json::parse(end.out, nullptr, false);
    return status.is_object() && status["monitor"].is_object() ? status["monitor"]["pid"].dump()
                                                               : std::string();
  }
  json job_of_root(const std::string& name) {
    const json all = listing("ps", shared());
    if (!all.is_object()) return nullptr;
    for (const auto& job : all["jobs"]) {
      if (job["name"] == name) return job;
    }
    return nullptr;
  }
  std::string log() const {
    std::ostringstream text;
    text << std::ifstream(in_folder("m.log")).rdbuf();
    return text.str();
  }
  Child user_loop(const Words& options) {
    Words words{in_folder("lib/switchyard"), "run"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"--", in_folder("lib/job_loop")});
    Child child = start_as_user(words);
    EXPECT_EQ(line_of(child), "ready");
    return child;
  }
  std::string uuid() { return listing("status", shared())["gpus"][0]["uuid"]; }

 private:
  bool mounted_ = false;
};

TEST_F(SystemMonitor, WhereItIsInstalledNoRunStartsAnother) {
  install();
  const std::string program = in_folder("lib/switchyard");
  auto promised = start_as_user({program, "run", "--priority", "high", "--", "echo", "ran"});
  auto plain = start_as_user({program, "run", "--", "echo", "ran"});
  const auto refused = promised.finish(kLimit);
  EXPECT_EQ(refused.status, 125);
  EXPECT_EQ(refused.out, "");
  EXPECT_TRUE(says(refused, "waiting up to 10 s") && says(refused, "system monitor is down"))
      << refused.err;
  const auto unmanaged = plain.finish(kLimit);
  EXPECT_EQ(unmanaged.status, 0);
  EXPECT_EQ(unmanaged.out, "ran\n");
  EXPECT_TRUE(says(unmanaged, "starting unmanaged")) << unmanaged.err;
  EXPECT_NE(::access(place().c_str(), F_OK), 0) << "a monitor of the user's own was started";
}

TEST_F(SystemMonitor, TakesTheGpusOverFromAUsersOwnWhoseJobsRejoinIt) {
  auto job = user_loop({"--name", "own", "--priority", "high"});
  const std::string own = user_monitor_pid();
  ASSERT_NE(own, "");
  auto service = system_monitor({"--cap-priority", "normal"});
  EXPECT_TRUE(eventually([this] { return job_of_root("own").is_object(); })) << log();
  EXPECT_EQ(job_of_root("own")["priority"], "normal") << "root's cap";
  EXPECT_NE(log().find("it gets the cap"), std::string::npos) << log();
  EXPECT_TRUE(eventually([&] { return ::waitpid(std::stoi(own), nullptr, WNOHANG) > 0; }))
      << "the user's own monitor is still there";
  const long before = kernels(job);
  EXPECT_TRUE(eventually([&] { return kernels(job) > before; }));
  EXPECT_EQ(user_monitor_pid(), std::to_string(service.pid()));
  EXPECT_EQ(job.finish(kLimit).status, 0);
  EXPECT_TRUE(eventually([this] { return job_of_root("own").is_null(); }));
}

// The rest of the job finds the socket of its environment gone.
TEST_F(SystemMonitor, ServesWhatAJobOfAUsersOwnMonitorStartsAfterwards) {
  auto job = start_as_user({in_folder("lib/switchyard"), "run", "--name", "own", "--", "sh", "-c",
                            "read line; " + in_folder("lib/job_loop") + " --count 2; " +
                                in_folder("lib/switchyard") +
                                " run --require -- echo nested; "
                                "read line"});
  ASSERT_TRUE(eventually([this] { return user_monitor_pid() != ""; }));
  auto service = system_monitor();
  ASSERT_TRUE(job.write_line("go"));
  EXPECT_EQ(line_of(job), "kernels 2");
  EXPECT_EQ(line_of(job), "nested");
  EXPECT_NE(log().find("joined job 'own'"), std::string::npos) << log();
  const auto end = job.finish(kLimit);
  EXPECT_EQ(end.err, "");
}

TEST_F(SystemMonitor, AStrangerCannotMakeAUsersOwnHandOver) {
  auto job = user_loop({"--name", "own"});
  const std::string own = user_monitor_pid();
  sockaddr_un address{};
  const auto length = claim_address(uuid(), address);
  ASSERT_EQ(::seteuid(kStranger), 0);
  const Fd claim(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(claim.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::seteuid(0), 0);
  ::send(claim.get(), "take over\n", 10, MSG_NOSIGNAL);
  char bytes[256];
  std::string answer;
  for (ssize_t got; (got = ::recv(claim.get(), bytes, sizeof(bytes), 0)) > 0;) {
    answer.append(bytes, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(answer.find("hands over"), std::string::npos) << answer;
  // Longer than it takes to end.
  const auto uptime = [this] {
    const auto end = as_user({in_folder("lib/switchyard"), "status", "--json"});
    const auto status = json::parse(end.out, nullptr, false);
    return status["monitor"].is_object() ? status["monitor"]["uptime_seconds"].get<double>() : -1;
  };
  const double before = uptime();
  EXPECT_TRUE(eventually([&] { return uptime() >= before + 2; }));
  EXPECT_EQ(user_monitor_pid(), own);
}

// It promises and stays, or never says a word.
TEST_F(SystemMonitor, StartsBesideAStrangerWhoHoldsAClaimForEver) {
  sockaddr_un address{};
  const auto length = claim_address(uuid(), address);
  for (const std::string answer : {"hands over\n", ""}) {
    ASSERT_EQ(::seteuid(kStranger), 0);
    const Fd claim(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::bind(claim.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(claim.get(), 16), 0);
    EXPECT_EQ(::seteuid(0), 0);
    auto service = start({built("switchyardd"), "--system"}, shared());
    std::vector<Fd> callers;
    EXPECT_TRUE(eventually([&] {
      Fd caller(::accept4(claim.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (caller) ::send(caller.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      callers.push_back(std::move(caller));
      return pid_of_monitor() == service.pid();
    }));
    service.finish(std::chrono::milliseconds(0));  // killed
  }
}

}  // namespace
}  // namespace switchyard::system_tests
