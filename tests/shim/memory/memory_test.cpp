// The shim's accounts end to end: every kind of memory against a quota, on the simulated GPU, with
// the real monitor.
#include <signal.h>

#include <fstream>
#include <sstream>

#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

constexpr long kMiB = 1 << 20;

// The numbers of the line that starts with `key`.
std::vector<long> numbers(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::vector<long> out;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first != key) continue;
    for (long value = 0; words >> value;) out.push_back(value);
  }
  return out;
}

class ShimMemory : public Scene {
 protected:
  Child start_job(const Words& options, Words words) {
    words.insert(words.begin(), built("tests/jobs/shim_memory_job"));
    Words all{"--require"};
    all.insert(all.end(), options.begin(), options.end());
    return job(all, words);
  }
  // What a job said until it waits, and the job itself.
  static std::string said(Child& child) {
    std::string text;
    for (std::string line; child.read_line(line, kLimit) && line != "waiting";) text += line + "\n";
    return text;
  }
  std::string run_job(const Words& options, const Words& words) {
    Child child = start_job(options, words);
    const std::string text = said(child);
    const auto end = child.finish(kLimit);
    EXPECT_EQ(end.status, 0) << text << end.err;
    return text;
  }
  // One kind is taken and given back until the quota of 512 MiB refuses it, twice.
  void fill_to_the_quota(const std::string& kind, const Words& options = {}) {
    Words all{"--memory", "512MiB"};
    all.insert(all.end(), options.begin(), options.end());
    const std::string text = run_job(all, {"full", kind, "16"});
    const auto taken = numbers(text, "taken");
    const auto left = numbers(text, "left");
    ASSERT_EQ(taken.size(), 2u) << text;
    ASSERT_EQ(left.size(), 2u) << text;
    EXPECT_EQ(numbers(text, "result"), std::vector<long>{2}) << "CUDA_ERROR_OUT_OF_MEMORY";
    EXPECT_LT(taken[0], 512) << "the context is in the quota too";
    // Whole slabs of pools, texture rows and mip levels: coarse, but most of the quota is usable.
    EXPECT_GE(taken[0], 320);
    EXPECT_EQ(taken[0], taken[1]) << "what was freed can be had again";
    EXPECT_EQ(left[0], left[1]);
  }
  // All kinds at random; nothing is left in the end.
  void allocate_a_thousand(const std::string& seed, const Words& options = {}) {
    auto daemon = monitor();
    Words all{"--memory", "2GiB", "--name", "random"};
    all.insert(all.end(), options.begin(), options.end());
    Child child = start_job(all, {"random", seed, "1000"});
    const std::string text = said(child);
    ASSERT_EQ(numbers(text, "left").size(), 2u) << text;
    EXPECT_EQ(numbers(text, "left")[0], numbers(text, "left")[1]);
    EXPECT_TRUE(eventually([this] { return counted("random") == 0; })) << job_named("random");
    EXPECT_EQ(child.finish(kLimit).status, 0);
  }
  // Used by the job's allocations: without contexts and other overhead.
  long counted(const std::string& name) {
    const json gpu = gpu_of(name);
    if (!gpu.is_object()) return -1;
    return gpu["memory_used_bytes"].get<long>() - gpu["memory_overhead_bytes"].get<long>();
  }
};

class EveryKind : public ShimMemory, public ::testing::WithParamInterface<const char*> {};

TEST_P(EveryKind, IsRefusedAtTheQuotaAndGivenBackWhole) { fill_to_the_quota(GetParam()); }

INSTANTIATE_TEST_SUITE_P(ShimMemory, EveryKind,
                         ::testing::Values("linear", "pitch", "managed", "async", "pool", "mapped",
                                           "array", "volume", "mipmap", "graph", "managed_pool",
                                           "heap"),
                         [](const auto& info) { return std::string(info.param); });

// The job's memory by NVML, contexts included, never goes beyond the quota.
TEST_F(ShimMemory, AKernelsLocalMemoryIsRefusedBeforeTheDriverTakesIt) {
  auto daemon = monitor();
  Child child =
      start_job({"--memory", "512MiB", "--name", "local"}, {"local", "4096", "1500", "64"});
  const std::string text = said(child);
  EXPECT_EQ(numbers(text, "launch"), (std::vector<long>{2, 0, 0}))
      << "792 MiB are too much, 123 MiB are not: " << text;
  json gpu;
  EXPECT_TRUE(eventually([&] {
    gpu = gpu_of("local");
    return gpu.is_object() && gpu["memory_used_bytes"].get<long>() >= 123 * kMiB;
  })) << gpu;
  EXPECT_LE(gpu["memory_used_bytes"].get<long>(), 512 * kMiB) << gpu;
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, AContextBeyondTheQuotaIsRefused) {
  auto daemon = monitor();
  Child child = start_job({"--memory", "64MiB", "--name", "many"}, {"many"});
  const std::string text = said(child);
  const auto made = numbers(text, "made");
  ASSERT_EQ(made.size(), 2u) << text;
  EXPECT_EQ(made[1], 2) << "CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_LE(made[0], 7) << "of 8 MiB each, beside the primary one";
  EXPECT_GE(made[0], 5);
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, ThreadsThatEndTheirContextsLeaveNothingCharged) {
  auto daemon = monitor();
  Child child = start_job({"--memory", "3GiB", "--name", "churn"}, {"churn", "6", "40"});
  const auto left = numbers(said(child), "left");
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0], left[1]);
  EXPECT_TRUE(eventually([this] { return counted("churn") == 0; })) << job_named("churn");
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

class EverySwappableKind : public ShimMemory, public ::testing::WithParamInterface<const char*> {};

TEST_P(EverySwappableKind, IsRefusedAtTheQuotaAndGivenBackWhole) {
  fill_to_the_quota(GetParam(), {"--swappable"});
}

INSTANTIATE_TEST_SUITE_P(ShimMemory, EverySwappableKind,
                         ::testing::Values("linear", "async", "pool", "mapped"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(ShimMemory, AThousandSwappableAllocationsOfAllKindsEndAtZero) {
  allocate_a_thousand("11", {"--swappable"});
}

TEST_F(ShimMemory, AThousandRandomAllocationsOfAllKindsEndAtZero) { allocate_a_thousand("7"); }

TEST_F(ShimMemory, EveryKindIsListedAsWhatCanLeaveOrByWhyItStays) {
  auto daemon = monitor();
  Child child = start_job({"--swappable", "--name", "each"}, {"each", "4"});
  ASSERT_EQ(said(child), "");
  json gpu;
  // Until the account has seen it all: linear and pitch can leave, in stream order or not.
  EXPECT_TRUE(eventually([&] {
    gpu = gpu_of("each");
    return gpu.is_object() && gpu["memory_swappable_bytes"] == 16 * kMiB &&
           gpu["memory_stays_bytes"].value("not_mapped", 0l) == 4 * kMiB;
  })) << gpu;
  const json stays = gpu["memory_stays_bytes"];
  EXPECT_EQ(stays.value("small_allocations", 0l), kMiB);
  EXPECT_EQ(stays.value("managed", 0l), 4 * kMiB);
  EXPECT_EQ(stays.value("ipc_exported", 0l), 4 * kMiB);
  EXPECT_EQ(stays.value("ipc_imported", 0l), 4 * kMiB);
  EXPECT_EQ(stays.value("not_mapped", 0l), 4 * kMiB) << "nobody was given access";
  EXPECT_GE(stays.value("memory_pools", 0l), kMiB);
  for (const char* key : {"arrays", "graph_memory"}) {
    EXPECT_GE(stays.value(key, 0l), 4 * kMiB) << key;
  }
  EXPECT_FALSE(stays.contains("other")) << stays;
  long sum = gpu["memory_swappable_bytes"].get<long>() - 4 * kMiB;  // what is imported is another's
  for (const auto& bytes : stays) sum += bytes.get<long>();
  EXPECT_EQ(sum, counted("each"));
  const std::string table = cli({"ps", "--memory"}).out;
  EXPECT_NE(table.find("1 MiB allocations below 2 MiB"), std::string::npos) << table;
  EXPECT_NE(table.find("4 MiB IPC-exported"), std::string::npos) << table;
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, OfAJobThatIsNotSwappableAllStaysForThatReason) {
  auto daemon = monitor();
  Child child = start_job({"--name", "plain"}, {"hold", "64"});
  said(child);
  EXPECT_TRUE(eventually([&] {
    const json gpu = gpu_of("plain");
    return gpu.is_object() && gpu["memory_stays_bytes"] == json{{"not_swappable", 64 * kMiB}};
  })) << gpu_of("plain");
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, AllWhoAreAskedShowTheQuota) {
  const std::string text = run_job({"--memory", "1GiB"}, {"info"});
  const auto info = numbers(text, "info");
  const auto nvml = numbers(text, "nvml");
  const auto nvml2 = numbers(text, "nvml2");
  ASSERT_EQ(info.size(), 2u) << text;
  ASSERT_EQ(nvml.size(), 3u) << text;
  ASSERT_EQ(nvml2.size(), 4u) << text;
  const long total = 1024 * kMiB;
  EXPECT_EQ(info[1], total);
  EXPECT_EQ(numbers(text, "total"), std::vector<long>{total});
  EXPECT_EQ(nvml, (std::vector<long>{info[0], total, total - info[0]}));
  EXPECT_EQ(nvml2, (std::vector<long>{info[0], total, total - info[0], 0}));
  EXPECT_LT(info[0], total);
}

// The driver's own totals would tempt a job to take more than its quota.
TEST_F(ShimMemory, AllWhoAreAskedShowTheQuotaWhileTheMonitorIsAway) {
  const std::string log = in_folder("log");
  Child owner = monitor();
  Child child =
      job({"--require", "--memory", "1GiB"}, {built("tests/jobs/shim_memory_job"), "infos"},
          {{"SWITCHYARD_LOG", "warn:" + log}});
  const std::string before = said(child);
  ASSERT_EQ(numbers(before, "nvml").size(), 3u) << before;
  ::kill(owner.pid(), SIGKILL);
  ASSERT_TRUE(eventually([&] {
    std::ifstream file(log);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.find("lost the monitor") != std::string::npos;
  }));
  ASSERT_TRUE(child.write_line(""));
  const std::string away = said(child);
  for (const char* key : {"info", "total", "nvml", "nvml2"}) {
    EXPECT_EQ(numbers(away, key), numbers(before, key)) << key << "\n" << away;
  }
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, AProcessThatOnlyUsesNvmlSeesTheQuotaWhileTheMonitorIsAway) {
  Child owner = monitor();
  Child child =
      job({"--require", "--memory", "1GiB"}, {built("tests/jobs/shim_memory_job"), "nvmls"});
  const auto before = numbers(said(child), "nvml");
  ASSERT_EQ(before.size(), 3u);
  EXPECT_EQ(before[1], 1024 * kMiB);
  ::kill(owner.pid(), SIGKILL);
  // The first question finds out that the monitor is gone.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(child.write_line(""));
    EXPECT_EQ(numbers(said(child), "nvml"), before);
  }
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, NvmlShowsTheQuotaOfTheGpuToWhichTheJobHasMoved) {
  const Changes two = {{"FAKECUDA_DEVICES", "2"}};
  const Child owner = monitor({}, two);
  Child child = job({"--name", "x", "--swappable", "--memory", "1GiB", "--gpus", "1"},
                    {built("tests/jobs/shim_memory_job"), "infos"}, two);
  const std::string before = said(child);
  EXPECT_EQ(numbers(before, "nvml")[1], 4096 * kMiB) << "the first GPU is not its own";
  const Child::End moved = cli({"migrate", "x", "--to", "0"}, two);
  ASSERT_EQ(moved.status, 0) << moved.err;
  ASSERT_TRUE(child.write_line(""));
  const std::string after = said(child);
  EXPECT_EQ(numbers(after, "nvml")[1], 1024 * kMiB) << after;
  EXPECT_EQ(numbers(after, "total"), numbers(before, "total"));
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, WithoutAQuotaNvmlSaysWhatTheDriverSays) {
  const std::string shared = run_job({}, {"info"});
  EXPECT_EQ(numbers(shared, "nvml")[1], 4096 * kMiB) << shared;
  EXPECT_EQ(numbers(shared, "total")[0], 4096 * kMiB);
}

TEST_F(ShimMemory, AProcessThatOnlyUsesNvmlSeesWhatItsJobHasLeft) {
  const std::string program = built("tests/jobs/shim_memory_job");
  // The first of a pipe reads what the shell reads: it holds its memory until we close that.
  Child child = job(
      {"--require", "--memory", "1GiB"},
      {"sh", "-c", program + " hold 256 | (read a; read b; " + program + " nvml; echo waiting)"});
  const std::string text = said(child);
  const auto nvml = numbers(text, "nvml");
  EXPECT_EQ(child.finish(kLimit).status, 0);
  ASSERT_EQ(nvml.size(), 3u) << text;
  EXPECT_EQ(nvml[1], 1024 * kMiB);
  EXPECT_LE(nvml[0], 768 * kMiB);
  EXPECT_GE(nvml[0], 700 * kMiB);
}

TEST_F(ShimMemory, EndsWithItsContext) {
  const auto left = numbers(run_job({"--memory", "1GiB"}, {"contexts"}), "left");
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left[0], left[1]) << "cuCtxDestroy";
  EXPECT_EQ(left[0], left[2]) << "cuDevicePrimaryCtxReset";
}

TEST_F(ShimMemory, ExportedAndImportedIsChargedOnce) {
  const auto left = numbers(run_job({"--memory", "1GiB"}, {"shared"}), "left");
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0], left[1]);
}

TEST_F(ShimMemory, OpenedFromAnotherProcessIsChargedThere) {
  auto daemon = monitor();
  const std::string file = in_folder("handle");
  Child lender = start_job({"--memory", "1GiB"}, {"lent", file});
  said(lender);
  const auto left = numbers(run_job({"--memory", "1GiB"}, {"opened", file}), "left");
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0], left[1]);
}

TEST_F(ShimMemory, AForkedChildSeesTheQuotaAndHarmsNothing) {
  const std::string text = run_job({"--memory", "1GiB"}, {"fork"});
  EXPECT_EQ(numbers(text, "child"), std::vector<long>{0}) << text;
  ASSERT_EQ(numbers(text, "nvml").size(), 3u) << text;
  EXPECT_EQ(numbers(text, "nvml")[1], 1024 * kMiB);
  EXPECT_LE(numbers(text, "nvml")[0], 960 * kMiB);
}

TEST_F(ShimMemory, TwoGreedyProcessesOfAJobNeverExceedItsQuota) {
  auto daemon = monitor();
  const std::string program = built("tests/jobs/shim_memory_job");
  // Both have their contexts before one takes all: a context is charged, too.
  Child both =
      job({"--require", "--memory", "256MiB", "--name", "both"},
          {"sh", "-c",
           "exec 3<&0; " + program + " greedy 1 4000 <&3 & " + program + " greedy 2 4000; wait"});
  int ready = 0;
  ASSERT_TRUE(eventually([&] {
    std::string line;
    ready += both.read_line(line, std::chrono::milliseconds(20)) && line == "ready" ? 1 : 0;
    return ready == 2;
  }));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(both.write_line(""));
  long most = 0;  // as the account has it
  long real = 0;  // as the GPU has it
  int waiting = 0;
  std::string text;
  EXPECT_TRUE(eventually([&] {
    const json gpu = gpu_of("both");
    if (gpu.is_object()) most = std::max(most, gpu["memory_used_bytes"].get<long>());
    const json status = listing("status");
    if (status.is_object()) {
      real = std::max(real, status["gpus"][0]["memory_used_bytes"].get<long>());
    }
    for (std::string line; waiting < 2 && both.read_line(line, std::chrono::milliseconds(20));) {
      text += line + "\n";
      waiting += line == "waiting" ? 1 : 0;
    }
    return waiting == 2;
  })) << text;
  // A pool that must grow takes a whole slab, and gives it back when it is refused. For that moment
  // each process may be above, and the monitor may look just then.
  constexpr long kSlab = 32 * kMiB;
  EXPECT_LE(most, 256 * kMiB + 2 * kSlab);
  EXPECT_LE(real, 256 * kMiB + 2 * kSlab);
  EXPECT_TRUE(eventually([&] {
    return gpu_of("both")["memory_used_bytes"] <= 256 * kMiB &&
           listing("status")["gpus"][0]["memory_used_bytes"] <= 256 * kMiB;
  }));
  EXPECT_EQ(numbers(text, "refused").size(), 2u) << text;
  EXPECT_TRUE(eventually([this] { return counted("both") == 0; })) << job_named("both");
  EXPECT_EQ(both.finish(kLimit).status, 0);
}

TEST_F(ShimMemory, WhatAKilledProcessHeldComesBack) {
  auto daemon = monitor();
  Child holder = start_job({"--memory", "3GiB", "--name", "holder"}, {"hold", "2048"});
  EXPECT_EQ(said(holder), "holds 0\n");
  EXPECT_TRUE(eventually([this] { return counted("holder") == 2048 * kMiB; }));
  ::kill(holder.pid(), SIGKILL);
  EXPECT_TRUE(eventually([this] { return job_named("holder").is_null(); }));
  EXPECT_EQ(run_job({"--memory", "3GiB"}, {"hold", "2048"}), "holds 0\n");
}

}  // namespace
}  // namespace switchyard::system_tests
