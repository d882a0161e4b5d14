// The history: bills of jobs that ended, through crashes of the monitor and a disk that is full.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

class History : public Scene {
 protected:
  json report(const Words& options = {}) {
    Words words{"report", "--json"};
    words.insert(words.end(), options.begin(), options.end());
    const auto end = cli(words);
    EXPECT_EQ(end.status, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }
  // The bill of one job; null when there is none.
  json bill(const std::string& name) {
    const json listing = report();
    for (const json& row : listing["rows"]) {
      if (row["name"] == name) return row;
    }
    return nullptr;
  }
  long launches(const std::string& name) {
    const json row = bill(name);
    return row.is_object() ? row["launches"].get<long>() : 0;
  }
  Child::End count(const std::string& name, int kernels) {
    return cli({"run", "--name", name, "--", loop_program(), "--count", std::to_string(kernels)});
  }
};

TEST_F(History, AJobThatEndedHasABill) {
  auto owner = monitor();
  EXPECT_EQ(count("first", 30).status, 0);
  ASSERT_TRUE(eventually([this] { return bill("first").value("exit", json()) == "ended"; }));
  const json row = bill("first");
  EXPECT_EQ(row["launches"], 30);
  EXPECT_EQ(row["uid"], ::getuid());
  EXPECT_NE(row["command"].get<std::string>().find("job_loop --count 30"), std::string::npos);
  EXPECT_GT(row["memory_peak_bytes"], -1);
  EXPECT_GE(row["ended_unix_seconds"], row["started_unix_seconds"]);
  EXPECT_EQ(row["gpus"].size(), 1u);
}

TEST_F(History, RunTellsTheBillAtTheEndAndEndsAsTheProgramDid) {
  auto owner = monitor();
  const auto end = cli({"run", "--report", "--name", "billed", "--", "/bin/sh", "-c",
                        "'" + loop_program() + "' --count 30; exit 7"});
  EXPECT_EQ(end.status, 7);
  EXPECT_EQ(end.err.rfind("switchyard: job billed: ", 0), 0u) << end.err;
  EXPECT_TRUE(says(end, "on the GPU, waited")) << end.err;
  EXPECT_FALSE(says(end, "not ended")) << end.err;
  EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
  EXPECT_EQ(end.out.find("switchyard"), std::string::npos) << end.out;
}

TEST_F(History, AnotherProcessTellsTheBillOfACommandThatIsKilled) {
  auto owner = monitor();
  auto child = loop({"--report=after", "--name", "killed"});
  // Jupyter looks at its own child, and at that child's parent.
  EXPECT_EQ(job_named("killed")["processes"][0]["pid"], child.pid());
  ::kill(child.pid(), SIGKILL);
  const auto end = child.finish(kLimit);
  EXPECT_EQ(end.status, 128 + SIGKILL);
  EXPECT_EQ(end.err.rfind("switchyard: job killed: ", 0), 0u) << end.err;
  EXPECT_FALSE(says(end, "not ended")) << end.err;
}

TEST_F(History, TheBillAfterwardsKeepsNobodyWaitingWhoReadsTheOutput) {
  auto owner = monitor();
  // `cat` ends with the command, and what kills its group does not reach the teller.
  const auto end = run({"setsid", "-w", "/bin/sh", "-c",
                        "'" + built("switchyard") + "' run --report=after --name group -- '" +
                            loop_program() + "' --count 3 | cat; kill -KILL 0"});
  EXPECT_TRUE(says(end, "job group: ")) << end.err;
  EXPECT_EQ(cli({"run", "--report=later", "--", "true"}).status, 2);
}

TEST_F(History, AnEndedJobHasTheExitStatusOfItsCommand) {
  auto owner = monitor({"--persist"});
  // This process is the parent. It asks for the status when the monitor has had its look.
  auto fails = start({built("switchyard"), "run", "--name", "fails", "--", "/bin/sh", "-c",
                      "'" + loop_program() + "' --count 3; exit 7"});
  auto killed = loop({"--name", "killed"});
  ::kill(killed.pid(), SIGKILL);
  for (const char* name : {"fails", "killed"}) {
    const auto has_ended = [&] {
      const json row = bill(name);
      return row.is_object() && row["exit"] == "ended";
    };
    ASSERT_TRUE(eventually(has_ended)) << name;
  }
  EXPECT_EQ(bill("fails")["exit_code"], 7);
  EXPECT_TRUE(bill("fails")["exit_signal"].is_null());
  EXPECT_TRUE(bill("killed")["exit_code"].is_null());
  EXPECT_EQ(bill("killed")["exit_signal"], SIGKILL);
  const auto events = cli({"events"});
  EXPECT_NE(events.out.find("fails            ends: exit code 7\n"), std::string::npos)
      << events.out;
  EXPECT_NE(events.out.find("killed           ends: signal 9\n"), std::string::npos) << events.out;
}

TEST_F(History, RunSaysWhyThereIsNoBill) {
  auto owner = monitor({"--history", "none"});
  const auto end = cli({"run", "--report", "--", "/bin/sh", "-c", "exit 7"});
  EXPECT_EQ(end.status, 7);
  EXPECT_TRUE(says(end, "no bill: no history is kept")) << end.err;
}

TEST_F(History, EachListingFitsItsSchemaAndEightyColumns) {
  auto owner = monitor();
  auto living = loop({"--name", "a-name-that-is-much-longer-than-a-column-of-the-table-has-room"});
  EXPECT_EQ(count("done", 5).status, 0);
  for (const char* by : {"job", "user", "gpu", "day", "slurmjob"}) {
    const json listing = report({"--by", by});
    EXPECT_EQ(differences(listing, read_schema("report")), Words{}) << by;
    EXPECT_EQ(listing["by"], by);
    EXPECT_EQ(listing["rows"].empty(), by == std::string("slurmjob"));
    const auto table = cli({"report", "--by", by});
    EXPECT_EQ(table.status, 0) << table.err;
    std::istringstream lines(table.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    const auto csv = cli({"report", "--by", by, "--csv"});
    EXPECT_NE(csv.out.find(",gpu_seconds,"), std::string::npos) << csv.out;
  }
  EXPECT_EQ(report({"--until", "30d", "--since", "31d"})["rows"].size(), 0u);
}

// What the plugin and the prolog set.
TEST_F(History, AJobOfSlurmIsFoundByItsNumber) {
  const std::string files = in_folder("files");
  fs::create_directory(files);
  std::ofstream(files + "/0") << "of a monitor that was killed\n";
  const auto owner = monitor({"--hpc-job-mapping-dir", files});
  const auto on_gpu = [&] {
    std::ostringstream text;
    text << std::ifstream(files + "/0").rdbuf();
    return text.str();
  };
  EXPECT_TRUE(eventually([&] { return on_gpu().empty(); }));
  auto other = loop({"--name", "other"});
  auto child = loop({}, {}, {{"SWITCHYARD_JOB", "slurm-77"}, {"SWITCHYARD_NAME", "slurm-77"}});
  EXPECT_TRUE(eventually([&] { return on_gpu() == "77\n"; }));
  ASSERT_TRUE(eventually([&] { return report({"--by", "slurmjob"})["rows"].size() == 1; }));
  const json listing = report({"--by", "slurmjob"});
  EXPECT_EQ(differences(listing, read_schema("report")), Words{});
  EXPECT_EQ(listing["rows"][0]["slurm_job"], "77");
  EXPECT_EQ(listing["rows"][0]["uid"], ::getuid());
  EXPECT_EQ(child.finish(kLimit).status, 0);
  const auto bill = cli({"report", "--slurm-job", "77"});
  EXPECT_EQ(bill.status, 0) << bill.err;
  EXPECT_EQ(bill.out.rfind("job slurm-77: ", 0), 0u) << bill.out;
  EXPECT_EQ(bill.out.find("not ended"), std::string::npos) << bill.out;
  EXPECT_TRUE(eventually([&] { return on_gpu().empty(); }));
}

TEST_F(History, AFolderForSlurmJobsThatIsNotThereIsALineInTheLog) {
  const auto bad = run({built("switchyardd"), "--hpc-job-mapping-dir", "jobs"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_TRUE(says(bad, "for --hpc-job-mapping-dir: expected an absolute path")) << bad.err;
  const auto owner = monitor({"--hpc-job-mapping-dir", in_folder("none")});
  EXPECT_TRUE(eventually([&] {
    std::ostringstream text;
    text << std::ifstream(in_folder("m.log")).rdbuf();
    return text.str().find("/none': No such file or directory") != std::string::npos;
  }));
}

TEST_F(History, AKilledMonitorsBillsAreContinuedByTheNext) {
  auto first = monitor();
  auto child = loop({"--name", "long"});
  EXPECT_EQ(count("before", 5).status, 0);
  ASSERT_TRUE(eventually([this] { return launches("long") >= 1; }));
  const json before = bill("long");
  ASSERT_TRUE(eventually([this] { return bill("before").value("exit", json()) == "ended"; }));
  kill_and_wait(first.pid());
  auto second = monitor();
  EXPECT_EQ(bill("before")["launches"], 5);
  // Until it has rejoined, nobody knows whether it lives.
  ASSERT_TRUE(eventually([this] { return bill("long")["exit"].is_null(); }));
  ASSERT_TRUE(eventually([&] { return bill("long")["launches"] > before["launches"]; }));
  EXPECT_GE(bill("long")["gpu_seconds"], before["gpu_seconds"]);
  EXPECT_EQ(bill("long")["started_unix_seconds"], before["started_unix_seconds"]);
  // Its counts of the time before are not billed twice. Some launches may be on their way.
  const long billed = bill("long")["launches"];
  EXPECT_LE(billed, kernels(child) + 100);
  EXPECT_EQ(child.finish(kLimit).status, 0);
  ASSERT_TRUE(eventually([this] { return bill("long")["exit"] == "ended"; }));
  EXPECT_EQ(report()["rows"].size(), 2u);
}

TEST_F(History, AJobWhoseEndNobodySawIsLost) {
  auto first = monitor();
  auto child = loop({"--name", "gone"});
  ASSERT_TRUE(eventually([this] { return launches("gone") >= 1; }));
  kill_and_wait(first.pid());
  kill_and_wait(child.pid());
  auto second = monitor();
  EXPECT_EQ(bill("gone")["exit"], "lost");
  EXPECT_FALSE(bill("gone")["ended_unix_seconds"].is_null());
}

TEST_F(History, AFullDiskCostsNoJobAndNoBillOnceThereIsRoom) {
  auto owner = monitor();
  auto child = loop({"--name", "full"});
  ASSERT_TRUE(eventually([this] { return launches("full") >= 1; }));
  // From now on each write to a file fails, as on a disk without room.
  rlimit before{};
  ASSERT_EQ(::prlimit(owner.pid(), RLIMIT_FSIZE, nullptr, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::prlimit(owner.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  const long first = kernels(child);
  ASSERT_TRUE(eventually([&] { return kernels(child) > first + 20; }));
  const long last = kernels(child);
  EXPECT_EQ(child.finish(kLimit).status, 0);
  ASSERT_TRUE(eventually([this] { return listing("ps")["jobs"].empty(); }));
  const json meanwhile = bill("full");  // what is there can be read
  EXPECT_TRUE(meanwhile["exit"].is_null());
  EXPECT_LT(meanwhile["launches"], last);
  EXPECT_EQ(monitor_pid(), owner.pid());
  ASSERT_EQ(::prlimit(owner.pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  ASSERT_TRUE(eventually([this] { return bill("full")["exit"] == "ended"; }));
  EXPECT_GE(launches("full"), last);
}

TEST_F(History, AFolderThatCannotBeHadCostsTheHistoryAlone) {
  std::ofstream(in_folder("file")) << "x";
  auto owner = monitor({"--history", in_folder("file") + "/history"});
  EXPECT_EQ(count("job", 5).status, 0);
  const auto end = cli({"report"});
  EXPECT_NE(end.status, 0);
  EXPECT_TRUE(says(end, "no history is kept: cannot make")) << end.err;
}

TEST_F(History, WithoutAHistoryReportSaysSo) {
  auto owner = monitor({"--history", "none"});
  EXPECT_EQ(count("job", 5).status, 0);
  const auto end = cli({"report"});
  EXPECT_EQ(end.status, 1);
  EXPECT_TRUE(says(end, "--history none")) << end.err;
  EXPECT_FALSE(fs::exists(in_folder("state")));
}

TEST_F(History, OthersSeeBillsButNoCommandLines) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user takes root";
  auto owner = monitor();
  EXPECT_EQ(count("roots", 5).status, 0);
  ASSERT_TRUE(eventually([this] { return bill("roots").is_object(); }));
  ASSERT_EQ(::chmod(socket().c_str(), 0666), 0);
  const json seen = json::parse(cli_as_nobody({"report", "--json"}).out, nullptr, false);
  ASSERT_EQ(seen["rows"].size(), 1u) << seen;
  EXPECT_EQ(seen["rows"][0]["name"], "roots");
  EXPECT_TRUE(seen["rows"][0]["command"].is_null());
}

TEST_F(History, BillsOfOnesOwnAreAllThatOthersSee) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user takes root";
  auto owner = monitor({"--bills", "own"});
  EXPECT_EQ(count("roots", 5).status, 0);
  ASSERT_TRUE(eventually([this] { return bill("roots").is_object(); }));
  ASSERT_EQ(::chmod(socket().c_str(), 0666), 0);
  for (const char* by : {"job", "user", "gpu", "day"}) {
    const auto end = cli_as_nobody({"report", "--json", "--by", by});
    EXPECT_EQ(json::parse(end.out, nullptr, false)["rows"].size(), 0u) << end.out << end.err;
  }
}

TEST_F(History, WhoHadAGpuIsOneQuestion) {
  auto owner = monitor({}, kTwoGpus);
  auto first = loop({"--name", "first", "--gpus", "0"}, {}, kTwoGpus);
  auto second = loop({"--name", "second", "--gpus", "1"}, {}, kTwoGpus);
  ASSERT_TRUE(eventually([&] { return launches("first") > 0 && launches("second") > 0; }));
  const auto on = cli({"report", "--gpu", "1", "--since", "12h"});
  EXPECT_EQ(on.status, 0) << on.err;
  EXPECT_NE(on.out.find("\nsecond "), std::string::npos) << on.out;
  EXPECT_EQ(on.out.find("\nfirst "), std::string::npos) << on.out;
  EXPECT_EQ(cli({"report", "--gpu", "7"}).status, 4);
  const auto named = cli({"report", "f*", "--user", listing("ps")["jobs"][0]["user"]});
  EXPECT_NE(named.out.find("\nfirst "), std::string::npos) << named.out << named.err;
  EXPECT_EQ(named.out.find("\nsecond "), std::string::npos) << named.out;
}

TEST_F(History, AnEndedJobIsInspectedWithItsBillAndItsEvents) {
  auto owner = monitor();
  EXPECT_EQ(count("done", 3).status, 0);
  EXPECT_EQ(count("done", 30).status, 0);
  const auto both_have_ended = [&] {
    const json rows = report()["rows"];
    return rows.size() == 2 && rows[0]["exit"] == "ended" && rows[1]["exit"] == "ended";
  };
  ASSERT_TRUE(eventually(both_have_ended));
  const auto end = cli({"inspect", "done"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json said = json::parse(end.out);
  EXPECT_EQ(differences(said, read_schema("inspect")), Words{});
  EXPECT_EQ(said["bill"]["launches"], 30) << "of two with the name it is the last";
  EXPECT_EQ(said["bill"]["exit"], "ended");
  EXPECT_FALSE(said["bill"]["ended_unix_seconds"].is_null());
  EXPECT_EQ(said["why"].get<std::string>().rfind("job 'done' has ended", 0), 0u) << said["why"];
  ASSERT_FALSE(said["events"].empty());
  EXPECT_EQ(said["events"].front()["kind"], "job begins");
  EXPECT_EQ(said["events"].back()["kind"], "job ends");
  for (const json& row : report()["rows"]) {
    const json by_id = json::parse(cli({"inspect", row["job"]}).out);
    EXPECT_EQ(by_id["bill"]["launches"], row["launches"]) << "an id is of one";
  }
  auto living = loop({"--name", "living"});
  const auto two = cli({"inspect", "done", "living"});
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_EQ(std::count(two.out.begin(), two.out.end(), '\n'), 2) << two.out;
  EXPECT_EQ(cli({"inspect", "never"}).status, 4);
}

TEST_F(History, ASpanThatIsNoneIsAUsageError) {
  for (const Words& words : {Words{"--since", "monday"}, Words{"--by", "week"},
                             Words{"--since", "1h", "--until", "2h"}, Words{"--csv", "--json"}}) {
    Words all{"report"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_EQ(cli(all).status, 2) << words[0];
  }
}

}  // namespace
}  // namespace switchyard::system_tests
