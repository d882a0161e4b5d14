// Spans as people write them, and reports as tables and comma-separated values.
#include "tools/report/report.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <sstream>

#include "fake_monitor.h"
#include "switchyard/status.h"
#include "tools/report/span.h"
#include "tools/report/tables.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

constexpr std::int64_t kNow = 1'764'252'000;  // 2025-11-27 14:00 UTC

class ReportSpan : public ::testing::Test {
 protected:
  void SetUp() override { zone("UTC"); }
  void TearDown() override { zone("UTC"); }
  static void zone(const char* name) {
    ::setenv("TZ", name, 1);
    ::tzset();
  }
};

TEST_F(ReportSpan, SpansAreBeforeNow) {
  EXPECT_EQ(parse_point("90m", kNow), kNow - 5400);
  EXPECT_EQ(parse_point("8h", kNow), kNow - 8 * 3600);
  EXPECT_EQ(parse_point("7d", kNow), kNow - 7 * 86400);
  EXPECT_EQ(parse_point("2w", kNow), kNow - 14 * 86400);
}

TEST_F(ReportSpan, DatesAreLocal) {
  EXPECT_EQ(parse_point("2025-11-27", kNow), kNow - 14 * 3600);
  EXPECT_EQ(parse_point("2025-11-27 13:30", kNow), kNow - 1800);
  EXPECT_EQ(parse_point("today", kNow), kNow - 14 * 3600);
  EXPECT_EQ(parse_point("yesterday", kNow), kNow - 38 * 3600);
  EXPECT_EQ(minute_text(kNow), "2025-11-27 14:00");
  zone("XYZ-5:30");
  EXPECT_EQ(parse_point("2025-11-27T19:30", kNow), kNow);
  EXPECT_EQ(minute_text(kNow), "2025-11-27 19:30");
}

TEST_F(ReportSpan, AllElseIsNone) {
  for (const char* text : {"", "h", "-1h", "8", "8 h", "8y", "99999999999999999999h", "monday",
                           "2025-02-30", "2025-11-27 25:00", "2025-11-27x", "27.11.2025"}) {
    EXPECT_FALSE(parse_point(text, kNow)) << text;
  }
}

json row_of(const std::string& name, double gpu_seconds, double estimated) {
  return {{"name", name},
          {"user", "somebody-with-a-long-name"},
          {"uid", 1000},
          {"job", "id"},
          {"command", "python \"x\", y"},
          {"started_unix_seconds", kNow},
          {"ended_unix_seconds", nullptr},
          {"exit", nullptr},
          {"lived_seconds", 7200.0},
          {"jobs", 12},
          {"slurm_job", "123456789"},
          {"day", "2025-11-27"},
          {"index", 7},
          {"uuid", "GPU-1"},
          {"observed_seconds", 360'000.0},
          {"idle_seconds", 90'000.0},
          {"gpu_seconds", gpu_seconds},
          {"gpu_seconds_estimated", estimated},
          {"memory_idle_byte_seconds", 3600.0 * (1u << 30)},
          {"memory_peak_bytes", 1ull << 36},
          {"memory_mean_bytes", 1ull << 30},
          {"launches", 3},
          {"times",
           {{{"state", "running"}, {"reason", nullptr}, {"seconds", 100.0}},
            {{"state", "waiting"}, {"reason", "turn"}, {"seconds", 60.0}},
            {{"state", "swapped"}, {"reason", "yield"}, {"seconds", 60.0}},
            {{"state", "paused"}, {"reason", "pause"}, {"seconds", 360'000.0}},
            {{"state", "idle"}, {"reason", nullptr}, {"seconds", 20.0}},
            {{"state", "idle"}, {"reason", "no CUDA"}, {"seconds", 1000.0}}}}};
}

json reply_of(const json& rows) {
  return {{"since_unix_seconds", kNow}, {"until_unix_seconds", kNow}, {"rows", rows}};
}

TEST(ReportTable, AWideRowHasEightyColumns) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  const json rows = {row_of(std::string(63, 'n'), 6.2e7, 6.2e7), row_of("\xc3\xa4\xc3\xa4", 1, 0)};
  for (const char* by : {"job", "user", "gpu", "day", "slurmjob"}) {
    std::istringstream lines(report_table(by, reply_of(rows)));
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), 82u) << line;  // bytes: two letters have two each
    }
  }
}

TEST(ReportTable, ANameIsNotCutWithinALetter) {
  json row = row_of("a", 1, 0);
  row["user"] = "abcdef\xc3\xa4gh";
  const std::string table = report_table("job", reply_of(json::array({row})));
  EXPECT_NE(table.find("  abcdef~ "), std::string::npos) << table;
}

TEST(ReportTable, AJobOfSlurmHasItsNumberAndItsUser) {
  const std::string table = report_table("slurmjob", reply_of(json::array({row_of("a", 100, 0)})));
  EXPECT_EQ(table.find("SLURM JOB  USER"), table.find('\n') + 1) << table;
  EXPECT_NE(table.find("\n123456789  somebod~"), std::string::npos) << table;
  const std::string csv = report_csv("slurmjob", json::array({row_of("a", 100, 0)}), json::array());
  EXPECT_EQ(csv.rfind("slurm_job,user,uid,jobs,gpu_seconds,", 0), 0u) << csv;
}

TEST(ReportTable, AnEstimateIsMarkedAndMostTimeComesFirst) {
  const json rows = {row_of("small", 60, 0), row_of("large", 3600, 100), row_of("exact", 1800, 1)};
  const std::string table = report_table("job", reply_of(rows));
  EXPECT_NE(table.find("~1.0 h"), std::string::npos) << table;
  EXPECT_EQ(table.find("~30 min"), std::string::npos) << table;
  EXPECT_LT(table.find("large"), table.find("exact"));
  EXPECT_LT(table.find("exact"), table.find("small"));
}

TEST(ReportTable, WaitsArePausesAndIdleTimeIsWithoutThatBeforeCuda) {
  const std::string table = report_table("user", reply_of(json::array({row_of("a", 100, 0)})));
  EXPECT_NE(table.find("2 min   100 h  20 s"), std::string::npos) << table;
  EXPECT_NE(report_table("gpu", reply_of(json::array({row_of("a", 100, 0)}))).find("25%"),
            std::string::npos);
}

json unmanaged_of(const std::string& user) {
  return {{"user", user},
          {"uid", 1000},
          {"index", 7},
          {"day", "2025-11-27"},
          {"gpu_seconds_estimated", 7200.0},
          {"memory_byte_seconds", 36'000.0 * (1u << 30)},
          {"memory_idle_byte_seconds", 3600.0 * (1u << 30)},
          {"memory_peak_bytes", 1ull << 36}};
}

TEST(ReportTable, UnmanagedProcessesHaveATableOfTheirOwn) {
  json reply = reply_of(json::array({row_of("a", 100, 0)}));
  reply["unmanaged"] = json::array({unmanaged_of(std::string(63, 'u'))});
  for (const char* by : {"job", "user", "gpu", "day"}) {
    const std::string table = report_table(by, reply);
    const std::size_t at = table.find("unmanaged processes");
    ASSERT_NE(at, std::string::npos) << table;
    EXPECT_GT(at, table.find("GPU TIME")) << "behind the jobs";
    EXPECT_NE(table.find("~2.0 h    10.0       1.0    64 GiB", at), std::string::npos) << table;
  }
  reply["rows"] = json::array();
  EXPECT_NE(report_table("user", reply).find("~2.0 h"), std::string::npos);
  reply["unmanaged"][0]["user"] = nullptr;
  EXPECT_NE(report_table("user", reply).find("unknown"), std::string::npos);
}

TEST(ReportTable, NothingIsSaidInWords) {
  EXPECT_NE(report_table("job", reply_of(json::array())).find("nothing was recorded"),
            std::string::npos);
}

// Rows by job of a Slurm job's two jobs. The second one ends with the second question.
json bills(const json& request, int& asked) {
  json reply = reply_of(json::array({row_of("slurm-42", 3, 0), row_of("other", 5, 0)}));
  reply["ok"] = true;
  reply["rows"][0]["exit"] = "ended";
  reply["rows"][0]["exit_code"] = 0;
  if (asked > 0) reply["rows"][1]["exit"] = "ended";
  if (asked > 0) reply["rows"][1]["exit_signal"] = 9;
  if (request["slurm_job"] != "42") reply["rows"] = json::array();
  ++asked;
  return reply;
}

TEST(ReportSlurmJob, ItsBillIsALineForEachOfItsJobsOnceAllHaveEnded) {
  int asked = 0;
  const auto monitor =
      FakeMonitor::answering([&](const json& request) { return bills(request, asked); });
  const CommandEnd end =
      run_command(monitor.socket(), {&add_report}, {"report", "--slurm-job", "42"});
  EXPECT_EQ(end.code, kOk) << end.err;
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(end.out.rfind("job slurm-42: 3 s on the GPU, ", 0), 0u) << end.out;
  EXPECT_NE(end.out.find("\njob other: 5 s on the GPU, "), std::string::npos) << end.out;
  EXPECT_EQ(end.out.find("not ended"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("; exit code 0\n"), std::string::npos) << end.out;
  EXPECT_NE(end.out.find("; ended by signal 9\n"), std::string::npos) << end.out;
}

TEST(ReportSlurmJob, WhatIsNoNumberAndWhatDoesNotGoWithItIsRefused) {
  const auto monitor = FakeMonitor::answering([](const json&) {
    return json{{"ok", true}, {"rows", json::array()}};
  });
  const auto code = [&](std::vector<std::string> words) {
    return run_command(monitor.socket(), {&add_report}, std::move(words)).code;
  };
  for (const char* bad : {"", "x", "4 2", "-1"}) {
    EXPECT_EQ(code({"report", std::string("--slurm-job=") + bad}), kUsage) << bad;
  }
  EXPECT_EQ(code({"report", "--slurm-job", "42", "--by", "job"}), kUsage);
  EXPECT_EQ(code({"report", "--slurm-job", "42", "--json"}), kUsage);
}

TEST(ReportCsv, TextIsQuotedAndEachRowHasAllColumns) {
  json odd = row_of("a,\"b\"", 1, 0);
  odd.erase("launches");
  const std::string csv = report_csv("job", json::array({odd}));
  std::istringstream lines(csv);
  std::string head, row;
  std::getline(lines, head);
  std::getline(lines, row);
  EXPECT_EQ(head.rfind("job,name,user,uid,command,", 0), 0u);
  EXPECT_NE(row.find("\"a,\"\"b\"\"\""), std::string::npos) << row;
  EXPECT_NE(row.find("\"python \"\"x\"\", y\""), std::string::npos) << row;
  // Commas outside of quotes.
  const auto commas = [](const std::string& line) {
    bool quoted = false;
    int count = 0;
    for (const char c : line) {
      quoted = quoted != (c == '"');
      count += c == ',' && !quoted ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(commas(head), commas(row));
  EXPECT_TRUE(row.ends_with(",true")) << row;
  for (const char* by : {"job", "user", "gpu", "day"}) {
    std::istringstream both(report_csv(by, json::array({odd}), json::array({unmanaged_of("bob")})));
    std::getline(both, head);
    std::getline(both, row);
    std::getline(both, row);
    EXPECT_TRUE(head.ends_with(",managed")) << head;
    EXPECT_EQ(commas(head), commas(row));
    EXPECT_TRUE(row.ends_with(",false")) << row;
  }
}

// A monitor with two jobs in its history; `late` lives with the process 4711. Notes the reports.
FakeMonitor::Answer two_jobs(std::vector<json>& asked) {
  return [&asked](const json& request) -> json {
    if (request["op"] == "ps") {
      return {{"ok", true},
              {"jobs",
               {{{"job", "j-late"},
                 {"name", "late"},
                 {"state", "running"},
                 {"processes", {{{"pid", 4711}}}}}}}};
    }
    asked.push_back(request);
    json reply = reply_of(json::array({row_of("early", 3, 0), row_of("late", 5, 0)}));
    reply["ok"] = true;
    reply["rows"][0]["job"] = "j-early";
    reply["rows"][0]["exit"] = "ended";
    reply["rows"][1]["job"] = "j-late";
    reply["rows"][1]["exit"] = nullptr;
    return reply;
  };
}

TEST(ReportSelection, JobsAreAskedForByIdAndGpusAsTheyAreNamed) {
  const auto ids = [](std::vector<std::string> words) {
    std::vector<json> asked;
    const auto monitor = FakeMonitor::answering(two_jobs(asked));
    words.insert(words.begin(), "report");
    const CommandEnd end = run_command(monitor.socket(), {&add_report}, std::move(words));
    EXPECT_EQ(end.code, kOk) << end.err;
    const json jobs = asked.back().value("jobs", json());
    return jobs.is_object() ? jobs.value("ids", json()) : jobs;
  };
  EXPECT_TRUE(ids({}).is_null());
  EXPECT_EQ(ids({"early"}), (json::array({"j-early"})));
  EXPECT_EQ(ids({"4711"}), (json::array({"j-late"}))) << "a PID";
  EXPECT_EQ(ids({"*"}), (json::array({"j-early", "j-late"})));
  EXPECT_EQ(ids({"--state", "running", "--by", "day"}), (json::array({"j-late"})));
  EXPECT_TRUE(ids({"--user", "ann"}).is_null()) << "there may be more than a frame takes";
  EXPECT_EQ(ids({"late", "--user", "somebody-with-a-long-name"}), (json::array({"j-late"})));
  EXPECT_TRUE(ids({"--gpu", "0"}).is_null()) << "the monitor sums what was had of it";

  std::vector<json> asked;
  const auto monitor = FakeMonitor::answering(two_jobs(asked));
  const auto report = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "report");
    return run_command(monitor.socket(), {&add_report}, std::move(words)).code;
  };
  EXPECT_EQ(report({"--gpu", "0,GPU-abcdef"}), kOk);
  EXPECT_EQ(asked.back()["gpus"], (json::array({"0", "GPU-abcdef"})));
  EXPECT_FALSE(asked.back().contains("jobs"));
  EXPECT_EQ(report({"--user", "ann,1001", "--by", "day"}), kOk);
  EXPECT_EQ(asked.size(), 2u) << "no listing of all jobs before";
  EXPECT_EQ(asked.back()["jobs"], (json{{"users", {"ann", "1001"}}}));
  EXPECT_EQ(report({"early"}), kOk);
  EXPECT_TRUE(asked.back()["jobs"].is_array()) << "as a monitor takes it that knows no users";
  EXPECT_EQ(report({"none"}), kNoSuchJobOrGpu);
  EXPECT_EQ(report({"--gpu", "first"}), kUsage);
  EXPECT_EQ(report({"early", "--slurm-job", "42"}), kUsage);
}

TEST(ReportJson, SaysByHowMuchTheTimeMayBeWrong) {
  std::vector<json> asked;
  const auto monitor = FakeMonitor::answering([&](const json& request) {
    json reply = two_jobs(asked)(request);
    if (reply.contains("rows")) reply["rows"][1]["gpu_seconds_estimated"] = 3.0;
    return reply;
  });
  const CommandEnd end = run_command(monitor.socket(), {&add_report}, {"report", "--json"});
  const json rows = json::parse(end.out)["rows"];
  EXPECT_EQ(rows[0]["gpu_seconds_error"], 0);
  EXPECT_NEAR(rows[1]["gpu_seconds_error"], 2, 1e-9);
  EXPECT_FALSE(asked.back().contains("brief"));
}

}  // namespace
}  // namespace switchyard::tools
