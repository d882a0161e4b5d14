// Metrics as text: names, labels, escaping, the limit of series, and the page for people.
#include "monitor/export/prometheus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace switchyard::monitor::metrics {
namespace {

// One job on one GPU with every value that there is, and one that has ended.
Snapshot full() {
  Snapshot out{.version = "1.2.3", .driver_version = "580.1", .hostname = "node7"};
  out.host_pool_bytes = 1000;
  out.host_pool_used_bytes = 10;
  out.living_jobs = 1;
  out.gpus.push_back({.index = 3,
                      .uuid = "GPU-aa",
                      .pci_bus_id = "00000000:3B:00.0",
                      .model = "NVIDIA H200",
                      .busy_seconds = 7.5,
                      .memory_total_bytes = 1ull << 50,
                      .memory_used_bytes = 5,
                      .unmanaged_memory_bytes = 4,
                      .unmanaged_processes = 2,
                      .backend = "gate"});
  out.users.push_back({.name = "ann", .gpu = 0, .gpu_seconds = 7.5});
  out.unmanaged.push_back({.name = "bob", .gpu = 0, .gpu_seconds = 3.5, .bytes = 17});
  Job job{.name = "serve", .user = "ann", .priority = "high", .high = true};
  job.place = {.container = "c1", .pod = "p2", .unit = "train.service", .slurm_job = "42"};
  job.pod = {"pod-0", "team", "main"};
  job.limit = 0.25;
  job.stalled_ranks = 1;
  OnGpu on{.gpu = 0, .state = static_cast<std::size_t>(status::State::kRunning)};
  on.sums.gpu_seconds = 1.25;
  on.sums.slices_seconds = 0.5;
  on.sums.counters.refusals = {1, 2, 3, 4};
  on.sums.counters.swapped_out_bytes = (1ull << 60) + 1;
  on.sums.counters.waits.add(100);
  on.sums.counters.waits.add(101);
  on.sums.counters.waits.add(65'535);
  on.used_bytes = 11;
  on.quota_bytes = 12;
  on.swapped_bytes = 1;
  on.share = 0.75;
  job.gpus.push_back(on);
  out.jobs.push_back(job);
  job.name = "gone";
  job.ended = true;
  job.gpus[0].state = kEnded;
  out.jobs.push_back(job);
  return out;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// The samples that begin with `name` and have all of these in them.
std::vector<std::string> samples(const std::string& page, const std::string& name,
                                 const std::vector<std::string>& parts = {}) {
  std::vector<std::string> out;
  for (const std::string& line : lines_of(page)) {
    bool fits = line.rfind(name + "{", 0) == 0;
    for (const std::string& part : parts) fits = fits && line.find(part) != std::string::npos;
    if (fits) out.push_back(line);
  }
  return out;
}

std::string value(const std::string& page, const std::string& name,
                  const std::vector<std::string>& parts = {}) {
  const auto found = samples(page, name, parts);
  if (found.size() != 1) return std::to_string(found.size()) + " samples";
  return found[0].substr(found[0].rfind(' ') + 1);
}

TEST(Prometheus, AJobHasTheLabelsOfItsGpuAndItsOwn) {
  const std::string page = render(full());
  EXPECT_EQ(samples(page, "switchyard_gpu_seconds_total", {"serve"}),
            std::vector<std::string>{
                R"(switchyard_gpu_seconds_total{gpu="3",UUID="GPU-aa",)"
                R"(pci_bus_id="00000000:3B:00.0",device="nvidia3",modelName="NVIDIA H200",)"
                R"(hostname="node7",job_name="serve",user="ann",priority="high",)"
                R"(slurmjobid="42",container_id="c1",pod_uid="p2",unit="train.service",)"
                R"(pod="pod-0",namespace="team",container="main"} 1.25)"});
  EXPECT_EQ(value(page, "switchyard_user_gpu_seconds_total", {R"(user="ann")", R"(gpu="3")"}),
            "7.5");
  EXPECT_EQ(value(page, "switchyard_gpu_memory_total_bytes"), std::to_string(1ull << 50));
  EXPECT_EQ(value(page, "switchyard_swap_bytes_total", {"serve", R"(direction="out")"}),
            std::to_string((1ull << 60) + 1))
      << "bytes are exact";
  EXPECT_EQ(value(page, "switchyard_wait_seconds_total", {"serve", R"(reason="slices")"}), "0.5");
  EXPECT_EQ(value(page, "switchyard_refusals_total", {"serve", R"(reason="wait")"}), "3");
}

TEST(Prometheus, UnmanagedProcessesAreToldApartFromJobs) {
  const std::string page = render(full());
  EXPECT_EQ(samples(page, "switchyard_user_unmanaged_memory_bytes", {R"(user="bob"} 17)"}).size(),
            1u);
  EXPECT_EQ(
      samples(page, "switchyard_user_unmanaged_gpu_seconds_total", {R"(user="bob"} 3.5)"}).size(),
      1u);
  EXPECT_TRUE(samples(page, "switchyard_user_gpu_seconds_total", {"bob"}).empty());
}

TEST(Prometheus, OneStateOfAJobIsOneAndEachOtherIsZero) {
  const std::string page = render(full());
  EXPECT_EQ(samples(page, "switchyard_job_state", {"serve"}).size(), kStates);
  EXPECT_EQ(value(page, "switchyard_job_state", {"serve", R"(state="running")"}), "1");
  EXPECT_EQ(value(page, "switchyard_job_state", {"serve", R"(state="ended")"}), "0");
  EXPECT_EQ(value(page, "switchyard_job_state", {"gone", R"(state="ended")"}), "1");
  EXPECT_EQ(value(page, "switchyard_gpu_backend", {R"(backend="gate")"}), "1");
  EXPECT_EQ(value(page, "switchyard_gpu_backend", {R"(backend="slice")"}), "0");
}

TEST(Prometheus, AJobThatHasEndedKeepsItsCountersAndHasNoGauges) {
  const std::string page = render(full());
  std::set<std::string> of_the_living, of_the_ended;
  for (const std::string& line : lines_of(page)) {
    const std::string name = line.substr(0, line.find('{'));
    if (line.find(R"(job_name="serve")") != std::string::npos) of_the_living.insert(name);
    if (line.find(R"(job_name="gone")") != std::string::npos) of_the_ended.insert(name);
  }
  for (const char* gauge :
       {"switchyard_memory_used_bytes", "switchyard_memory_quota_bytes", "switchyard_share_ratio",
        "switchyard_memory_swapped_bytes", "switchyard_limit_ratio", "switchyard_stalled_ranks"}) {
    EXPECT_EQ(of_the_living.erase(gauge), 1u) << gauge;
  }
  EXPECT_EQ(of_the_ended, of_the_living);
}

TEST(Prometheus, WhatIsNotKnownHasNoSeries) {
  Snapshot snapshot = full();
  snapshot.gpus[0].memory_used_bytes.reset();
  snapshot.jobs[0].limit.reset();
  snapshot.jobs[0].gpus[0].quota_bytes.reset();
  snapshot.jobs[0].gpus[0].share.reset();
  const std::string page = render(snapshot);
  for (const char* name : {"switchyard_gpu_memory_used_bytes", "switchyard_limit_ratio",
                           "switchyard_memory_quota_bytes", "switchyard_share_ratio"}) {
    EXPECT_TRUE(samples(page, name).empty()) << name;
  }
}

TEST(Prometheus, BucketsOfWaitsAddUp) {
  const std::string page = render(full());
  const std::string bucket = "switchyard_burst_wait_seconds_bucket";
  EXPECT_EQ(value(page, bucket, {"serve", R"(le="0.0001")"}), "1") << "a bound is in its bucket";
  EXPECT_EQ(value(page, bucket, {"serve", R"(le="0.0002")"}), "2");
  EXPECT_EQ(value(page, bucket, {"serve", R"(le="0.05")"}), "2");
  EXPECT_EQ(value(page, bucket, {"serve", R"(le="+Inf")"}), "3");
  EXPECT_EQ(value(page, "switchyard_burst_wait_seconds_count", {"serve"}), "3");
  EXPECT_EQ(value(page, "switchyard_burst_wait_seconds_sum", {"serve"}), "0.065736");
}

TEST(Prometheus, ALabelIsEscapedAndAlwaysUtf8) {
  EXPECT_EQ(label_text("a\\b\"c\nd"), R"(a\\b\"c\nd)");
  EXPECT_EQ(label_text("Zo\xc3\xab \xe6\xbc\xa2 \xf0\x9f\x98\x80"),
            "Zo\xc3\xab \xe6\xbc\xa2 \xf0\x9f\x98\x80");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(label_text("a\xff"
                       "b"),
            "a" + bad + "b");
  EXPECT_EQ(label_text("\xc3"), bad) << "cut off";
  EXPECT_EQ(label_text("\xc0\xaf"), bad + bad) << "written too long";
  EXPECT_EQ(label_text("\xed\xa0\x80"), bad + bad + bad) << "half of a pair";
  EXPECT_EQ(label_text("\xf4\x90\x80\x80"), bad + bad + bad + bad) << "beyond the last";
  Snapshot snapshot = full();
  snapshot.jobs[0].name = "a\"} 1\nswitchyard_jobs 7";
  EXPECT_EQ(samples(render(snapshot), "switchyard_gpu_seconds_total").size(), 2u);
  for (const std::string& line : lines_of(render(snapshot))) {
    EXPECT_NE(line.rfind("switchyard_jobs 7", 0), 0u) << "a name has made a sample";
  }
}

std::size_t series_of(const std::string& page) {
  std::size_t count = 0;
  for (const std::string& line : lines_of(page)) count += line[0] != '#' ? 1 : 0;
  return count;
}

TEST(Prometheus, AWaitOfABoundIsInItsBucket) {
  BurstWaits waits;
  for (const std::uint32_t most : BurstWaits::kMostUs) waits.add(most);
  for (std::size_t i = 0; i < BurstWaits::kMostUs.size(); ++i) EXPECT_EQ(waits.counts[i], 1u) << i;
}

TEST(Prometheus, APageHasAtMostSoManySeriesAndSaysHowManyItLacks) {
  Snapshot snapshot = full();
  for (int i = 0; i < 100; ++i) {
    snapshot.jobs.insert(snapshot.jobs.begin() + 1, snapshot.jobs[0]);
    snapshot.jobs[1].name = "job" + std::to_string(i);
  }
  EXPECT_EQ(value(render(snapshot), "switchyard_series_dropped"), "0");
  for (const std::size_t most : {0u, 100u, 1000u, 2000u}) {
    const std::string page = render(snapshot, most);
    EXPECT_LE(series_of(page), std::max<std::size_t>(most, 20)) << most;
    EXPECT_NE(value(page, "switchyard_series_dropped"), "0") << most;
    EXPECT_TRUE(samples(page, "switchyard_gpu_seconds_total", {"gone"}).empty())
        << "those that have ended go first";
    // A job comes whole or not at all.
    EXPECT_EQ(samples(page, "switchyard_gpu_seconds_total").size() * kStates,
              samples(page, "switchyard_job_state").size());
  }
  EXPECT_EQ(value(render(snapshot, 100), "switchyard_user_gpu_seconds_total"), "7.5");
  snapshot.jobs.clear();  // of which the most that they can have counts
  const std::size_t all = series_of(render(snapshot));
  EXPECT_EQ(value(render(snapshot, all), "switchyard_series_dropped"), "0") << "it is just full";
  EXPECT_NE(value(render(snapshot, all - 1), "switchyard_series_dropped"), "0");
}

// HELP and TYPE of each family, then its samples, and each sample once.
TEST(Prometheus, EachFamilyIsOneBlock) {
  std::vector<std::string> families;
  std::set<std::string> seen;
  for (const std::string& line : lines_of(render(full()))) {
    if (line.rfind("# HELP ", 0) == 0) families.push_back(line.substr(7, line.find(' ', 7) - 7));
    if (line.rfind("# TYPE ", 0) == 0) {
      EXPECT_EQ(line.rfind("# TYPE " + families.back() + " ", 0), 0u) << line;
    }
    if (line[0] == '#') continue;
    EXPECT_EQ(line.rfind(families.back(), 0), 0u) << line;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << "twice: " << line;
  }
  std::vector<std::string> named;
  for (const Family& each : kFamilies) named.emplace_back(each.name);
  EXPECT_EQ(families, named);
}

// --- what kFamilies says of a family, against its samples and the page for people ---

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> out;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) out.insert(word);
  return out;
}

const char* labels_of(Of of) {
  switch (of) {
    case Of::kMonitor:
      return "hostname";
    case Of::kGpu:
      return "gpu,UUID,pci_bus_id,device,modelName,hostname";
    case Of::kUser:
      return "gpu,UUID,pci_bus_id,device,modelName,hostname,user";
    case Of::kJob:
      return "gpu,UUID,pci_bus_id,device,modelName,hostname,job_name,user,priority,slurmjobid,"
             "container_id,pod_uid,unit,pod,namespace,container";
  }
  return "";
}

TEST(Prometheus, EverySampleHasTheLabelsThatItsFamilySays) {
  const std::string page = render(full());
  static const std::regex label(R"(([A-Za-z_]+)="(?:[^"\\]|\\.)*")");
  for (const Family& family : kFamilies) {
    const bool histogram = family.type == std::string("histogram");
    const auto found = samples(page, family.name + std::string(histogram ? "_bucket" : ""));
    EXPECT_FALSE(found.empty()) << family.name;
    const std::string own = family.labels[0] != '\0' ? std::string(",") + family.labels : "";
    for (const std::string& line : found) {
      std::set<std::string> has;
      for (std::sregex_iterator it(line.begin(), line.end(), label), end; it != end; ++it) {
        has.insert((*it)[1]);
      }
      EXPECT_EQ(has, words_of(labels_of(family.of) + own)) << line;
    }
    EXPECT_EQ(std::string(family.name).ends_with("_total"), family.type == std::string("counter"));
  }
}

TEST(Prometheus, ThePageForPeopleHasEveryFamilyAsItIs) {
  static const char* const kOf[] = {"monitor", "GPU", "user", "job"};
  std::string expected;
  for (const Family& each : kFamilies) {
    expected += std::string("| `") + each.name + "` | " + each.type + " | " +
                kOf[static_cast<std::size_t>(each.of)] + " | " +
                (each.labels[0] != '\0' ? std::string("`") + each.labels + "`" : "") + " | " +
                each.help + " |\n";
  }
  std::ifstream file(SWITCHYARD_METRICS_PAGE);
  std::string found;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("| `switchyard_", 0) == 0) found += line + "\n";
  }
  EXPECT_EQ(found, expected) << "docs/guide/metrics.md: put the expected rows there";
}

}  // namespace
}  // namespace switchyard::monitor::metrics
