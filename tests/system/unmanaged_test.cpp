// GPU processes that no job has: listed, billed and told; and a monitor that only observes.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "harness.h"
#include "tests/system/schema.h"

namespace switchyard::system_tests {
namespace {

class UnmanagedProcess : public Scene {
 protected:
  Child stranger() { return start({built("tests/jobs/job_loop"), "--us", "300"}); }
  json outside(const Changes& changes = {}) {
    const json all = listing("ps", changes);
    return all.is_object() ? all["outside"] : json::array();
  }
  // The sums of this test's user; null: there are none.
  json bill(const Changes& changes = {}) {
    const auto end = cli({"report", "--by", "user", "--json"}, changes);
    const json all = json::parse(end.out, nullptr, false);
    if (!all.is_object()) return nullptr;
    for (const json& row : all["unmanaged"]) {
      if (row["uid"] == ::geteuid()) return row;
    }
    return nullptr;
  }
  bool is_billed(const Changes& changes = {}) {
    const json row = bill(changes);
    return row.is_object() && row["memory_byte_seconds"] > 0 && row["gpu_seconds_estimated"] > 0;
  }
  bool is_told(const char* kind, int pid, const Changes& changes = {}) {
    const auto end = cli({"events", "--json"}, changes);
    const json all = json::parse(end.out, nullptr, false);
    if (!all.is_object()) return false;
    for (const json& event : all["events"]) {
      if (event["kind"] == kind && event["by_pid"] == pid) return true;
    }
    return false;
  }
};

TEST_F(UnmanagedProcess, IsShownWithAllThatIsKnown) {
  auto daemon = monitor();
  auto child = stranger();
  ASSERT_TRUE(eventually([&] {
    const json all = outside();
    return all.size() == 1 && all[0]["command"].is_string() && all[0]["share_got_ratio"] > 0 &&
           all[0]["memory_used_bytes"] > 0;
  })) << outside();
  const json one = outside()[0];
  EXPECT_EQ(one["pid"], child.pid());
  EXPECT_EQ(one["name"], "job_loop");
  EXPECT_EQ(one["uid"], ::geteuid());
  EXPECT_EQ(one["gpu_index"], 0);
  EXPECT_NE(one["command"].get<std::string>().find("job_loop --us 300"), std::string::npos);
  const auto all = cli({"ps", "-a"});
  EXPECT_NE(all.out.find("Unmanaged GPU processes:"), std::string::npos) << all.out;
  EXPECT_NE(all.out.find(std::to_string(child.pid())), std::string::npos) << all.out;
  EXPECT_NE(all.out.find(" ~"), std::string::npos) << all.out;
  const auto top = cli({"top", "--once"});
  EXPECT_NE(top.out.find("~job_loop"), std::string::npos) << top.out;
  EXPECT_NE(top.out.find(one["user"].get<std::string>()), std::string::npos) << top.out;
  const auto few = cli({"ps"});
  EXPECT_NE(few.out.find("1 unmanaged GPU process holds "), std::string::npos) << few.out;
  EXPECT_EQ(few.out.find("job_loop"), std::string::npos) << few.out;
}

TEST_F(UnmanagedProcess, ACommandLineIsNoOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "plays another user";
  auto daemon = monitor();
  auto child = stranger();
  ASSERT_TRUE(eventually([&] {
    const json all = outside();
    return all.size() == 1 && all[0]["command"].is_string();
  }));
  const json seen = json::parse(cli_as_nobody({"ps", "--json"}).out, nullptr, false);
  ASSERT_EQ(seen["outside"].size(), 1u) << seen;
  EXPECT_TRUE(seen["outside"][0]["command"].is_null());
  EXPECT_EQ(seen["outside"][0]["pid"], child.pid());
  EXPECT_EQ(cli_as_nobody({"ps", "-a"}).out.find("--us"), std::string::npos);
}

TEST_F(UnmanagedProcess, IsBilledAndToldAlsoWithoutAnyJob) {
  auto daemon = monitor();
  auto child = stranger();
  EXPECT_TRUE(eventually([&] { return is_billed(); })) << bill();
  EXPECT_TRUE(eventually([&] { return is_told("unmanaged begins", child.pid()); }));
  const auto table = cli({"report"});
  EXPECT_NE(table.out.find("unmanaged processes"), std::string::npos) << table.out;
  const pid_t pid = child.pid();
  kill_and_wait(pid);
  EXPECT_TRUE(eventually([&] { return is_told("unmanaged ends", pid); }));
  EXPECT_TRUE(eventually([&] { return outside().empty(); }));
}

TEST_F(UnmanagedProcess, AJobIsNeither) {
  auto daemon = monitor();
  auto child = loop({"--name", "managed"});
  auto other = stranger();
  ASSERT_TRUE(eventually([&] { return is_told("unmanaged begins", other.pid()); }));
  EXPECT_FALSE(is_told("unmanaged begins", child.pid()));
  for (const json& each : outside()) EXPECT_EQ(each["pid"], other.pid());
}

class Observer : public UnmanagedProcess {
 protected:
  void SetUp() override {
    UnmanagedProcess::SetUp();
    std::filesystem::create_directory(in_folder("run"));
    ::chmod(in_folder("run").c_str(), 0755);
  }
  std::string place() const { return in_folder("run/switchyard/observe.sock"); }
  Changes named() const { return {{"SWITCHYARD_SOCKET", place()}}; }
  Child observer() {
    Child child = start({built("switchyardd"), "--observe", "--socket", place(), "--log",
                         "debug:" + in_folder("o.log")});
    EXPECT_TRUE(eventually([&] { return monitor_pid(named()) == child.pid(); }));
    return child;
  }
};

TEST_F(Observer, ServesWhatThereIsToRead) {
  auto daemon = observer();
  auto child = stranger();
  ASSERT_TRUE(eventually([&] { return outside(named()).size() == 1; }));
  EXPECT_TRUE(eventually([&] { return is_billed(named()); })) << bill(named());
  EXPECT_TRUE(eventually([&] { return is_told("unmanaged begins", child.pid(), named()); }));
  for (const char* what : {"ps", "status"}) {
    const json listed = listing(what, named());
    EXPECT_EQ(differences(listed, read_schema(what)), Words{}) << what;
    EXPECT_EQ(listed["monitor"]["observes"], true) << what;
  }
  const auto ps = cli({"ps"}, named());
  EXPECT_TRUE(says(ps, "only observes")) << ps.err;
  EXPECT_NE(ps.out.find(std::to_string(child.pid())), std::string::npos) << ps.out;
}

TEST_F(Observer, ClaimsNothingOfAMonitorThatStartsLater) {
  auto observing = observer();
  auto daemon = monitor();
  auto child = loop({"--name", "train"});
  EXPECT_EQ(job_named("train")["processes"][0]["pid"], child.pid());
  EXPECT_TRUE(outside().empty());
  ASSERT_TRUE(eventually([&] { return outside(named()).size() == 1; }));
  EXPECT_EQ(outside(named())[0]["pid"], child.pid()) << "to the observer it is a GPU process";
  // Each has a history of its own.
  EXPECT_TRUE(eventually([&] {
    const json report = listing("report");
    return report.is_object() && report["rows"].size() == 1;
  }));
  EXPECT_TRUE(eventually([&] { return is_billed(named()); }));
}

TEST_F(Observer, StartsBesideAMonitor) {
  auto daemon = monitor();
  auto observing = observer();
  EXPECT_EQ(listing("ps")["monitor"]["observes"], false);
  EXPECT_EQ(listing("ps", named())["monitor"]["observes"], true);
}

TEST_F(Observer, IsNoMonitorToRun) {
  auto observing = observer();
  auto child = loop({"--name", "train", "--memory", "1GiB"});
  EXPECT_EQ(job_named("train")["name"], "train");
  EXPECT_NE(monitor_pid(), observing.pid()) << "run has started one that manages";
  cli({"stop", "--force"});
}

TEST_F(Observer, TakesNoProcessAndNoCommand) {
  auto observing = observer();
  Changes preloaded = named();
  preloaded.emplace_back("LD_PRELOAD", built("libswitchyard.so"));
  auto child = start({built("tests/jobs/job_loop")}, preloaded);
  ASSERT_TRUE(eventually([&] { return outside(named()).size() == 1; }));
  EXPECT_EQ(listing("ps", named())["jobs"], json::array());
  for (const Words& words : {Words{"policy", "exclusive"}, Words{"backend", "none"},
                             Words{"resume", "x"}, Words{"stop"}}) {
    const auto end = cli(words, named());
    EXPECT_NE(end.status, 0) << words[0];
    EXPECT_TRUE(says(end, "only observes") || says(end, "no job")) << words[0] << " " << end.err;
  }
  EXPECT_EQ(monitor_pid(named()), observing.pid());
}

TEST_F(Observer, RefusesThePlaceOfAMonitor) {
  const auto end = run({built("switchyardd"), "--observe", "--system"});
  EXPECT_EQ(end.status, 2);
  EXPECT_TRUE(says(end, "--observe serves no jobs: leave --system away")) << end.err;
}

}  // namespace
}  // namespace switchyard::system_tests
