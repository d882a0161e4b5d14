// What doctor concludes from what it finds.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/tools/fake_monitor.h"
#include "tools/base/child.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/probe.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;
using std::chrono::seconds;

TEST(DoctorDriver, AStubIsNoGpu) {
  DriverReport report;
  report.answered = report.found = true;
  report.path = "/usr/local/cuda/lib64/stubs/libcuda.so";
  report.init_result = 34;
  const Check check = check_driver(report);
  EXPECT_EQ(check.verdict, Verdict::kFail);
  EXPECT_NE(check.what.find("stub"), std::string::npos);
  EXPECT_NE(check.remedy.find("LD_LIBRARY_PATH"), std::string::npos);
}

TEST(DoctorDriver, AnErrorOfCuInitIsNamedExplainedAndHasARemedyOfItsOwn) {
  DriverReport report;
  report.answered = report.found = true;
  report.path = "/lib/libcuda.so.1";
  const struct {
    int code;
    const char* name;
    const char* remedy;
  } cases[] = {{2, "CUDA_ERROR_OUT_OF_MEMORY", "memory"},
               {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "nvidia-smi -c DEFAULT"},
               {100, "CUDA_ERROR_NO_DEVICE", "CUDA_VISIBLE_DEVICES"},
               {802, "CUDA_ERROR_SYSTEM_NOT_READY", "nvidia-fabricmanager"},
               {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"},
               {999, "CUDA_ERROR_UNKNOWN", "nvidia_uvm"}};
  for (const auto& each : cases) {
    report.init_result = each.code;
    const Check check = check_driver(report);
    EXPECT_EQ(check.verdict, Verdict::kFail);
    EXPECT_NE(check.what.find(each.name), std::string::npos) << check.what;
    EXPECT_NE(check.remedy.find(each.remedy), std::string::npos) << check.remedy;
    EXPECT_EQ(check.remedy.find("install NVIDIA's driver"), std::string::npos);
  }
  report.init_result = 12345;
  EXPECT_NE(check_driver(report).what.find("error 12345"), std::string::npos);
  EXPECT_NE(check_driver(report).remedy.find("CUresult"), std::string::npos);
}

TEST(DoctorDriver, EachWayToHaveNoGpuIsSaidInItsOwnWords) {
  DriverReport report;
  report.reason = "it hung";
  EXPECT_NE(why_no_gpu(report).find("it hung"), std::string::npos);
  report.answered = true;
  report.reason = "cannot open shared object file";
  EXPECT_NE(why_no_gpu(report).find("cannot be loaded"), std::string::npos);
  report.found = true;
  report.init_result = 100;
  EXPECT_NE(why_no_gpu(report).find("error 100"), std::string::npos);
  report.init_result = 0;
  EXPECT_NE(why_no_gpu(report).find("sees none"), std::string::npos);
  EXPECT_EQ(check_driver(report).verdict, Verdict::kFail);
  report.devices = 1;
  EXPECT_EQ(check_driver(report).verdict, Verdict::kOk);
}

TEST(DoctorCalls, AnOlderDriverIsKnownAsAWhole) {
  DriverReport report;
  report.version = 12040;
  EXPECT_EQ(check_calls(report, 12080).verdict, Verdict::kOk);
  report.version = 12080;
  EXPECT_EQ(check_calls(report, 12080).verdict, Verdict::kOk);
}

TEST(DoctorCalls, ANewerDriverHasCallsThatPassUnseen) {
  DriverReport report;
  report.version = 13000;
  const Check check = check_calls(report, 12080);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_NE(check.what.find("CUDA 12.8"), std::string::npos) << check.what;
  EXPECT_NE(check.what.find("--swappable is refused"), std::string::npos) << check.what;
  EXPECT_NE(check.remedy.find("with the headers of CUDA 13.0"), std::string::npos) << check.remedy;
  EXPECT_NE(check.remedy.find("NEWER_DRIVER=1 if the program uses CUDA 12.8"), std::string::npos)
      << check.remedy;
  // No headers help where the tables end.
  report.version = 13050;
  const Check beyond = check_calls(report, 13000);
  EXPECT_EQ(beyond.verdict, Verdict::kWarn);
  EXPECT_EQ(beyond.remedy, "set SWITCHYARD_NEWER_DRIVER=1 if the program uses CUDA 13.0 or older");
}

TEST(DoctorMonitor, TheRemedyFitsWhyNoneAnswers) {
  const std::vector<std::string> sockets = {"/run/a.sock", "/tmp/b.sock"};
  const Check hangs = check_no_monitor({kTimedOut, "the monitor at /tmp/b.sock is slow"}, sockets);
  EXPECT_EQ(hangs.verdict, Verdict::kFail);
  EXPECT_NE(hangs.remedy.find("process that listens at /tmp/b.sock"), std::string::npos)
      << hangs.remedy;
  EXPECT_EQ(hangs.remedy.find("switchyardd"), std::string::npos) << hangs.remedy;
  EXPECT_EQ(check_no_monitor({kNoPermission, "remove it"}, sockets).remedy, "");
  EXPECT_EQ(check_no_monitor({kUsage, "use a shorter path"}, sockets).remedy, "");
  const Check gone = check_no_monitor({kMonitorUnreachable, "it said: no GPU"}, sockets);
  EXPECT_NE(gone.remedy.find("start `switchyardd` by hand"), std::string::npos) << gone.remedy;
}

TEST(DoctorListings, UntestedDriverMpsMigAndForeignProcessesAreWarnings) {
  const json plain =
      json::array({{{"index", 0}, {"driver_version", "580.1"}, {"driver_tested", true}}});
  EXPECT_EQ(check_driver_version(plain).verdict, Verdict::kOk);
  EXPECT_EQ(check_mps(plain).verdict, Verdict::kOk);
  EXPECT_EQ(check_mig(plain).verdict, Verdict::kOk);
  EXPECT_EQ(check_outside(json::array()).verdict, Verdict::kOk);
  const json odd =
      json::array({{{"index", 3}, {"driver_version", "999.9"}, {"mps", true}, {"mig", true}}});
  EXPECT_EQ(check_driver_version(odd).verdict, Verdict::kWarn);
  EXPECT_NE(check_driver_version(odd).what.find("999.9"), std::string::npos);
  EXPECT_EQ(check_mps(odd).verdict, Verdict::kWarn);
  EXPECT_EQ(check_mig(odd).verdict, Verdict::kWarn);
  const json outside =
      json::array({{{"pid", 77}, {"name", "python"}, {"memory_used_bytes", 1024}}});
  EXPECT_EQ(check_outside(outside).verdict, Verdict::kWarn);
  EXPECT_NE(check_outside(outside).what.find("77 (python, 1 KiB)"), std::string::npos);
}

TEST(DoctorListings, AProcessWithTheLibraryOfAnotherVersionIsToBeRestarted) {
  const json outside = json::array(
      {{{"pid", 77}, {"name", "python"}, {"memory_used_bytes", 1024}, {"library_layout", 6}}});
  const Check check = check_outside(outside);
  EXPECT_NE(check.what.find("library of another version"), std::string::npos) << check.what;
  EXPECT_EQ(check.remedy.rfind("restart", 0), 0u) << check.remedy;
}

TEST(DoctorListings, TheMeansOfEachGpuAreSaidWithTheirReason) {
  const json gpu = {{"index", 0}, {"means", "slice+gate"}, {"means_reason", "all is well"}};
  EXPECT_EQ(check_means(json::array({gpu})).verdict, Verdict::kOk);
  const json other = {{"index", 1}, {"means", "gate"}, {"means_reason", "MPS runs"}};
  const Check check = check_means(json::array({gpu, other}));
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.what, "GPU 0: slice+gate (all is well), GPU 1: gate (MPS runs)");
  EXPECT_EQ(check_means(json::array({other, gpu})).verdict, Verdict::kWarn);
  EXPECT_NE(check.remedy, "");
}

TEST(DoctorListings, ASimulatedDriverCountsAsTested) {
  const json gpus = json::array({{{"index", 0}, {"driver_version", "x"}, {"simulated", true}}});
  EXPECT_EQ(check_driver_version(gpus).verdict, Verdict::kOk);
}

TEST(DoctorPreloads, OtherLibrariesAreNamedAndOursIsNot) {
  EXPECT_EQ(check_preloads("", "").verdict, Verdict::kOk);
  EXPECT_EQ(check_preloads("/x/libswitchyard.so", "").verdict, Verdict::kOk);
  const Check both = check_preloads("/x/libswitchyard.so:/y/liba.so", "/z/libb.so\n");
  EXPECT_EQ(both.verdict, Verdict::kWarn);
  EXPECT_NE(both.what.find("/y/liba.so:/z/libb.so"), std::string::npos) << both.what;
}

TEST(DoctorSlices, ARatioWithinFifteenPercentIsEffective) {
  EXPECT_EQ(judge_ratio("GPU 0", 7278, 1805).verdict, Verdict::kOk);
  EXPECT_EQ(judge_ratio("GPU 0", 4500, 1000).verdict, Verdict::kOk);
  EXPECT_EQ(judge_ratio("GPU 0", 4700, 1000).verdict, Verdict::kFail);
  const Check equal = judge_ratio("GPU 0", 4275, 4272);
  EXPECT_EQ(equal.verdict, Verdict::kFail);
  EXPECT_NE(equal.what.find("1.00 : 1"), std::string::npos) << equal.what;
  EXPECT_EQ(judge_ratio("GPU 0", 9000, 0).verdict, Verdict::kFail);
}

// The measurement starts its own program as both workers, and that is this one.
[[gnu::constructor]] void be_a_worker(int count, char** words, char**) {
  if (count < 2 || std::string_view(words[count - 2]) != "--worker") return;
  std::puts(std::getenv("SWITCHYARD_LIMIT") == nullptr ? "ready" : "held by the caller's limit");
  std::fflush(stdout);
  ::_exit(0);
}

TEST(DoctorSlices, SettingsOfTheCallerDoNotHoldTheWorkers) {
  // Slices are refused, so it ends before it counts kernels.
  const auto monitor = FakeMonitor::answering([](const json&) -> json {
    const json gpu = {{"uuid", "GPU-a"}, {"slice_status", "refused"}};
    const std::string name = "doctor-" + std::to_string(::getpid()) + "-heavy";
    return {{"ok", true}, {"jobs", {{{"name", name}, {"gpus", json::array({gpu})}}}}};
  });
  auto client = MonitorClient::connect(monitor.socket());
  ASSERT_TRUE(client);
  ::setenv("SWITCHYARD_LIMIT", "10%", 1);
  const Check check =
      check_slices(*client, {{"index", 0}, {"uuid", "GPU-a"}, {"means", "slice+gate"}});
  ::unsetenv("SWITCHYARD_LIMIT");
  EXPECT_NE(check.what.find("the driver refuses slices"), std::string::npos) << check.what;
}

TEST(DoctorChild, StatusOutputAndErrorsComeBack) {
  auto child = Child::start({"/bin/sh", "-c", "read a; echo got $a; echo bad >&2; exit 7"});
  EXPECT_TRUE(child.write_line("x"));
  const auto end = child.finish(seconds(30));
  EXPECT_TRUE(end.exited);
  EXPECT_EQ(end.status, 7);
  EXPECT_EQ(end.out, "got x\n");
  EXPECT_EQ(end.err, "bad\n");
}

TEST(DoctorChild, TheStatusComesBackWhereTheParentIgnoredSigchld) {
  ::signal(SIGCHLD, SIG_IGN);
  const auto end = Child::start({"/bin/sh", "-c", "exit 7"}).finish(seconds(30));
  EXPECT_TRUE(end.exited);
  EXPECT_EQ(end.status, 7);
}

TEST(DoctorChild, OneThatHangsIsLeftBehindInTime) {
  auto child = Child::start({"/bin/sleep", "1000"});
  std::string line;
  EXPECT_FALSE(child.read_line(line, std::chrono::milliseconds(50)));
  EXPECT_FALSE(child.finish(std::chrono::milliseconds(50)).exited);
}

TEST(DoctorChild, AMissingProgramEndsWith127) {
  EXPECT_EQ(Child::start({"/no/such/program"}).finish(seconds(30)).status, 127);
}

TEST(DoctorChild, TheEnvironmentIsChangedForTheChildOnly) {
  auto child =
      Child::start({"/bin/sh", "-c", "echo $SWITCHYARD_PROBE"}, {{"SWITCHYARD_PROBE", "1"}});
  EXPECT_EQ(child.finish(seconds(30)).out, "1\n");
  EXPECT_EQ(::getenv("SWITCHYARD_PROBE"), nullptr);
}

}  // namespace
}  // namespace switchyard::tools
