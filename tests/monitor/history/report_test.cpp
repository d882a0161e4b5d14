// Reports of the history: their sums, their readers, their parts and their cost.
#include "monitor/history/report.h"

#include <stdlib.h>
#include <time.h>

#include "monitor/core/events.h"
#include "tests/monitor/history/history_scene.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::history {
namespace {

class HistoryReport : public HistoryScene {};

TEST_F(HistoryReport, DifferencesAddUpInHoursAndTheHoursInAJob) {
  ASSERT_TRUE(write_one(1, job("a"), kNow / kHourSeconds, 3)) << why;
  ASSERT_TRUE(write_one(1, job("a"), kNow / kHourSeconds, 4)) << why;
  ASSERT_TRUE(write_one(1, job("a"), kNow / kHourSeconds + 30, 5, 1)) << why;
  const json all = rows(By::kJob);
  ASSERT_EQ(all.size(), 1u);
  const json& row = all[0];
  EXPECT_EQ(row["gpu_seconds"], 12);
  EXPECT_EQ(row["gpu_seconds_estimated"], 3);
  EXPECT_EQ(row["lived_seconds"], 30);
  EXPECT_EQ(row["memory_peak_bytes"], 35);
  EXPECT_EQ(row["memory_mean_bytes"], 100);
  EXPECT_EQ(row["launches"], 15);
  EXPECT_EQ(row["gpus"], (json{"GPU-a", "GPU-b"}));
  EXPECT_TRUE(row["ended_unix_seconds"].is_null());
  EXPECT_EQ(row["times"], (json{{{"state", "running"}, {"reason", nullptr}, {"seconds", 24}},
                                {{"state", "waiting"}, {"reason", "turn"}, {"seconds", 6}}}));
  since = kNow / kHourSeconds + 30;
  EXPECT_EQ(rows(By::kJob)[0]["gpu_seconds"], 5);
  until = since;
  EXPECT_EQ(rows(By::kUser).size(), 0u);
}

TEST_F(HistoryReport, AJobThatLivesForDaysHasARowOnEach) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  for (int day = 0; day < 3; ++day) ASSERT_TRUE(write_one(1, job("a"), 490'008 + 24 * day, 3));
  ASSERT_TRUE(write_one(2, job("b"), 490'008, 1));
  Rows observed;
  observed.observed[{490'008, 0}] = 3000;
  observed.observed[{490'032, 0}] = 3000;
  ASSERT_TRUE(write(observed));
  const json all = rows(By::kDay);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["day"], "2025-11-25");
  EXPECT_EQ(all[0]["jobs"], 2);
  EXPECT_EQ(all[0]["gpu_seconds"], 4);
  EXPECT_EQ(all[0]["idle_seconds"], 2996);
  EXPECT_EQ(all[1]["gpu_seconds"], 3);
  EXPECT_TRUE(all[2]["idle_seconds"].is_null());
}

TEST_F(HistoryReport, AGpuThatNoJobHadIsIdle) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 30));
  Rows observed;
  observed.observed[{490'000, 0}] = 100;
  observed.observed[{490'000, 1}] = 100;
  ASSERT_TRUE(write(observed));
  const json all = rows(By::kGpu);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["uuid"], "GPU-a");
  EXPECT_EQ(all[0]["idle_seconds"], 70);
  EXPECT_EQ(all[0]["memory_idle_byte_seconds"], 100);
  EXPECT_EQ(all[1]["idle_seconds"], 100);
  EXPECT_EQ(all[1]["jobs"], 0);
}

TEST_F(HistoryReport, WhoHadAGpuIsAskedByItsIndexOrItsUuid) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 4, 1));
  ASSERT_TRUE(write_one(2, job("b"), 490'000, 5, 1));
  Rows observed;
  observed.observed[{490'000, 0}] = observed.observed[{490'000, 1}] = 100;
  ASSERT_TRUE(write(observed));
  Query query{.by = By::kJob, .until_hour = until, .sees_all = true};
  const auto asked = [&](By by, const std::vector<std::string>& gpus) {
    query.by = by;
    query.gpus = gpus;
    return json::parse(database->report(query))["rows"];
  };
  json all = asked(By::kJob, {"0"});
  ASSERT_EQ(all.size(), 1u) << all;
  EXPECT_EQ(all[0]["job"], "a");
  EXPECT_EQ(all[0]["gpu_seconds"], 3);
  EXPECT_EQ(all[0]["gpus"], (json::array({"GPU-a"})));
  EXPECT_EQ(all[0]["times"][0]["seconds"], 8);
  all = asked(By::kJob, {"GPU-b"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["gpu_seconds"], 4);
  EXPECT_EQ(all[1]["gpu_seconds"], 5);
  EXPECT_EQ(asked(By::kJob, {"0", "1"})[0]["gpu_seconds"], 7);
  EXPECT_EQ(asked(By::kUser, {"1"})[0]["gpu_seconds"], 9);
  all = asked(By::kGpu, {"1"});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0]["idle_seconds"], 91);
  query.gpus = {"7"};
  const json refused = json::parse(database->report(query));
  EXPECT_EQ(refused["code"], kNoSuchJobOrGpu);
  EXPECT_NE(refused["error"].get<std::string>().find("knows no GPU '7'"), std::string::npos);
}

TEST_F(HistoryReport, JobsAreAskedForByIdWhateverTheRowsAreFor) {
  for (JobKey key = 1; key <= 3; ++key) {
    ASSERT_TRUE(write_one(key, job(std::to_string(key)), 490'000, static_cast<double>(key)));
  }
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1000, 3)));
  Rows observed;
  observed.observed[{490'000, 0}] = 100;
  ASSERT_TRUE(write(observed));
  Query query{.by = By::kJob, .until_hour = until, .sees_all = true};
  query.jobs = R"(["1", "3", "' OR 1"])";
  for (const By by : {By::kJob, By::kUser, By::kGpu, By::kDay}) {
    query.by = by;
    const json answer = json::parse(database->report(query));
    double sum = 0;
    for (const json& row : answer["rows"]) sum += row["gpu_seconds"].get<double>();
    EXPECT_EQ(sum, 4) << answer;
    EXPECT_TRUE(answer["unmanaged"].empty()) << "a process without a job is none of these";
    EXPECT_TRUE(answer["rows"][0].value("idle_seconds", json()).is_null());
  }
  query.jobs = "[]";
  EXPECT_EQ(json::parse(database->report(query))["rows"].size(), 0u);
}

TEST_F(HistoryReport, JobsAreAskedForByUserToo) {
  ASSERT_TRUE(write_one(1, job("1"), 490'000, 1));
  ASSERT_TRUE(write_one(2, job("1", 1001), 490'000, 2));
  ASSERT_TRUE(write_one(3, job("3", 1002), 490'000, 4));
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1000, 3)));
  Query query{.by = By::kJob, .until_hour = until, .sees_all = true};
  const auto sum = [&] {
    double out = 0;
    const json answer = json::parse(database->report(query));
    EXPECT_TRUE(answer["unmanaged"].empty()) << "a process without a job is none of these";
    for (const json& row : answer["rows"]) out += row["gpu_seconds"].get<double>();
    for (const json& row : answer["rows"]) EXPECT_EQ(row["times"].size(), 2u) << row;
    return out;
  };
  for (const By by : {By::kJob, By::kUser, By::kGpu, By::kDay}) {
    query.by = by;
    query.users = R"(["u1000", "1002"])";
    query.jobs.clear();
    EXPECT_EQ(sum(), 5);
    query.jobs = R"(["1"])";
    EXPECT_EQ(sum(), 1) << "another user's job has this id, too";
    query.users = R"(["nobody"])";
    EXPECT_EQ(sum(), 0);
  }
}

TEST_F(HistoryReport, ABriefAnswerHasWhatATableShows) {
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 3));
  Query query{.by = By::kJob, .until_hour = until, .sees_all = true};
  const json whole = json::parse(database->report(query))["rows"][0];
  query.brief = true;
  const json brief = json::parse(database->report(query))["rows"][0];
  for (const auto& [key, value] : brief.items()) EXPECT_EQ(value, whole[key]) << key;
  for (const char* key : {"name", "user", "started_unix_seconds", "lived_seconds", "exit",
                          "gpu_seconds", "gpu_seconds_estimated", "memory_peak_bytes", "times"}) {
    EXPECT_TRUE(brief.contains(key)) << key;
  }
  EXPECT_FALSE(brief.contains("command"));
}

// --- unmanaged processes ---

TEST_F(HistoryReport, UnmanagedProcessesAreToldApartFromJobs) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  ASSERT_TRUE(write_one(1, job("a"), 490'000, 30));
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1000, 3)));
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1000, 4)));
  ASSERT_TRUE(write(unmanaged_rows(490'001, 1000, 5, 1)));
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1001, 1)));
  for (const By by : {By::kUser, By::kJob}) {
    const json all = ask(by)["unmanaged"];
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0], (json{{"uid", 1000},
                            {"user", "u1000"},
                            {"gpu_seconds_estimated", 12.0},
                            {"memory_byte_seconds", 3000.0},
                            {"memory_idle_byte_seconds", 300.0},
                            {"memory_peak_bytes", 35}}));
    EXPECT_EQ(all[1]["uid"], 1001);
  }
  EXPECT_EQ(rows(By::kUser).size(), 1u);
  EXPECT_EQ(rows(By::kUser)[0]["gpu_seconds"], 30);
  EXPECT_EQ(ask(By::kGpu)["unmanaged"][1]["uuid"], "GPU-b");
  EXPECT_EQ(ask(By::kGpu)["unmanaged"][1]["gpu_seconds_estimated"], 5);
  ASSERT_EQ(ask(By::kDay)["unmanaged"].size(), 1u);
  EXPECT_EQ(ask(By::kDay)["unmanaged"][0]["memory_byte_seconds"], 4000);
}

TEST_F(HistoryReport, WhoseAnUnmanagedProcessWasMayBeUnknown) {
  ASSERT_TRUE(write(unmanaged_rows(490'000, HistoryEvent::kNobody, 3)));
  const json row = ask(By::kUser)["unmanaged"][0];
  EXPECT_TRUE(row["uid"].is_null());
  EXPECT_TRUE(row["user"].is_null());
}

TEST_F(HistoryReport, WhereBillsAreOnesOwnSoAreThoseOfUnmanagedProcesses) {
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1000, 3)));
  ASSERT_TRUE(write(unmanaged_rows(490'000, 1001, 4)));
  for (const By by : {By::kUser, By::kGpu}) {
    const json own = ask(by, 1001, false)["unmanaged"];
    ASSERT_EQ(own.size(), 1u);
    EXPECT_EQ(own[0]["gpu_seconds_estimated"], 4);
  }
}

TEST_F(HistoryReport, JobsOfSlurmAreSummedByTheirNumberAndUser) {
  const auto of = [](const std::string& id, const std::string& number, uid_t uid = 1000) {
    JobRow row = job(id, uid);
    row.slurm_job = number;
    return row;
  };
  ASSERT_TRUE(write_one(1, of("a", "42"), kNow / kHourSeconds, 3)) << why;
  // A later row without the number leaves it.
  ASSERT_TRUE(write_one(1, job("a"), kNow / kHourSeconds, 4)) << why;
  ASSERT_TRUE(write_one(2, of("b", "42"), kNow / kHourSeconds, 5)) << why;
  ASSERT_TRUE(write_one(3, of("c", "43"), kNow / kHourSeconds, 6)) << why;
  ASSERT_TRUE(write_one(4, of("d", "42", 1001), kNow / kHourSeconds, 7)) << why;
  ASSERT_TRUE(write_one(5, job("e"), kNow / kHourSeconds, 8)) << why;
  const json listing = ask(By::kSlurmJob);
  EXPECT_EQ(listing["by"], "slurmjob");
  const json& all = listing["rows"];
  ASSERT_EQ(all.size(), 3u) << all;
  EXPECT_EQ(all[0]["slurm_job"], "42");
  EXPECT_EQ(all[0]["user"], "u1000");
  EXPECT_EQ(all[0]["uid"], 1000);
  EXPECT_EQ(all[0]["jobs"], 2);
  EXPECT_EQ(all[0]["gpu_seconds"], 12);
  EXPECT_FALSE(all[0]["times"].empty());
  EXPECT_EQ(all[1]["user"], "u1001") << "a number that another user says is no part of it";
  EXPECT_EQ(all[1]["gpu_seconds"], 7);
  EXPECT_EQ(all[2]["slurm_job"], "43");
  EXPECT_EQ(rows(By::kSlurmJob, 1001, false).size(), 1u);

  Query one{.by = By::kJob, .until_hour = until, .sees_all = true, .slurm_job = "43"};
  const json found = json::parse(database->report(one));
  ASSERT_EQ(found["rows"].size(), 1u);
  EXPECT_EQ(found["rows"][0]["job"], "c");
  EXPECT_EQ(found["rows"][0]["slurm_job"], "43");
  one.slurm_job = "44";
  EXPECT_EQ(json::parse(database->report(one))["rows"].size(), 0u);
  for (const json& row : rows(By::kJob)) EXPECT_EQ(row["slurm_job"].is_null(), row["job"] == "e");
}

TEST_F(HistoryReport, JobsOfSlurmComeInParts) {
  constexpr int kAll = kPart + 2;
  for (int i = 0; i < kAll; ++i) {
    JobRow row = job("a" + std::to_string(i));
    row.slurm_job = std::to_string(1000 + i);
    ASSERT_TRUE(write_one(1 + i, row, kNow / kHourSeconds, 3)) << why;
  }
  Query query{.by = By::kSlurmJob, .until_hour = until, .sees_all = true};
  const json first = json::parse(database->report(query));
  EXPECT_EQ(first["rows"].size(), static_cast<std::size_t>(kPart));
  ASSERT_TRUE(first.contains("more_after"));
  query.after = first["more_after"];
  const json last = json::parse(database->report(query));
  ASSERT_EQ(last["rows"].size(), 2u);
  EXPECT_EQ(last["rows"][1]["slurm_job"], std::to_string(1000 + kAll - 1));
  EXPECT_FALSE(last["rows"][1]["times"].empty());
  EXPECT_FALSE(last.contains("more_after"));
}

TEST_F(HistoryReport, CommandLinesAreForTheirOwnerAndRoot) {
  ASSERT_TRUE(write_one(1, job("a", 1000), 490'000, 3));
  ASSERT_TRUE(write_one(2, job("b", 1001), 490'000, 5));
  EXPECT_EQ(rows(By::kJob)[0]["command"], "python a");
  const json seen = rows(By::kJob, 1001);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_TRUE(seen[0]["command"].is_null());
  EXPECT_EQ(seen[0]["gpu_seconds"], 3);
  EXPECT_EQ(seen[1]["command"], "python b");
}

TEST_F(HistoryReport, WhereBillsAreOnesOwnNothingTellsOfOthers) {
  ASSERT_TRUE(write_one(1, job("a", 1000), 490'000, 3));
  ASSERT_TRUE(write_one(2, job("b", 1001), 490'000, 5));
  Rows observed;
  observed.observed[{490'000, 0}] = 100;
  ASSERT_TRUE(write(observed));
  for (const By by : {By::kJob, By::kUser, By::kGpu, By::kDay}) {
    const json own = rows(by, 1001, false);
    ASSERT_EQ(own.size(), 1u) << own;
    EXPECT_EQ(own[0]["gpu_seconds"], 5);
    EXPECT_TRUE(own[0].value("idle_seconds", json()).is_null());
    EXPECT_EQ(rows(by, 1002, false).size(), 0u);
  }
  EXPECT_EQ(rows(By::kUser, 1000, true).size(), 2u);
}

TEST_F(HistoryReport, AnythingInANameIsOnlyText) {
  ASSERT_TRUE(write_one(1, job("a'); DROP TABLE jobs; --\xff"), 490'000, 3)) << why;
  EXPECT_EQ(rows(By::kJob).size(), 1u);
}

// The cost of a report is counted in steps of SQLite's machine, which are the same everywhere. A
// second has tens of millions of them.
TEST_F(HistoryReport, NinetyDaysOfTenThousandJobsAreReadInFewSteps) {
  if (test_support::seeds_of_longest() == 0) return;  // of which no sanitizer has a say
  constexpr JobKey kJobs = 10'000;
  constexpr int kHours = 6;  // that each lives
  for (JobKey first = 1; first <= kJobs; first += 1000) {
    Rows rows;
    for (JobKey key = first; key < first + 1000; ++key) {
      const std::int64_t from = 490'000 + static_cast<std::int64_t>(key * 2160 / kJobs);
      rows.jobs[key] = job(std::to_string(key), 1000 + key % 20);
      for (int hour = 0; hour < kHours; ++hour) rows.bills[{from + hour, key, 0}] = bill(1);
    }
    ASSERT_TRUE(write(rows, kNow + 2200 * kHourSeconds)) << why;
  }
  const double total = kJobs * kHours;
  for (const By by : {By::kUser, By::kGpu, By::kDay}) {
    const json answer = rows(by);
    double sum = 0;
    for (const json& row : answer) sum += row["gpu_seconds"].get<double>();
    EXPECT_EQ(sum, total);
    EXPECT_LT(database->steps(), 10'000'000) << static_cast<int>(by);
    RecordProperty("steps_" + std::to_string(static_cast<int>(by)),
                   static_cast<int>(database->steps()));
  }
  Query query{.by = By::kJob, .until_hour = until, .sees_all = true};
  std::int64_t steps = 0, found = 0, parts = 0;
  for (;; ++parts) {
    const std::string text = database->report(query);
    EXPECT_LT(text.size(), 900'000u) << "one frame does not take it";
    const json answer = json::parse(text);
    found += static_cast<std::int64_t>(answer["rows"].size());
    steps += database->steps();
    if (!answer.contains("more_after")) break;
    query.after = answer["more_after"];
  }
  EXPECT_EQ(found, static_cast<std::int64_t>(kJobs));
  EXPECT_EQ(parts, 24);
  EXPECT_LT(steps, 15'000'000);
  RecordProperty("steps_of_jobs", static_cast<int>(steps));
}

}  // namespace
}  // namespace switchyard::monitor::history
