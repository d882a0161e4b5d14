// `run` prepares and execs: status, signals, streams and environment are the job's own.
#include <signal.h>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

using RunJob = Scene;

std::string loop_program() { return built("tests/jobs/job_loop"); }

TEST_F(RunJob, TheStatusIsTheJobsOwn) {
  for (const int status : {0, 1, 3, 125, 255}) {
    EXPECT_EQ(cli({"run", "--", "sh", "-c", "exit " + std::to_string(status)}).status, status);
  }
}

TEST_F(RunJob, ASignalIs128PlusItsNumber) {
  // finish() itself tells a signal as 128+N, so a shell in between shows what a person sees.
  for (const int number : {SIGTERM, SIGKILL, SIGSEGV}) {
    const auto end = run(
        {"sh", "-c",
         built("switchyard") + " run -- sh -c 'kill -" + std::to_string(number) + " $$'; exit $?"});
    EXPECT_EQ(end.status, 128 + number);
  }
}

TEST_F(RunJob, ASignalToRunReachesTheJobForTheyAreOneProcess) {
  auto child =
      job({}, {"sh", "-c", "trap 'exit 42' TERM; echo trapped; while :; do sleep 0.01; done"});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit));
  ::kill(child.pid(), SIGTERM);
  EXPECT_EQ(child.finish(kLimit).status, 42);
}

TEST_F(RunJob, InputAndOutputAreTheJobsOwnAndNothingIsAdded) {
  auto child = job({}, {"sh", "-c", "read word; echo $word; echo oops >&2"});
  child.write_line("hello");
  const auto end = child.finish(kLimit);
  EXPECT_EQ(end.out, "hello\n");
  EXPECT_EQ(end.err, "oops\n");
}

TEST_F(RunJob, TheMarkerMayBeLeftOut) {
  EXPECT_EQ(cli({"run", "--share", "2", "sh", "-c", "exit 4"}).status, 4);
}

TEST_F(RunJob, AKernelLoopCountsInPs) {
  auto child = loop({"--name", "count"});
  EXPECT_TRUE(eventually([&] {
    const json gpu = gpu_of("count");
    return gpu.is_object() && gpu["launches"].get<long>() >= 5;
  }));
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(RunJob, OtherPreloadsStayAndANestedRunKeepsOneShim) {
  const std::string self = built("switchyard");
  const auto end = cli({"run", "--", self, "run", "--", "sh", "-c", "echo $LD_PRELOAD"},
                       {{"LD_PRELOAD", "libm.so.6"}});
  EXPECT_EQ(end.out, built("libswitchyard.so") + ":libm.so.6\n") << end.err;
}

TEST_F(RunJob, ANestedRunIsAJobOfItsOwnWithItsOwnKnobs) {
  const auto end =
      cli({"run", "--name", "outer", "--memory", "3GiB", "--", built("switchyard"), "run", "--",
           "sh", "-c", "echo name $SWITCHYARD_NAME memory $SWITCHYARD_MEMORY"});
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_EQ(end.out.find("outer"), std::string::npos) << end.out;
  EXPECT_EQ(end.out.find("3GiB"), std::string::npos) << end.out;
}

TEST_F(RunJob, TheKillSwitchStartsThePlainProgram) {
  const auto end =
      cli({"run", "--", "sh", "-c", "echo ${LD_PRELOAD:-none}"}, {{"SWITCHYARD_DISABLE", "1"}});
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.out, "none\n");
  EXPECT_EQ(monitor_pid(), 0);
}

TEST_F(RunJob, ABarePreloadIsAJobMadeFromItsEnvironment) {
  auto daemon = monitor();
  auto child = start({loop_program()}, {{"LD_PRELOAD", built("libswitchyard.so")},
                                        {"SWITCHYARD_PRIORITY", "low"},
                                        {"SWITCHYARD_NAME", "bare"},
                                        {"SWITCHYARD_MEMORY", "1GiB"}});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit));
  const json job = job_named("bare");
  ASSERT_TRUE(job.is_object());
  EXPECT_EQ(job["priority"], "low");
  EXPECT_EQ(job["memory_quota_bytes"], 1 << 30);
  EXPECT_EQ(job["processes"][0]["pid"], child.pid());
}

TEST_F(RunJob, ABarePreloadUnderTheKillSwitchIsNoJob) {
  auto daemon = monitor();
  auto child = start({loop_program()},
                     {{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_DISABLE", "1"}});
  std::string line;
  ASSERT_TRUE(child.read_line(line, kLimit));
  // The monitor sees it as anybody's process; it looks for those once a second.
  EXPECT_TRUE(eventually([&] {
    const json all = listing("ps");
    EXPECT_TRUE(all["jobs"].empty());
    return !all["outside"].empty() && all["outside"][0]["pid"] == child.pid();
  }));
}

TEST_F(RunJob, ABarePreloadWithoutAMonitorRunsUnshared) {
  const auto end =
      run({loop_program(), "--count", "3"}, {{"LD_PRELOAD", built("libswitchyard.so")}});
  EXPECT_EQ(end.status, 0) << end.out;
  EXPECT_EQ(end.out, "kernels 3\n");
  EXPECT_EQ(end.err, "");
}

TEST_F(RunJob, ABarePreloadThatRequiresAMonitorFindsTheDriverNotReady) {
  const auto end = run({loop_program(), "--count", "3"},
                       {{"LD_PRELOAD", built("libswitchyard.so")}, {"SWITCHYARD_REQUIRE", "1"}});
  EXPECT_EQ(end.out, "error cuInit\n");
}

TEST_F(RunJob, WhereSharesCannotBeEnforcedItSaysSoInOneLine) {
  auto daemon = monitor();
  ASSERT_EQ(cli({"means", "none"}).status, 0);
  const auto end = cli({"run", "--", "true"});
  EXPECT_EQ(end.status, 0);
  EXPECT_NE(end.err.find("cannot be enforced"), std::string::npos) << end.err;
  ASSERT_EQ(cli({"means", "auto"}).status, 0);
  EXPECT_EQ(cli({"run", "--", "true"}).err, "");
}

}  // namespace
}  // namespace switchyard::system_tests
