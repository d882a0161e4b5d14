// A job goes to another GPU, end to end, with the real monitor and the command line.
#include <signal.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "tests/system/release_scene.h"

namespace switchyard::system_tests {
namespace {

class Migrate : public Release {
 protected:
  // A job "train" that sees one GPU, and has 40 MiB there.
  void begin_on(const std::string& gpu, const Words& options = {}, Changes changes = {}) {
    child_.emplace(process_on(gpu, options, changes));
    ASSERT_EQ(line(), "ready");
  }
  Child process_on(const std::string& gpu, const Words& options = {}, Changes changes = {}) {
    Words all = {"--name", "train", "--swappable", "--gpus", gpu};
    all.insert(all.end(), options.begin(), options.end());
    changes.insert(changes.end(), {{"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_PATTERN", "1"}});
    return job(all, {built("tests/jobs/job_swap"), std::to_string(40 * kMiB)}, changes);
  }
  // Another process of that job, with 24 MiB.
  Child second_process(Changes changes = {}) {
    changes.insert(changes.end(), {{"LD_PRELOAD", built("libswitchyard.so")},
                                   {"LD_LIBRARY_PATH", built("fakecuda")},
                                   {"SWITCHYARD_JOB", job_named("train")["job"]},
                                   {"SWITCHYARD_SWAPPABLE", "yes"},
                                   {"CUDA_VISIBLE_DEVICES", "0"},
                                   {"FAKECUDA_DEVICES", "2"},
                                   {"FAKECUDA_PATTERN", "1"}});
    return start({built("tests/jobs/job_swap"), std::to_string(24 * kMiB)}, changes);
  }
  Child::End migrate(const std::string& to) { return cli({"migrate", "train", "--to", to}); }
  json status_of(std::size_t gpu) { return listing("status")["gpus"][gpu]; }
  std::string uuid_of(std::size_t gpu) { return status_of(gpu).value("uuid", ""); }
  // The driver has something of somebody there, and the monitor counts all of it for the job.
  bool is_used(std::size_t gpu) { return status_of(gpu).value("memory_used_bytes", 0ull) != 0; }
  bool is_on_now(std::size_t gpu) {
    const json job = job_named("train");
    if (job.is_null() || job["gpus"].size() != 1 || job["gpus"][0]["uuid"] != uuid_of(gpu))
      return false;
    const std::uint64_t bytes = job["gpus"][0]["memory_resident_bytes"];
    return bytes >= 40 * kMiB && !is_used(1 - gpu) &&
           status_of(gpu).value("memory_outside_bytes", 1ull) == 0;
  }
  bool is_on(std::size_t gpu) {
    return eventually([&] { return is_on_now(gpu); });
  }
  // Or there already.
  bool is_on_its_way(std::size_t to) {
    const json job = job_named("train");
    return !job.is_null() &&
           (job.value("state", "") == "moving" || job["gpus"][0]["uuid"] == uuid_of(to));
  }
  bool goes_on() {
    const std::string before = ask("count");
    return eventually([&] { return ask("count") != before; });
  }
  void expect_at_work_on(std::size_t gpu) {
    EXPECT_TRUE(is_on(gpu)) << job_named("train") << listing("status");
    EXPECT_TRUE(goes_on());
  }
  void expect_right_in_the_end() {
    EXPECT_EQ(ask("end"), "did end");
    EXPECT_EQ(ask("check"), "right");
  }
  // Nothing was touched.
  void expect_refused(const std::string& to, int status, const std::string& why) {
    const auto moves = gpu_of("train").value("swap_times_out", 0);
    const Child::End refused = migrate(to);
    EXPECT_EQ(refused.status, status) << refused.err << refused.out;
    EXPECT_NE(refused.err.find(why), std::string::npos) << refused.err;
    EXPECT_EQ(refused.err.find('\n'), refused.err.size() - 1) << "one line: " << refused.err;
    EXPECT_EQ(gpu_of("train").value("swap_times_out", 0), moves);
  }
  // It could not, and the job is where it was.
  void expect_goes_back(const std::string& why) {
    const Child::End failed = migrate("1");
    EXPECT_EQ(failed.status, 6) << failed.out;
    EXPECT_NE(failed.err.find(why), std::string::npos) << failed.err;
    expect_at_work_on(0);
  }
};

TEST_F(Migrate, AJobAtWorkGoesToTheOtherGpuAndBack) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0");
  ask("begin");
  expect_at_work_on(0);
  for (int round = 0; round < 2; ++round) {
    const Child::End there = migrate("1");
    ASSERT_EQ(there.status, 0) << there.err;
    EXPECT_NE(there.out.find("moved to GPU 1"), std::string::npos) << there.out;
    expect_at_work_on(1);
    ASSERT_EQ(migrate(uuid_of(0)).status, 0);
    expect_at_work_on(0);
  }
  expect_right_in_the_end();
}

TEST_F(Migrate, AProcessThatSeesBothGpusUsesTheOtherOneInTheFirstOnesPlace) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0,1");
  ask("begin");
  ASSERT_EQ(migrate("1").status, 0);
  EXPECT_TRUE(eventually([&] { return !is_used(0) && is_used(1); }));
  const json job = job_named("train");
  EXPECT_EQ(job["gpus"][0]["memory_used_bytes"], 0);
  EXPECT_GE(job["gpus"][1]["memory_resident_bytes"], 40 * kMiB);
  EXPECT_EQ(status_of(1)["memory_outside_bytes"], 0);
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

class MigratePool : public Migrate {
 protected:
  // With a host pool that is pinned already.
  void begin_with_pool(const std::string& gpus, Changes changes = {}) {
    changes.push_back({"SWITCHYARD_LOG", "info:" + in_folder("train.log")});
    begin_on(gpus, {}, changes);
    ask("begin");
    ASSERT_TRUE(eventually([&] { return gpu_of("train").value("host_pool_bytes", 0ull) != 0; }));
  }
  // Where the log says that, from there on; npos: nowhere.
  std::size_t said(const std::string& what, std::size_t from = 0) const {
    return all_said().find(what, from);
  }
  std::string all_said() const {
    std::ifstream file(in_folder("train.log"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(MigratePool, IsUnpinnedBesideWorkAndThenNothingIsLeftToUnpinWhileHeld) {
  const Child owner = monitor({}, kTwoGpus);
  begin_with_pool("0,1");
  ASSERT_EQ(migrate("1").status, 0);
  const std::size_t beside = said(": 0 MiB copied to it, 256 MiB of 256 unpinned beside work");
  ASSERT_NE(beside, std::string::npos);
  EXPECT_NE(said(": 0 MiB of 256 unpinned while held", beside), std::string::npos);
  EXPECT_TRUE(goes_on());
  ASSERT_EQ(migrate("0").status, 0) << "its pool may be pinned again by now, or not";
  EXPECT_NE(said("unpinned beside work", beside + 1), std::string::npos);
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

TEST_F(MigratePool, ThatTheDriverDoesNotUnpinBesideWorkIsUnpinnedWhileHeld) {
  const Child owner = monitor({}, kTwoGpus);
  begin_with_pool("0,1", {{"FAKECUDA_FAIL", "cuMemHostUnregister:1=999"}});
  ASSERT_EQ(migrate("1").status, 0);
  const std::size_t beside = said(", 0 MiB of 256 unpinned beside work");
  ASSERT_NE(beside, std::string::npos);
  EXPECT_NE(said(": 256 MiB of 256 unpinned while held", beside), std::string::npos);
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

TEST_F(MigratePool, HasTheMemoryThatGoesByItBeforeTheJobIsHeld) {
  const Child owner = monitor({}, kTwoGpus);
  begin_with_pool("0");
  for (const char* to : {"1", "0"}) {
    const std::size_t begun = all_said().size();
    ASSERT_EQ(migrate(to).status, 0);
    EXPECT_NE(said(" MiB copied to it, ", begun), std::string::npos);
    EXPECT_TRUE(goes_on());
  }
  EXPECT_EQ(said(": 0 MiB copied to it"), std::string::npos) << all_said();
  expect_right_in_the_end();
}

TEST_F(MigratePool, ServesAgainWhenTheDriverRefusesTheMoveAfterItWasUnpinned) {
  const Child owner = monitor({}, kTwoGpus);
  begin_with_pool("0,1", {{"FAKECUDA_FAIL", "cuCheckpointProcessCheckpoint:1=801"}});
  const Child::End failed = migrate("1");
  EXPECT_EQ(failed.status, 6) << failed.out;
  EXPECT_NE(said("256 MiB of 256 unpinned beside work"), std::string::npos);
  EXPECT_TRUE(goes_on());
  ASSERT_EQ(cli({"swap-out", "train"}).status, 0);
  ASSERT_EQ(cli({"swap-in", "train"}).status, 0);
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

// All that is there to go by while the host has no room: descriptors of what stays behind.
const Words kNoHost = {"--host-pool", "0"};

TEST_F(Migrate, WhoSeesBothGpusNeedsNoHost) {
  const Child owner = monitor(kNoHost, kTwoGpus);
  begin_on("0,1");
  ask("begin");
  for (const std::size_t to : {1u, 0u, 1u}) {
    const Child::End moved = migrate(std::to_string(to));
    ASSERT_EQ(moved.status, 0) << moved.err;
    EXPECT_TRUE(eventually([&] { return !is_used(1 - to) && is_used(to); })) << listing("status");
    // It is given back once the job works again, and counts until then.
    EXPECT_TRUE(eventually([&] { return status_of(1 - to)["memory_parked_bytes"] == 0; }));
    EXPECT_TRUE(goes_on());
  }
  expect_right_in_the_end();
}

TEST_F(Migrate, WhoSeesOneGpuNeedsIt) {
  const Child owner = monitor(kNoHost, kTwoGpus);
  begin_on("0");
  ask("begin");
  expect_goes_back("the host has no room");
  expect_right_in_the_end();
}

TEST_F(Migrate, WhatTheDriverDoesNotExportGoesByTheHost) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0,1", {}, {{"FAKECUDA_FAIL", "cuMemExportToShareableHandle:1=801"}});
  ask("begin");
  const Child::End moved = migrate("1");
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_TRUE(eventually([&] { return !is_used(0) && is_used(1); })) << listing("status");
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

TEST_F(Migrate, WhatTheDriverDoesNotLetFollowGoesOnWhereItWas) {
  const Child owner = monitor(kNoHost, kTwoGpus);
  begin_on("0,1", {},
           {{"FAKECUDA_FAIL",
             "cuMemImportFromShareableHandle:1=101,cuMemImportFromShareableHandle:2=101"}});
  ask("begin");
  const Child::End failed = migrate("1");
  EXPECT_EQ(failed.status, 6) << failed.out;
  EXPECT_NE(failed.err.find("CUDA error 101"), std::string::npos) << failed.err;
  EXPECT_TRUE(eventually([&] { return is_used(0) && !is_used(1); })) << listing("status");
  EXPECT_TRUE(goes_on());
  ASSERT_EQ(migrate("1").status, 0) << "it may be tried again";
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

// Memory that stayed behind is on the GPU that the job comes back to: there is no room for it
// twice.
TEST_F(Migrate, WhoIsRefusedComesBackToAGpuThatItFills) {
  const Changes small = {{"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_MEMORY", "64MiB"}};
  const Child owner = monitor({}, small);
  begin_on("0,1", {},
           {{"FAKECUDA_MEMORY", "64MiB"}, {"FAKECUDA_FAIL", "cuCheckpointProcessRestore:1=999"}});
  ask("begin");
  const Child::End failed = migrate("1");
  EXPECT_EQ(failed.status, 6) << failed.out;
  EXPECT_NE(failed.err.find("CUDA error 999"), std::string::npos) << failed.err;
  EXPECT_TRUE(goes_on()) << listing("ps") << listing("status");
  EXPECT_TRUE(eventually([&] { return gpu_of("train")["memory_parked_bytes"] == 0; }));
  expect_right_in_the_end();
}

TEST_F(Migrate, SmallAllocationsGraphsAndNewMemoryGoAlong) {
  begin_on("0");
  EXPECT_EQ(ask("alloc " + std::to_string(kMiB / 2)), "did alloc 1");
  EXPECT_EQ(ask("graph"), "did graph");
  ASSERT_EQ(migrate("1").status, 0);
  EXPECT_EQ(ask("replay 3"), "did replay");
  EXPECT_EQ(ask("alloc " + std::to_string(8 * kMiB)), "did alloc 2");
  EXPECT_EQ(ask("launch 6"), "did launch");
  EXPECT_EQ(ask("check"), "right");
  EXPECT_TRUE(is_on(1)) << job_named("train");
}

TEST_F(Migrate, TheQuotaGoesAlong) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  begin_on("0", {"--memory", "300MiB"});
  const auto reserved = [&](std::size_t gpu) {
    return status_of(gpu).value("memory_reserved_bytes", 1ull) / kMiB;
  };
  EXPECT_EQ(reserved(0), 300u);
  ASSERT_EQ(migrate("1").status, 0);
  EXPECT_EQ(reserved(0), 0u);
  EXPECT_EQ(reserved(1), 300u);
  EXPECT_EQ(ask("alloc " + std::to_string(250 * kMiB)), "did alloc 1");
  EXPECT_NE(ask("alloc " + std::to_string(40 * kMiB)).find("failed"), std::string::npos);
  Child next =
      job({"--name", "next", "--memory", "400MiB", "--gpus", "0"}, {loop_program()}, kTwoGpus);
  EXPECT_EQ(line_of(next), "ready");
}

TEST_F(Migrate, ItTakesPartInTheSlicesOfTheOtherGpu) {
  const Child owner = monitor({}, kTwoGpus);
  Child neighbour = loop({"--name", "high", "--priority", "high", "--gpus", "1"}, {}, kTwoGpus);
  begin_on("0", {"--priority", "low"});
  ask("begin");
  EXPECT_EQ(status_of(1)["jobs"], 1);
  ASSERT_EQ(migrate("1").status, 0);
  EXPECT_EQ(status_of(0)["jobs"], 0);
  EXPECT_EQ(status_of(1)["jobs"], 2);
  // Beside a high job it yields.
  EXPECT_TRUE(eventually([&] {
    const json gpu = gpu_of("train");
    return gpu.value("slice_status", "") == "accepted" && gpu.value("slice_in_force_us", 0) != 0 &&
           gpu.value("slice_in_force_us", 0) < gpu_of("high").value("slice_in_force_us", 0);
  })) << listing("ps");
  EXPECT_TRUE(goes_on());
  expect_right_in_the_end();
}

TEST_F(Migrate, AllProcessesOfAJobMove) {
  const Child owner = monitor({}, kTwoGpus);
  const Changes same = {{"SWITCHYARD_JOB", "train"}};
  begin_on("0");
  Child second = second_process();
  ASSERT_EQ(line_of(second), "ready");
  ask("begin");
  system_tests::ask(second, "begin");
  ASSERT_EQ(migrate("1").status, 0);
  expect_at_work_on(1);
  const std::string before = system_tests::ask(second, "count");
  EXPECT_TRUE(eventually([&] { return system_tests::ask(second, "count") != before; }));
  EXPECT_EQ(system_tests::ask(second, "end"), "did end");
  EXPECT_EQ(system_tests::ask(second, "check"), "right");
  expect_right_in_the_end();
}

TEST_F(Migrate, WhenOneProcessIsRefusedTheOthersComeBack) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0");
  Child second = second_process({{"FAKECUDA_FAIL", "cuCheckpointProcessRestore:1=1"}});
  ASSERT_EQ(line_of(second), "ready");
  ask("begin");
  expect_goes_back("CUDA error 1)");
  EXPECT_EQ(system_tests::ask(second, "check"), "right");
  expect_right_in_the_end();
  EXPECT_EQ(migrate("1").status, 0) << "it may be tried again";
  EXPECT_TRUE(is_on(1));
}

TEST_F(Migrate, ASwappedOutJobStaysSoOnTheOtherGpu) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0");
  ASSERT_EQ(cli({"swap-out", "train"}).status, 0);
  const Child::End moved = migrate("1");
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_NE(moved.out.find("is swapped out"), std::string::npos) << moved.out;
  EXPECT_EQ(job_named("train").value("state", ""), "swapped");
  EXPECT_EQ(gpu_of("train").value("uuid", ""), uuid_of(1));
  ASSERT_EQ(cli({"swap-in", "train"}).status, 0);
  EXPECT_EQ(ask("check"), "right");
  EXPECT_TRUE(is_on(1));
}

TEST_F(Migrate, APausedJobStaysSoOnTheOtherGpu) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0");
  ask("begin");
  for (const Words& pause :
       {Words{"pause", "train"}, Words{"pause", "--release", "--contexts", "train"}}) {
    ASSERT_EQ(cli(pause).status, 0);
    const std::size_t to = is_used(0) || gpu_of("train")["uuid"] == uuid_of(0) ? 1 : 0;
    const Child::End moved = migrate(std::to_string(to));
    ASSERT_EQ(moved.status, 0) << moved.err;
    EXPECT_EQ(job_named("train").value("state", ""), "paused");
    EXPECT_EQ(gpu_of("train").value("uuid", ""), uuid_of(to));
    const std::string held = ask("count");
    EXPECT_EQ(ask("count"), held);
    ASSERT_EQ(cli({"resume", "train"}).status, 0);
    expect_at_work_on(to);
  }
  expect_right_in_the_end();
}

TEST_F(Migrate, WhatMakesItImpossibleIsSaidBeforeAnythingIsTouched) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  begin_on("0", {"--memory", "200MiB"});
  expect_refused("7", 4, "there is no GPU 7");
  expect_refused("GPU-ffff", 4, "there is no GPU GPU-ffff");
  expect_refused("first", 2, "--to cannot be 'first': expected");
  expect_refused("0", 6, "it is there already");
  EXPECT_EQ(cli({"migrate", "nobody", "--to", "1"}).status, 4);
  EXPECT_EQ(cli({"migrate", "train"}).status, 2);
  EXPECT_EQ(cli_as_nobody({"migrate", "train", "--to", "1"}).status, 5);
  {
    Child other =
        job({"--name", "big", "--memory", "400MiB", "--gpus", "1"}, {loop_program()}, kTwoGpus);
    ASSERT_EQ(line_of(other), "ready");
    expect_refused("1", 6, "job 'big' of");
  }
  ASSERT_EQ(ask("alloc " + std::to_string(4 * kMiB) + "/" + std::to_string(2 * kMiB) + "x"),
            "did alloc 1");
  ASSERT_EQ(ask("export 1").rfind("failed", 0), std::string::npos);
  expect_refused("1", 6, "shares memory");
  Child plain = loop({"--name", "plain", "--gpus", "0"}, {}, kTwoGpus);
  const Child::End refused = cli({"migrate", "plain", "--to", "1"});
  EXPECT_EQ(refused.status, 6);
  EXPECT_NE(refused.err.find("--swappable"), std::string::npos) << refused.err;
}

TEST_F(Migrate, AJobWithAProcessThatRunsWithoutTheLibraryStays) {
  const Child owner = monitor({}, kTwoGpus);
  const std::string other = "sleep 1000 | env -u LD_PRELOAD " + built("tests/jobs/job_alloc") +
                            " alloc:10 wait >/dev/null & ";
  child_.emplace(
      job({"--name", "train", "--swappable", "--gpus", "0"},
          {"/bin/sh", "-c", other + "exec " + built("tests/jobs/job_swap") + " 41943040"},
          {{"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_PATTERN", "1"}}));
  ASSERT_EQ(line(), "ready");
  EXPECT_TRUE(eventually([&] { return status_of(0).value("memory_outside_bytes", 0ull) != 0; }));
  expect_refused("1", 6, "runs without the library");
}

TEST_F(Migrate, AJobThatUsesSeveralGpusStays) {
  const Child owner = monitor({}, kTwoGpus);
  child_.emplace(job(
      {"--name", "train", "--swappable"},
      {built("tests/jobs/job_swap"), std::to_string(40 * kMiB), std::to_string(24 * kMiB) + ":1"},
      {{"FAKECUDA_DEVICES", "2"}, {"FAKECUDA_PATTERN", "1"}}));
  ASSERT_EQ(line(), "ready");
  expect_refused("1", 6, "several GPUs");
}

TEST_F(Migrate, WhatTheDriverDoesNotTakeGoesOnWhereItWas) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0", {}, {{"FAKECUDA_FAIL", "cuCheckpointProcessCheckpoint:1=801"}});
  ask("begin");
  expect_goes_back("CUDA error 801");
  ASSERT_EQ(migrate("1").status, 0);
  expect_at_work_on(1);
  expect_right_in_the_end();
}

TEST_F(Migrate, WhatTheDriverDoesNotRestoreThereGoesOnWhereItWas) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0", {}, {{"FAKECUDA_FAIL", "cuCheckpointProcessRestore:1=999"}});
  ask("begin");
  expect_goes_back("CUDA error 999");
  ASSERT_EQ(migrate("1").status, 0);
  expect_at_work_on(1);
  expect_right_in_the_end();
}

TEST_F(Migrate, AJobKilledOnItsWayLeavesNothing) {
  const Child owner = monitor({"--capacity", "500MiB"}, kTwoGpus);
  for (int round = 0; round < 12; ++round) {
    begin_on(round % 2 == 0 ? "0" : "0,1", {"--memory", "300MiB"});
    ask("begin");
    Child command = start({built("switchyard"), "migrate", "train", "--to", "1"});
    EXPECT_TRUE(eventually([&] { return is_on_its_way(1); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(5 * round));
    kill_and_wait(child_->pid());
    child_.reset();
    const Child::End end = command.finish(kLimit);
    EXPECT_TRUE(end.status == 4 || end.status == 0 || end.status == 6) << end.status << end.err;
    EXPECT_TRUE(eventually([&] { return job_named("train").is_null(); }));
    for (const std::size_t gpu : {0, 1}) {
      EXPECT_TRUE(eventually([&] { return !is_used(gpu); }));
      EXPECT_EQ(status_of(gpu)["memory_reserved_bytes"], 0);
    }
  }
  Child next = job({"--name", "next", "--memory", "450MiB"}, {loop_program()}, kTwoGpus);
  EXPECT_EQ(line_of(next), "ready") << "no room is kept for it";
}

TEST_F(Migrate, ACommandKilledOnItsWayChangesNothing) {
  const Child owner = monitor({}, kTwoGpus);
  begin_on("0");
  ask("begin");
  {
    Child command = start({built("switchyard"), "migrate", "train", "--to", "1"});
    EXPECT_TRUE(eventually([&] { return is_on_its_way(1); }));
    ::kill(command.pid(), SIGKILL);
  }
  expect_at_work_on(1);
  expect_right_in_the_end();
}

TEST_F(Migrate, AMonitorKilledOnTheWayLosesNothingThatStaysBehind) {
  for (int round = 0; round < 6; ++round) {
    std::optional<Child> owner(monitor(kNoHost, kTwoGpus));
    if (round == 0) begin_on("0,1");
    if (round == 0) ask("begin");
    ASSERT_TRUE(eventually([&] {
      const json gpu = gpu_of("train");
      return !gpu.is_null() && gpu.value("residency", "") == "resident";
    }));
    const std::size_t to = is_used(0) ? 1 : 0;
    Child command = start({built("switchyard"), "migrate", "train", "--to", std::to_string(to)});
    std::this_thread::sleep_for(std::chrono::milliseconds(6 * round));
    kill_and_wait(owner->pid());
    command.finish(kLimit);
    owner.reset();
    EXPECT_TRUE(goes_on()) << "without a monitor it is back, here or there";
    owner.emplace(monitor(kNoHost, kTwoGpus));
    EXPECT_TRUE(eventually([&] { return !job_named("train").is_null(); }));
    EXPECT_TRUE(eventually([&] { return is_used(0) != is_used(1); })) << listing("status");
    EXPECT_TRUE(goes_on());
    kill_and_wait(owner->pid());
  }
  expect_right_in_the_end();
}

TEST_F(Migrate, AMonitorKilledOnTheWayLosesNothing) {
  for (int round = 0; round < 6; ++round) {
    std::optional<Child> owner(monitor({}, kTwoGpus));
    if (round == 0) begin_on("0");
    if (round == 0) ask("begin");
    ASSERT_TRUE(eventually([&] {
      const json gpu = gpu_of("train");
      return !gpu.is_null() && gpu.value("residency", "") == "resident";
    }));
    const std::size_t to = gpu_of("train")["uuid"] == uuid_of(0) ? 1 : 0;
    Child command = start({built("switchyard"), "migrate", "train", "--to", std::to_string(to)});
    EXPECT_TRUE(eventually([&] { return is_on_its_way(to); })) << command.finish(kLimit).err;
    std::this_thread::sleep_for(std::chrono::milliseconds(6 * round));
    kill_and_wait(owner->pid());
    command.finish(kLimit);
    owner.reset();
    EXPECT_TRUE(goes_on()) << "without a monitor it is back, here or there";
    owner.emplace(monitor({}, kTwoGpus));
    EXPECT_TRUE(eventually([&] { return !job_named("train").is_null(); }));
    EXPECT_TRUE(eventually([&] { return is_on_now(0) || is_on_now(1); })) << job_named("train");
    EXPECT_TRUE(goes_on());
    kill_and_wait(owner->pid());
  }
  expect_right_in_the_end();
}

}  // namespace
}  // namespace switchyard::system_tests
