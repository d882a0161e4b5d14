// The packages under jobs that run: an upgrade by dpkg, the way back, removal and purge.
// scripts/check_upgrade.sh makes the packages and a place where they may be installed.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "switchyard/paths.h"
#include "tests/system/gang_scene.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

constexpr char kLibrary[] = "/usr/lib/switchyard/libswitchyard.so";
constexpr char kSettings[] = "/etc/switchyard/switchyard.toml";
constexpr char kHistory[] = "/var/lib/switchyard/history.db";
constexpr char kDropIns[] = "/etc/systemd/system/switchyardd.service.d";

// The folder with this.deb and next.deb; empty: there is none. These scenes install packages, so
// they are only played beside the systemd that the script plays.
std::string packages() {
  const char* path = std::getenv("SWITCHYARD_TEST_PACKAGES");
  return path != nullptr && fs::exists("/run/played-systemd") ? path : "";
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Upgrade : public Gang, public ::testing::WithParamInterface<std::string> {
 protected:
  static constexpr int kLoops = 10, kLenders = 9;  // and a gang: 20 jobs

  void SetUp() override {
    Gang::SetUp();
    // What an administrator does with `systemctl edit`.
    fs::create_directories(kDropIns);
    std::ofstream(std::string(kDropIns) + "/simulated.conf")
        << "[Service]\nEnvironment=LD_LIBRARY_PATH=" << built("fakecuda")
        << "\nEnvironment=FAKECUDA_DEVICES=2 FAKECUDA_STATE=" << in_folder("gpu") << "\n";
    dpkg({"--install", package("this")});
  }
  void TearDown() override {
    loops_.clear();
    lenders_.clear();
    late_.reset();
    ranks_.clear();
    dpkg({"--purge", "switchyard"});
    fs::remove_all(kDropIns);
    Gang::TearDown();
  }

  static std::string package(const std::string& name) { return packages() + "/" + name + ".deb"; }
  void dpkg(const Words& words) {
    Words command{"dpkg", "--force-unsafe-io"};
    command.insert(command.end(), words.begin(), words.end());
    const auto end = run(command);
    EXPECT_EQ(end.status, 0) << words[0] << ": " << end.out << end.err;
    // A script that failed is passed over by deb-systemd-invoke.
    EXPECT_FALSE(says(end, "Traceback")) << end.err;
  }
  // The monitor is that of the machine, and the library the package's.
  static Changes installed() {
    return {{"SWITCHYARD_SOCKET", ""},
            {"SWITCHYARD_LIBRARY", kLibrary},
            {"FAKECUDA_DEVICES", "2"},
            {"FAKECUDA_PATTERN", "1"}};
  }
  Child::End cli(const Words& words) { return Scene::cli(words, installed()); }
  json listing(const std::string& what) { return Scene::listing(what, installed()); }
  int monitor_pid() { return Scene::monitor_pid(installed()); }
  json job_named(const std::string& name) {
    const json all = listing("ps");
    if (!all.is_object()) return nullptr;
    for (const json& job : all["jobs"]) {
      if (job["name"] == name) return job;
    }
    return nullptr;
  }
  json gpu_of(const std::string& name) {
    const json job = job_named(name);
    return job.is_object() && !job["gpus"].empty() ? job["gpus"][0] : json();
  }
  static std::string loop_name(int i) { return "loop-" + std::to_string(i); }
  static std::string lender_name(int i) { return "lender-" + std::to_string(i); }

  Child lender(const std::string& name) {
    Child made = job({"--name", name, "--swappable", "--memory", "60MiB"},
                     {built("tests/jobs/job_swap"), std::to_string(8 * kMiB)}, installed());
    EXPECT_EQ(line_of(made), "ready");
    return made;
  }
  void start_jobs() {
    for (int i = 0; i < kLoops; ++i) {
      loops_.push_back(loop({"--name", loop_name(i), "--priority", i == 0 ? "high" : "normal"}, {},
                            installed()));
    }
    for (int i = 0; i < kLenders; ++i) lenders_.push_back(lender(lender_name(i)));
    begin(2, 2, {{"LD_PRELOAD", kLibrary}, {"SWITCHYARD_SOCKET", ""}});
    do_all("begin 20");
    EXPECT_EQ(cli({"set", lender_name(2), "--share", "3"}).status, 0);
  }
  // Every process is a client, and its job is what it was made as.
  void expect_promises(std::size_t jobs) {
    ASSERT_TRUE(eventually([&] {
      const json all = listing("ps");
      return all.is_object() && all["jobs"].size() == jobs && all["outside"].empty();
    })) << listing("ps");
    EXPECT_EQ(job_named("gang")["processes"].size(), 2u);
    EXPECT_EQ(job_named(loop_name(0))["priority"], "high");
    EXPECT_EQ(job_named(lender_name(2))["share_weight"], 3.0);
    EXPECT_EQ(gpu_of(lender_name(1)).value("memory_quota_bytes", 0ull), 60 * kMiB);
    EXPECT_EQ(ask(lenders_[5], "alloc " + std::to_string(60 * kMiB)).rfind("failed alloc", 0), 0u);
    EXPECT_TRUE(moves(loops_[0]));
  }
  bool moves(Child& loop) {
    const long before = kernels(loop);
    return eventually([&] { return kernels(loop) > before; });
  }
  bool stands_still(Child& loop) {
    long before = kernels(loop);
    return eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return std::exchange(before, kernels(loop)) == before;
    });
  }
  long most_steps() {
    const auto steps = steps_of(ranks_);
    return *std::max_element(steps.begin(), steps.end());
  }
  bool gang_moves() {
    const long before = most_steps();
    return eventually([&] { return most_steps() > before; });
  }
  bool state(const std::string& name, const std::string& wanted) {
    return eventually([&] {
      const json found = job_named(name);
      return found.is_object() && found["state"] == wanted;
    });
  }
  bool residency(const std::string& name, const std::string& wanted) {
    return eventually([&] {
      const json found = gpu_of(name);
      return !found.is_null() && found.value("residency", "") == wanted;
    });
  }
  // Leaves two paused jobs, one whose memory is away, and one that is both.
  void pause_some() {
    for (const Words& words :
         {Words{"pause", loop_name(1)}, Words{"pause", "gang"}, Words{"swap-out", lender_name(3)},
          Words{"pause", "--release", lender_name(4)}}) {
      const auto said = cli(words);
      EXPECT_EQ(said.status, 0) << words[0] << ": " << said.err;
    }
    EXPECT_TRUE(stands_still(loops_[1]));
  }
  // The next monitor knows of the pauses, and says "go on".
  void expect_pauses_and_end_them() {
    for (const std::string& name : {loop_name(1), lender_name(4), std::string("gang")}) {
      EXPECT_TRUE(state(name, "paused")) << name;
    }
    EXPECT_TRUE(residency(lender_name(4), "swapped"));
    EXPECT_TRUE(stands_still(loops_[1]));
    for (const std::string& name : {loop_name(1), lender_name(4), std::string("gang")}) {
      EXPECT_EQ(cli({"resume", name}).status, 0) << name;
    }
    EXPECT_TRUE(moves(loops_[1]));
    EXPECT_TRUE(gang_moves());
    for (const int i : {3, 4}) {
      EXPECT_TRUE(residency(lender_name(i), "resident"));
      EXPECT_EQ(ask(lenders_[static_cast<std::size_t>(i)], "check"), "right");
    }
  }
  // Its bill: empty when there is none.
  json bill(const std::string& name) {
    const json report = listing("report");
    if (!report.is_object()) return json::object();
    for (const json& row : report["rows"]) {
      if (row["name"] == name) return row;
    }
    return json::object();
  }
  void run_to_its_end(const std::string& name) {
    EXPECT_EQ(
        job({"--name", name}, {loop_program(), "--count", "30"}, installed()).finish(kLimit).status,
        0);
    EXPECT_TRUE(eventually([&] { return bill(name).value("exit", json()) == "ended"; }));
  }
  // Another version comes while some are paused.
  void change_to(const std::string& name, std::size_t jobs) {
    const int before = monitor_pid();
    const std::string library = contents(kLibrary);
    const double billed = bill(loop_name(0)).value("launches", 0.0);
    pause_some();
    dpkg({"--install", package(name)});
    EXPECT_NE(monitor_pid(), before) << "the package restarts it";
    EXPECT_NE(contents(kLibrary), library);
    const std::string maps = contents("/proc/" + std::to_string(loops_[0].pid()) + "/maps");
    EXPECT_NE(maps.find(std::string(kLibrary) + " (deleted)"), std::string::npos)
        << "a job keeps the library that it has";
    expect_pauses_and_end_them();
    expect_promises(jobs);
    EXPECT_EQ(bill("early")["launches"], 30);
    EXPECT_EQ(bill("early")["exit"], "ended");
    EXPECT_TRUE(eventually([&] { return bill(loop_name(0)).value("launches", 0.0) > billed; }))
        << "its bill goes on";
  }
  void expect_all_right() {
    EXPECT_EQ(cli({"set", loop_name(0), "--priority", "normal"}).status, 0);
    for (Child& loop : loops_) EXPECT_TRUE(moves(loop));
    for (Child& lender : lenders_) EXPECT_EQ(ask(lender, "check"), "right");
    expect_right_in_the_end(ranks_);
  }

  std::vector<Child> loops_, lenders_;
  std::optional<Child> late_;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Upgrade);

TEST_P(Upgrade, AndTheWayBackKeepEveryPromiseOfTwentyJobs) {
  start_jobs();
  run_to_its_end("early");
  expect_promises(20);
  change_to("next", 20);
  // The next version's library, under this version's monitor later.
  late_.emplace(lender("late"));
  change_to("this", 21);
  EXPECT_EQ(ask(*late_, "check"), "right");
  expect_all_right();
}

TEST_P(Upgrade, ARemovalResumesWhatIsPausedAndKeepsSettingsAndHistory) {
  loops_.push_back(loop({"--name", "paused"}, {}, installed()));
  lenders_.push_back(lender("released"));
  lenders_.push_back(lender("away"));
  run_to_its_end("early");
  ASSERT_EQ(cli({"pause", "paused"}).status, 0);
  ASSERT_EQ(cli({"pause", "--release", "released"}).status, 0);
  ASSERT_EQ(cli({"swap-out", "away"}).status, 0);
  EXPECT_TRUE(stands_still(loops_[0]));
  std::ofstream(kSettings, std::ios::app) << "# mine\n";

  dpkg({"--remove", "switchyard"});
  EXPECT_FALSE(fs::exists(kSystemFolder))
      << "its mark would keep users from a monitor of their own";
  EXPECT_FALSE(fs::exists(kLibrary));
  EXPECT_TRUE(moves(loops_[0])) << "nobody is left who could resume it";
  for (Child& each : lenders_) EXPECT_EQ(ask(each, "check"), "right");
  EXPECT_NE(contents(kSettings).find("# mine"), std::string::npos);
  EXPECT_TRUE(fs::exists(kHistory));

  // They are found again, as if nothing had been.
  dpkg({"--install", package("this")});
  ASSERT_TRUE(eventually([this] {
    const json all = listing("ps");
    return all.is_object() && all["jobs"].size() == 3;
  }));
  EXPECT_EQ(bill("early")["launches"], 30);
  EXPECT_NE(contents(kSettings).find("# mine"), std::string::npos);
}

std::vector<std::string> all_packages() {
  if (packages().empty()) return {};
  return {"Played"};
}
INSTANTIATE_TEST_SUITE_P(Packages, Upgrade, ::testing::ValuesIn(all_packages()),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace switchyard::system_tests
