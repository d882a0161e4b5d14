// An installation that is there twice, by half, or in part of another version, as doctor sees it.
#include "tools/doctor/installation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "switchyard/fd.h"
#include "switchyard/paths.h"
#include "switchyard/version.h"
#include "tests/tools/fake_monitor.h"
#include "tools/doctor/around.h"
#include "tools/doctor/doctor.h"

namespace switchyard::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

Installation well() {
  Installation out;
  out.own = {"/usr/bin/switchyard", Origin::kPackage, "0.2.0"};
  Unit unit;
  unit.path = "/lib/systemd/system/switchyardd.service";
  unit.starts = Program{"/usr/bin/switchyardd", Origin::kPackage, "0.2.0"};
  out.units.push_back(unit);
  return out;
}

bool all_ok(const std::vector<Check>& checks) {
  return checks.size() == 1 && checks[0].verdict == Verdict::kOk && checks[0].remedy.empty();
}

TEST(Installation, OneThatIsWholeHasNoFindings) {
  EXPECT_TRUE(all_ok(check_installation(well())));
  EXPECT_TRUE(all_ok(check_units(well())));
  EXPECT_TRUE(all_ok(check_units({})));
  EXPECT_TRUE(all_ok(check_stale_preloads({})));
  EXPECT_TRUE(all_ok(check_places({{"/run/switchyard/monitor.sock", false, false, true}})));
  EXPECT_EQ(check_job_libraries({}).verdict, Verdict::kOk);
}

TEST(Installation, WithoutTheMonitorsProgramItIsHalfInstalled) {
  Installation found = well();
  found.no_monitor_program = "switchyardd was not found";
  const Check check = check_installation(found).at(0);
  EXPECT_EQ(check.verdict, Verdict::kFail);
  EXPECT_NE(check.what.find("half installed: switchyardd was not found"), std::string::npos);
  EXPECT_EQ(check.remedy, "sudo apt install --reinstall switchyard");
}

TEST(Installation, ASecondOneOfAnotherVersionIsNamedWithWhatRemovesIt) {
  const struct {
    Program other;
    const char* remedy;
  } cases[] = {
      {{"/usr/bin/switchyard", Origin::kPackage, "0.1.0"}, "sudo apt purge 'switchyard*'"},
      {{"/e/bin/switchyard", Origin::kWheel, "0.1.0"}, "/e/bin/python -m pip uninstall switchyard"},
      {{"/home/a/.local/bin/switchyard", Origin::kWheel, "0.1.0"}, "python3 -m pip uninstall"},
      {{"/usr/local/bin/switchyard", Origin::kSources, "0.1.0"}, "sudo make uninstall"},
      {{"/s/build/switchyard", Origin::kBuild, "0.1.0"}, "take /s/build out of PATH"},
      {{"/x/switchyard", Origin::kUnknown, ""}, "rm /x/switchyard"}};
  for (const auto& each : cases) {
    Installation found = well();
    found.others = {each.other};
    const auto checks = check_installation(found);
    ASSERT_EQ(checks.size(), 1u);
    EXPECT_EQ(checks[0].verdict, Verdict::kWarn);
    EXPECT_NE(checks[0].what.find(each.other.path + " is of "), std::string::npos);
    EXPECT_NE(checks[0].remedy.find(each.remedy), std::string::npos) << checks[0].remedy;
  }
}

TEST(Installation, ASecondOneOfTheSameVersionIsSaidAndIsWell) {
  Installation found = well();
  found.others = {{"/e/bin/switchyard", Origin::kWheel, "0.2.0"}};
  const auto checks = check_installation(found);
  EXPECT_TRUE(all_ok(checks));
  EXPECT_NE(checks[0].what.find("so is /e/bin/switchyard"), std::string::npos);
}

TEST(Installation, AUnitThatHidesAnotherIsOldOrStartsNothingIsAFinding) {
  Installation hides = well();
  hides.units[0].path = "/etc/systemd/system/switchyardd.service";
  hides.units[0].hidden = {"/lib/systemd/system/switchyardd.service"};
  Check check = check_units(hides).at(0);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.remedy,
            "sudo rm /etc/systemd/system/switchyardd.service && sudo systemctl daemon-reload");

  Installation missing = well();
  missing.units[0].program_missing = true;
  check = check_units(missing).at(0);
  EXPECT_EQ(check.verdict, Verdict::kFail);
  EXPECT_NE(check.what.find("starts /usr/bin/switchyardd, which is not there"), std::string::npos);
  EXPECT_NE(check.remedy.find("sudo rm /lib/systemd"), std::string::npos);

  Installation old = well();
  old.units[0].starts = Program{"/usr/local/bin/switchyardd", Origin::kSources, "0.1.0"};
  check = check_units(old).at(0);
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_NE(check.what.find("/usr/local/bin/switchyardd of version 0.1.0"), std::string::npos);
  EXPECT_NE(check.remedy.find("sudo make uninstall"), std::string::npos);
  EXPECT_NE(check.remedy.find("sudo systemctl restart switchyardd"), std::string::npos);
}

TEST(Installation, EntriesOfThePreloadsThatAreStaleAreFindings) {
  Preloads found;
  found.library = "/usr/lib/switchyard/libswitchyard.so";
  found.variable = {found.library};
  EXPECT_TRUE(all_ok(check_stale_preloads(found))) << "a job's own";
  found.variable = {"/e/libswitchyard.so"};
  found.variable_missing = {"/gone.so"};
  found.file = {"/usr/lib/switchyard/libswitchyard.so"};
  found.file_missing = {"/gone/libswitchyard.so"};
  const auto checks = check_stale_preloads(found);
  ASSERT_EQ(checks.size(), 4u);
  EXPECT_EQ(checks[0].verdict, Verdict::kFail) << "each program of the machine complains";
  EXPECT_EQ(checks[0].remedy, "sudo sed -i '\\#/gone/libswitchyard.so#d' /etc/ld.so.preload");
  EXPECT_EQ(checks[1].verdict, Verdict::kWarn);
  EXPECT_NE(checks[1].remedy.find("/etc/ld.so.preload"), std::string::npos);
  EXPECT_NE(checks[2].what.find("LD_PRELOAD names /gone.so"), std::string::npos);
  EXPECT_EQ(checks[2].remedy, "unset LD_PRELOAD");
  EXPECT_NE(checks[3].what.find("LD_PRELOAD names /e/libswitchyard.so"), std::string::npos);
}

TEST(Installation, SocketsThatNobodyServesAreFindings) {
  const auto checks = check_places({{"/tmp/switchyard-7/monitor.sock", true, false, false},
                                    {kSystemSocket, true, false, true},
                                    {kSystemSocket, true, false, false},
                                    {kSystemSocket, false, true, false}});
  ASSERT_EQ(checks.size(), 4u);
  EXPECT_EQ(checks[0].remedy, "rm /tmp/switchyard-7/monitor.sock");
  EXPECT_EQ(checks[1].remedy, "sudo systemctl restart switchyardd.socket");
  EXPECT_EQ(checks[2].remedy, "sudo rm /run/switchyard/monitor.sock");
  EXPECT_NE(checks[3].what.find(kSystemMark), std::string::npos);
  EXPECT_EQ(checks[3].remedy, "sudo rm /run/switchyard/system")
      << "the folder may be that of a monitor that lives";
  EXPECT_TRUE(all_ok(check_places({{kSystemSocket, false, true, true}})))
      << "an administrator has stopped it";
}

TEST(Installation, AMonitorOfAnotherVersionIsRestartedByTheCommandOfItsPlace) {
  EXPECT_EQ(check_monitor_version(kSystemSocket, kVersion).remedy, "");
  const Check systems = check_monitor_version(kSystemSocket, "0.0.1");
  EXPECT_EQ(systems.verdict, Verdict::kWarn);
  EXPECT_NE(systems.what.find("version 0.0.1, and this program is " + std::string(kVersion)),
            std::string::npos);
  EXPECT_EQ(systems.remedy, "sudo systemctl restart switchyardd");
  EXPECT_EQ(check_monitor_version("/tmp/m.sock", "0.0.1").remedy.rfind("switchyard stop", 0), 0u);
}

TEST(Installation, AJobThatKeepsAReplacedLibraryIsNoFault) {
  const Check check = check_job_libraries({{77, "train"}, {78, "serve"}});
  EXPECT_EQ(check.verdict, Verdict::kOk);
  EXPECT_NE(check.what.find("77 (train), 78 (serve)"), std::string::npos) << check.what;
  EXPECT_EQ(check.remedy, "");
}

// A machine in a folder.
class Around : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/switchyard-around-XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    root_ = folder;
    const char* path = ::getenv("PATH");
    path_ = path != nullptr ? path : "";
    ::setenv("PATH", "/nowhere", 1);
  }
  void TearDown() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("SWITCHYARD_SOCKET");
    fs::remove_all(root_);
  }
  std::string has(const std::string& path, const std::string& text = "") {
    const std::string all = root_ + path;
    fs::create_directories(fs::path(all).parent_path());
    std::ofstream(all) << text;
    return all;
  }
  std::string has_program(const std::string& path, const std::string& says) {
    const std::string all = has(path, "#!/bin/sh\necho " + says + "\n");
    fs::permissions(all, fs::perms::owner_all);
    return all;
  }
  Fd listens(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    fs::create_directories(fs::path(path).parent_path());
    Fd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(out.get(), 1), 0);
    return out;
  }

  std::string root_, path_;
};

TEST_F(Around, OtherProgramsAreFoundOnPathAndWhereTheyAreInstalled) {
  has("/usr/share/doc/switchyard/copyright");
  has("/usr/local/lib/switchyard/libswitchyard.so");
  const std::string package = has_program("/usr/bin/switchyard", "switchyard 0.2.0");
  const std::string sources = has_program("/usr/local/bin/switchyard", "switchyard 0.1.0");
  const std::string wheel = has_program("/env/bin/switchyard", "switchyard 0.3.0");
  const std::string build = has_program("/build/switchyard", "what is it?");
  has("/env/pyvenv.cfg");
  has("/build/CMakeCache.txt");
  fs::create_directory_symlink("env", root_ + "/again");
  ::setenv("PATH",
           (root_ + "/env/bin:" + root_ + "/again/bin:" + root_ + "/build:relative").c_str(), 1);
  const auto found = look_at_installation(root_).others;
  ASSERT_EQ(found.size(), 4u) << "each once";
  EXPECT_EQ(found[0].path, wheel);
  EXPECT_EQ(found[0].origin, Origin::kWheel);
  EXPECT_EQ(found[0].version, "0.3.0");
  EXPECT_EQ(found[1].path, build);
  EXPECT_EQ(found[1].origin, Origin::kBuild);
  EXPECT_EQ(found[1].version, "");
  EXPECT_EQ(found[2].path, sources);
  EXPECT_EQ(found[2].origin, Origin::kSources);
  EXPECT_EQ(found[2].version, "0.1.0");
  EXPECT_EQ(found[3].path, package);
  EXPECT_EQ(found[3].origin, Origin::kPackage);
}

TEST_F(Around, AUnitsProgramIsLookedForWhereSystemdLooks) {
  const std::string unit = has("/lib/systemd/system/switchyardd.service",
                               "[Service]\nExecStart=-+switchyardd --system\n");
  const std::string socket = has("/lib/systemd/system/switchyardd.socket", "[Socket]\n");
  auto units = look_at_installation(root_).units;
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].path, unit);
  EXPECT_TRUE(units[0].program_missing);
  EXPECT_EQ(units[1].path, socket);
  EXPECT_FALSE(units[1].starts);

  has_program("/usr/bin/switchyardd", "switchyardd 0.2.0");
  const std::string first = has_program("/usr/local/bin/switchyardd", "switchyardd 0.1.0");
  const std::string hides =
      has("/etc/systemd/system/switchyardd.service", "[Service]\nExecStart=switchyardd --system\n");
  units = look_at_installation(root_).units;
  EXPECT_EQ(units[0].path, hides);
  EXPECT_EQ(units[0].hidden, std::vector<std::string>{unit});
  EXPECT_FALSE(units[0].program_missing);
  EXPECT_EQ(units[0].starts->path, first) << "before /usr/bin";
  EXPECT_EQ(units[0].starts->version, "0.1.0");
}

TEST_F(Around, AProgramInTheCurrentFolderIsNoneThatSystemdFinds) {
  has("/lib/systemd/system/switchyardd.service", "[Service]\nExecStart=switchyardd --system\n");
  has_program("/here/switchyardd", "switchyardd 0.2.0");
  const fs::path before = fs::current_path();
  fs::current_path(root_ + "/here");
  const auto units = look_at_installation(root_).units;
  fs::current_path(before);
  ASSERT_EQ(units.size(), 1u);
  EXPECT_TRUE(units[0].program_missing);
}

TEST_F(Around, OneFileByTwoNamesIsOneUnit) {
  has("/usr/lib/systemd/system/switchyardd.service", "[Service]\nExecStart=/usr/bin/switchyardd\n");
  fs::create_directory_symlink("usr/lib", root_ + "/lib");
  const auto units = look_at_installation(root_).units;
  ASSERT_EQ(units.size(), 1u);
  EXPECT_TRUE(units[0].hidden.empty());
  EXPECT_EQ(units[0].starts->path, root_ + "/usr/bin/switchyardd");
}

TEST_F(Around, PreloadsAreSortedIntoOursAndThoseThatAreMissing) {
  const std::string ours = has("/e/libswitchyard.so");
  const std::string other = has("/e/libother.so");
  has("/etc/ld.so.preload", other + " /gone/libswitchyard.so\n" + ours + "\n");
  ::setenv("LD_PRELOAD", ("/gone.so:libc.so.6 " + ours).c_str(), 1);
  const Preloads found = look_at_preloads(root_);
  EXPECT_EQ(found.file, std::vector<std::string>{ours});
  EXPECT_EQ(found.file_missing, std::vector<std::string>{"/gone/libswitchyard.so"});
  EXPECT_EQ(found.variable, std::vector<std::string>{ours});
  EXPECT_EQ(found.variable_missing, std::vector<std::string>{"/gone.so"});
}

TEST_F(Around, ASocketIsDeadOnceNobodyListens) {
  const std::string own = root_ + "/m.sock";
  ::setenv("SWITCHYARD_SOCKET", own.c_str(), 1);
  Fd mine = listens(own);
  Fd systems = listens(root_ + kSystemSocket);
  for (const Place& place : look_at_places(root_)) EXPECT_FALSE(place.refuses) << place.socket;
  mine = Fd();
  systems = Fd();
  has("/lib/systemd/system/switchyardd.socket");
  auto places = look_at_places(root_);
  ASSERT_EQ(places.size(), 2u);
  EXPECT_EQ(places[0].socket, own);
  EXPECT_TRUE(places[0].refuses);
  EXPECT_FALSE(places[0].has_unit);
  EXPECT_EQ(places[1].socket, kSystemSocket);
  EXPECT_TRUE(places[1].refuses);
  EXPECT_TRUE(places[1].has_unit);
  fs::remove(own);
  fs::remove(root_ + kSystemSocket);
  has(kSystemMark);
  places = look_at_places(root_);
  EXPECT_FALSE(places[0].refuses);
  EXPECT_FALSE(places[1].refuses);
  EXPECT_TRUE(places[1].only_marked);
}

// The started monitor is another process: a program moves a listening socket to its place.
TEST_F(Around, ASocketThatDoctorsOwnMonitorTakesIsNotStale) {
  const auto monitor = FakeMonitor::answering([](const json&) -> json {
    return {{"ok", true}, {"version", "1"}};
  });
  const std::string own = root_ + "/run/monitor.sock";
  listens(own);
  fs::permissions(root_ + "/run", fs::perms::owner_all);
  const std::string program = has("/bin/switchyardd", "#!/bin/sh\n/bin/mv -f " + monitor.socket() +
                                                          " " + own + "\nexec /bin/sleep 2\n");
  fs::permissions(program, fs::perms::owner_all);
  ::setenv("PATH", (root_ + "/bin").c_str(), 1);
  const CommandEnd end = run_command(own, {&add_doctor}, {"doctor", "--no-probe", "--json"});
  fs::rename(own, monitor.socket());
  const json found = json::parse(end.out);
  bool answers = false;
  for (const json& check : found["checks"]) {
    answers = answers || check["name"] == "monitor";
    if (check["name"] == "stale sockets") {
      EXPECT_EQ(check["what"].get<std::string>().find(own), std::string::npos) << check;
    }
  }
  EXPECT_TRUE(answers) << end.out << end.err;
}

TEST_F(Around, ALibraryThatAProcessStillHasIsFoundInItsMaps) {
  const std::string library = has("/libswitchyard.so", std::string(4096, 'x'));
  const json jobs = json::array({{{"name", "mine"}, {"processes", {{{"pid", ::getpid()}}}}},
                                 {{"name", "ended"}, {"processes", {{{"pid", 0}}}}}});
  const Fd fd(::open(library.c_str(), O_RDONLY | O_CLOEXEC));
  void* const mapped = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_TRUE(look_at_job_libraries(jobs).empty());
  // As a package's installation does.
  fs::rename(has("/new", "y"), library);
  const auto old = look_at_job_libraries(jobs);
  ASSERT_EQ(old.size(), 1u);
  EXPECT_EQ(old[0].pid, ::getpid());
  EXPECT_EQ(old[0].job, "mine");
  ::munmap(mapped, 4096);
}

}  // namespace
}  // namespace switchyard::tools
