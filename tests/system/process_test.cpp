// Processes as they come: forked, exec'd, in other namespaces, and those without any CUDA.
#include <unistd.h>

#include <cstdio>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

using Processes = Scene;

TEST_F(Processes, AChildForkedBeforeTheFirstCallJoinsByItself) {
  const auto end =
      cli({"run", "--require", "--", loop_program(), "--count", "5", "--fork", "before"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(end.out, "kernels 5\nkernels 5\n");
}

TEST_F(Processes, AChildForkedInTheMiddleDisturbsNothing) {
  const auto end =
      cli({"run", "--require", "--", loop_program(), "--count", "5", "--fork", "after"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_NE(end.out.find("child cuInit"), std::string::npos) << end.out;
  EXPECT_EQ(value_of(end.out, "kernels"), 10);
}

TEST_F(Processes, AProgramThatBecomesAnotherStaysInItsJob) {
  auto daemon = monitor();
  const auto end =
      cli({"run", "--require", "--name", "exec", "--", loop_program(), "--count", "5", "--exec"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(end.out, "kernels 5\nkernels 5\n");
}

TEST_F(Processes, SeveralProcessesAreOneJob) {
  auto child = job(
      {"--name", "many"},
      {"sh", "-c", "for i in 1 2 3; do (sleep 1000 | " + loop_program() + ") & done; read line"});
  EXPECT_TRUE(eventually([this] {
    const json job = job_named("many");
    return job.is_object() && job["processes"].size() == 3;
  }));
  EXPECT_EQ(listing("ps")["jobs"].size(), 1U);
}

TEST_F(Processes, ProgramsWithoutCudaLoadNoDriverAndOpenNoSocket) {
  auto daemon = monitor();
  const Changes preload{{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_PRIORITY", "high"}};
  EXPECT_EQ(run({"bash", "-c", "true"}, preload).status, 0);
  EXPECT_EQ(run({"ls", "/"}, preload).out, run({"ls", "/"}).out);
  const auto maps = run({"cat", "/proc/self/maps"}, preload);
  EXPECT_NE(maps.out.find("libswitchyard.so"), std::string::npos);
  EXPECT_EQ(maps.out.find("libcuda"), std::string::npos);
  EXPECT_EQ(maps.out.find("libnvidia-ml"), std::string::npos);
  const auto open = run({"bash", "-c", "ls -l /proc/$$/fd"}, preload);
  EXPECT_EQ(open.out.find("socket:"), std::string::npos) << open.out;
  EXPECT_TRUE(listing("ps")["jobs"].empty());
}

class Namespaces : public Scene {
 protected:
  // `unshare OPTIONS COMMAND`, where this system permits it.
  static Words unshared(const Words& options, const Words& command) {
    Words all{"unshare"};
    all.insert(all.end(), options.begin(), options.end());
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  bool permitted(const Words& options) { return run(unshared(options, {"true"})).status == 0; }
};

TEST_F(Namespaces, AJobInOtherMountAndPidNamespacesJoinsAndIsKnownByItsRealPid) {
  const Words options{"--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"};
  if (!permitted(options))
    GTEST_SKIP() << "unshare of user, mount and PID namespaces isn't permitted";
  auto daemon = monitor();
  auto child =
      start(unshared(options, {loop_program()}), {{"LD_PRELOAD", built("libswitchyard.so")},
                                                  {"SWITCHYARD_NAME", "inside"},
                                                  {"SWITCHYARD_PRIORITY", "low"}});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit) && line == "ready") << line;
  const json job = job_named("inside");
  ASSERT_TRUE(job.is_object());
  EXPECT_EQ(job["priority"], "low");
  // Inside it is number 1; outside it is another, and `ps` shows that one.
  const int pid = job["processes"][0]["pid"];
  EXPECT_GT(pid, 1);
  char name[64];
  std::snprintf(name, sizeof name, "/proc/%d/exe", pid);
  char target[4096] = "";
  EXPECT_GT(::readlink(name, target, sizeof target - 1), 0);
  EXPECT_EQ(std::string(target), loop_program());
  EXPECT_TRUE(eventually([this] { return gpu_of("inside")["launches"].get<long>() > 10; }));
}

TEST_F(Namespaces, RunWorksInsideThemToo) {
  const Words options{"--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"};
  if (!permitted(options))
    GTEST_SKIP() << "unshare of user, mount and PID namespaces isn't permitted";
  auto daemon = monitor();
  const auto end =
      run(unshared(options, {built("switchyard"), "run", "--require", "--memory", "1GiB", "--",
                             built("tests/jobs/job_alloc"), "alloc:600", "alloc:600"}));
  EXPECT_EQ(end.out, "alloc 0\nalloc 2\n") << end.err;
}

}  // namespace
}  // namespace switchyard::system_tests
