// Containers under one monitor of the host: what is promised holds in each.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "container_scene.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

using Devices = Scene;

TEST_F(Devices, EachHasItsPriorityAndAllHaveTheMounts) {
  const auto end = cli({"cdi", "generate"});
  ASSERT_EQ(end.status, 0) << end.err;
  const json all = json::parse(end.out, nullptr, false);
  EXPECT_EQ(all["cdiVersion"], "0.5.0");
  EXPECT_EQ(all["kind"], "switchyard.io/job");
  std::map<std::string, json> devices;
  for (const auto& each : all["devices"]) {
    devices[each["name"]] = each["containerEdits"]["env"];
  }
  const json common{"LD_PRELOAD=/usr/lib/switchyard/libswitchyard.so",
                    "SWITCHYARD_SOCKET=/run/switchyard/m.sock"};
  EXPECT_EQ(devices["default"], common);
  for (const char* priority : {"high", "normal", "low"}) {
    json wanted = common;
    wanted.push_back(std::string("SWITCHYARD_PRIORITY=") + priority);
    EXPECT_EQ(devices[priority], wanted);
  }
  EXPECT_EQ(devices.size(), 4U);
  const std::map<std::string, std::string> wanted{
      {"/usr/lib/switchyard/libswitchyard.so", built("libswitchyard.so")},
      {"/usr/lib/switchyard/switchyard-entrypoint", built("switchyard-entrypoint")},
      {"/run/switchyard", fs::path(socket()).parent_path().string()}};
  std::map<std::string, std::string> mounts;
  for (const auto& each : all["containerEdits"]["mounts"]) {
    mounts[each["containerPath"]] = each["hostPath"];
    EXPECT_EQ(std::count(each["options"].begin(), each["options"].end(), "ro"), 1) << each;
  }
  EXPECT_EQ(mounts, wanted);
}

TEST_F(Devices, TheFileAppearsWholeForEverybody) {
  const std::string path = in_folder("etc/cdi/switchyard.json");
  EXPECT_EQ(cli({"cdi", "generate", "--output", path}).status, 0);
  EXPECT_EQ(cli({"cdi", "generate", "--output", path}).status, 0) << "once more, over the first";
  std::ifstream in(path);
  EXPECT_EQ(json::parse(in, nullptr, false)["kind"], "switchyard.io/job");
  struct stat about {};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0644U);
  EXPECT_EQ(std::distance(fs::directory_iterator(in_folder("etc/cdi")), {}), 1);
}

TEST_F(Devices, MistakesAreRefused) {
  EXPECT_EQ(cli({"cdi", "list"}).status, 2);
  EXPECT_EQ(cli({"cdi"}).status, 2);
  const auto name = cli({"cdi", "generate", "--output", in_folder("switchyard")});
  EXPECT_EQ(name.status, 2);
  EXPECT_TRUE(says(name, "ends in .json")) << name.err;
  std::ofstream(in_folder("file")) << "";
  const auto none = cli({"cdi", "generate", "--output", in_folder("file/switchyard.json")});
  EXPECT_EQ(none.status, 1);
  EXPECT_TRUE(says(none, "cannot write " + in_folder("file/switchyard.json"))) << none.err;
  // Without the entrypoint beside the library, a runtime would fail at each container.
  fs::copy_file(built("libswitchyard.so"), in_folder("libswitchyard.so"));
  const auto half =
      cli({"cdi", "generate"}, {{"SWITCHYARD_LIBRARY", in_folder("libswitchyard.so")}});
  EXPECT_EQ(half.status, 1);
  EXPECT_TRUE(says(half, "switchyard-entrypoint is not an executable file")) << half.err;
  const auto early = cli({"cdi", "generate", "--socket", in_folder("later/monitor.sock")});
  EXPECT_EQ(early.status, 0);
  EXPECT_TRUE(says(early, in_folder("later") + " does not exist yet")) << early.err;
}

constexpr char kLibrary[] = "/usr/lib/switchyard/libswitchyard.so";

class Containers : public ContainerScene {
 protected:
  void SetUp() override {
    ContainerScene::SetUp();
    if (!permitted()) GTEST_SKIP() << "unshare of user, mount and PID namespaces isn't permitted";
  }
  json gpu(const std::string& name) {
    const json job = host_job(name);
    return job.is_object() && !job["gpus"].empty() ? job["gpus"][0] : json();
  }
  // The same as enter(), where only programs of the container see what is preloaded.
  Child preloaded(const Container& container, const std::string& libraries,
                  const std::string& program, const Changes& changes = {}) {
    return start_in(container,
                    {"sh", "-c",
                     "LD_PRELOAD='" + libraries +
                         "' exec /usr/lib/switchyard/switchyard-entrypoint '" + program + "'"},
                    changes);
  }
};

TEST_F(Containers, AMissingMountIsSaidAndTheCommandRuns) {
  Container one = make_container("one");
  auto daemon = host_monitor();
  one.mounts_the_socket = false;
  fs::remove(one.root + "/run/switchyard");
  const auto bare = enter(one, {"job_loop", "--count", "3"}).finish(kLimit);
  EXPECT_EQ(bare.out, "kernels 3\n");
  EXPECT_TRUE(says(bare, "the host's /run/switchyard is not mounted")) << bare.err;
  const auto refused =
      enter(one, {"job_loop", "--count", "3"}, {{"SWITCHYARD_REQUIRE", "1"}}).finish(kLimit);
  EXPECT_EQ(refused.status, 125);
  EXPECT_EQ(refused.out, "");
  // The program alone, without the library beside it.
  const Container two = make_container("two");
  fs::copy_file(built("switchyard-entrypoint"), two.root + "/bin/switchyard-entrypoint");
  Container without = two;
  without.mounts_the_library = false;
  const auto end = run_in(without, {"/bin/switchyard-entrypoint", "job_loop", "--count", "3"});
  EXPECT_EQ(end.out, "kernels 3\n");
  EXPECT_TRUE(says(end, "libswitchyard.so is neither in /bin nor in /usr/lib/switchyard"))
      << end.err;
  // In the image, and the library in its fixed place.
  const auto both = run_in(two, {"/bin/switchyard-entrypoint", "job_loop", "--count", "3"},
                           {{"SWITCHYARD_REQUIRE", "1"}});
  EXPECT_EQ(both.out, "kernels 3\n") << both.err;
  EXPECT_EQ(both.err, "");
}

// A program without a new enough glibc runs as it would without Switchyard.
TEST_F(Containers, OneLineSaysWhyAnImageIsNotManaged) {
  const Container one = make_container("one");
  auto daemon = host_monitor();
  const std::string images = built("tests/images");
  fs::create_directories(fs::path(one.root + images).parent_path());
  fs::copy(images, one.root + images, fs::copy_options::recursive);
  struct Image {
    const char* program;
    const char* why;
  };
  for (const Image& each :
       {Image{"/2.27/program", "a glibc of version 2.27"}, Image{"/musl/program", "runs on musl"},
        Image{"/2.28/ld-linux-x86-64.so.2", "is linked statically"}}) {
    // A device has set it, which does not know the image. Behind it is the image's own.
    const auto end =
        preloaded(one, std::string(kLibrary) + ":mine.so", images + each.program).finish(kLimit);
    EXPECT_EQ(end.out, "ran with mine.so\n") << each.program;
    EXPECT_EQ(end.status, 9) << each.program;
    EXPECT_TRUE(says(end, each.why)) << end.err;
    EXPECT_EQ(std::count(end.err.begin(), end.err.end(), '\n'), 1) << end.err;
    const auto refused =
        enter(one, {images + each.program}, {{"SWITCHYARD_REQUIRE", "1"}}).finish(kLimit);
    EXPECT_EQ(refused.status, 125) << each.program;
    EXPECT_EQ(refused.out, "") << each.program;
  }
  const auto fits = preloaded(one, "mine.so", images + "/2.28/program").finish(kLimit);
  EXPECT_EQ(fits.out, "ran with " + std::string(kLibrary) + ":mine.so\n");
  EXPECT_EQ(fits.err, "");
}

// As an image with jemalloc does, which scripts/check_containers.sh has.
TEST_F(Containers, WhatAnImagePreloadsIsLoadedBeside) {
  const Container one = make_container("one");
  std::istringstream words(run({"ldd", "/bin/sh"}).out);
  std::string other;
  for (std::string word; words >> word;) {
    if (word[0] == '/' && fs::path(word).filename() == "libc.so.6") {
      other = (fs::path(word).parent_path() / "libresolv.so.2").string();
    }
  }
  ASSERT_FALSE(other.empty());
  add_program(one, other);
  auto daemon = host_monitor();
  auto job = preloaded(one, other, "job_loop", {{"SWITCHYARD_NAME", "both"}});
  ASSERT_EQ(line_of(job), "ready") << job.finish(kLimit).err;
  const json processes = host_job("both")["processes"];
  ASSERT_EQ(processes.size(), 1U);
  std::ifstream file("/proc/" + processes[0]["pid"].dump() + "/maps");
  std::stringstream maps;
  maps << file.rdbuf();
  EXPECT_NE(maps.str().find("/libresolv.so.2"), std::string::npos);
  EXPECT_NE(maps.str().find("/libswitchyard.so"), std::string::npos);
  EXPECT_EQ(job.finish(kLimit).err, "");
}

// Rootless: the root of the container is a user, and the host's root is a stranger there.
TEST_F(Containers, ARootlessOneBelievesTheMountedSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  constexpr uid_t kUser = 47111;
  Container one = make_container("one");
  one.user = kUser;
  fs::permissions(in_folder(""), fs::perms::owner_all | fs::perms::others_exec);
  // The first who uses the simulated GPU makes its files.
  for (const char* file : {"machine", "machine/gpu", "machine/gpu.locks"}) {
    if (std::string(file) != "machine") std::ofstream(in_folder(file)) << "";
    ASSERT_EQ(::chown(in_folder(file).c_str(), kUser, kUser), 0);
  }
  auto daemon = host_monitor();
  fs::permissions(in_folder("run/monitor.sock"), fs::perms::all);
  auto job =
      enter(one, {"job_loop"}, {{"SWITCHYARD_NAME", "rootless"}, {"SWITCHYARD_REQUIRE", "1"}});
  EXPECT_EQ(line_of(job), "ready");
  EXPECT_TRUE(host_job("rootless").is_object());
  EXPECT_EQ(job.finish(kLimit).err, "");
}

// All are root of the host, with and without user namespaces of their own.
class TwoRoots : public Containers, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    Containers::SetUp();
    if (IsSkipped()) return;
    if (!GetParam() && ::geteuid() != 0) GTEST_SKIP() << "needs root, or a user namespace";
    one_ = make_container("one");
    two_ = make_container("two");
    for (Container* each : {&one_, &two_}) {
      each->has_users = GetParam();
      add_program(*each, built("switchyard"), "/bin/switchyard");
    }
  }
  Child::End cli_in(const Container& container, Words words) {
    words.insert(words.begin(), "switchyard");
    return run_in(container, words, {{"SWITCHYARD_SOCKET", "/run/switchyard/monitor.sock"}});
  }
  Container one_, two_;
};

TEST_P(TwoRoots, NeitherCanTouchTheOthersJobOrTheMonitor) {
  auto daemon = host_monitor({"--cap-priority", "normal"});
  const auto settings = [](const char* name) {
    return Changes{{"SWITCHYARD_NAME", name}, {"SWITCHYARD_JOB", "train"}};
  };
  auto first = enter(one_, {"job_loop"}, settings("first"));
  ASSERT_EQ(line_of(first), "ready") << first.finish(kLimit).err;
  auto second = enter(two_, {"job_loop"}, settings("second"));
  ASSERT_EQ(line_of(second), "ready") << second.finish(kLimit).err;
  // The id names one user's jobs, so it is not one job.
  EXPECT_EQ(host_job("first")["processes"].size(), 1U);
  EXPECT_EQ(host_job("second")["processes"].size(), 1U);
  for (const Words& words :
       {Words{"set", "first", "--share", "2"}, Words{"pause", "first"}, Words{"swap-out", "first"},
        Words{"stop", "--force"}, Words{"policy", "fair"}, Words{"backend", "none"}}) {
    const auto end = cli_in(two_, words);
    EXPECT_EQ(end.status, 5) << words.front() << ": " << end.err;
  }
  EXPECT_EQ(host_job("first")["share_weight"], 1);
  // Root of the host stays root.
  EXPECT_EQ(cli({"set", "first", "--share", "3"}, on_the_host()).status, 0);
  EXPECT_EQ(cli({"set", "second", "--priority", "high"}, on_the_host()).status, 0);
  EXPECT_EQ(cli({"policy", "fair"}, on_the_host()).status, 0);
  EXPECT_EQ(first.finish(kLimit).err, "");
  EXPECT_EQ(second.finish(kLimit).err, "");
}

TEST_P(TwoRoots, SharePriorityAndQuotaHoldForBoth) {
  auto daemon = host_monitor();
  auto chat = enter(
      one_, {"job_loop"},
      {{"SWITCHYARD_NAME", "chat"}, {"SWITCHYARD_PRIORITY", "high"}, {"SWITCHYARD_SHARE", "3"}});
  auto train =
      enter(two_, {"job_loop"}, {{"SWITCHYARD_NAME", "train"}, {"CUDA_TASK_PRIORITY", "1"}});
  ASSERT_EQ(line_of(chat), "ready") << chat.finish(kLimit).err;
  ASSERT_EQ(line_of(train), "ready") << train.finish(kLimit).err;
  EXPECT_EQ(host_job("chat")["priority"], "high");
  EXPECT_EQ(host_job("chat")["share_weight"], 3);
  EXPECT_EQ(host_job("train")["priority"], "low");
  // The low one yields: its slice is shorter than the driver's default.
  EXPECT_TRUE(eventually([&] {
    const json slice = gpu("train")["slice_in_force_us"];
    return slice.is_number() && slice > 0 && slice < 1000;
  }));
  // Of one priority, they divide the GPU as their shares say.
  EXPECT_EQ(cli({"set", "train", "--priority", "high"}, on_the_host()).status, 0);
  EXPECT_TRUE(eventually([&] {
    const json three = gpu("chat")["share_asked_ratio"], one = gpu("train")["share_asked_ratio"];
    return three == 0.75 && one == 0.25;
  })) << gpu("chat")
      << gpu("train");
  for (const Container& each : {one_, two_}) {
    const auto quota = enter(each, {"job_alloc", "alloc:600", "alloc:600"},
                             {{"SWITCHYARD_MEMORY", "1GiB"}, {"SWITCHYARD_REQUIRE", "1"}})
                           .finish(kLimit);
    EXPECT_EQ(quota.out, "alloc 0\nalloc 2\n") << quota.err;
  }
  const auto end = chat.finish(kLimit);
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.err, "");
  EXPECT_EQ(train.finish(kLimit).err, "");
}

TEST_P(TwoRoots, NeitherSeesTheOthersCommandLine) {
  auto daemon = host_monitor();
  auto first = enter(one_, {"job_loop"}, {{"SWITCHYARD_NAME", "first"}});
  ASSERT_EQ(line_of(first), "ready") << first.finish(kLimit).err;
  const auto command_in = [](const std::string& text) {
    const json report = json::parse(text, nullptr, false);
    const bool listed = report.is_object() && report["rows"].size() == 1;
    return listed ? report["rows"][0]["command"] : json("no row: " + text);
  };
  // The job is written soon, with the name of its process.
  EXPECT_TRUE(eventually([&] {
    const json command = command_in(cli({"report", "--json"}, on_the_host()).out);
    return command.is_string() && command.get<std::string>().find("job_loop") == 0;
  })) << cli({"report", "--json"}, on_the_host()).out;
  EXPECT_EQ(command_in(cli_in(two_, {"report", "--json"}).out), nullptr);
  EXPECT_EQ(first.finish(kLimit).err, "");
}

TEST_P(TwoRoots, EachHasItsOwnJobsBelowTheCaps) {
  auto daemon = host_monitor({"--cap-priority", "normal", "--cap-memory", "1GiB"});
  ASSERT_EQ(::mkfifo((one_.root + "/tmp/go").c_str(), 0600), 0);
  const char* const kScript =
      "(read line < /tmp/go; export SWITCHYARD_SOCKET=/run/switchyard/monitor.sock;"
      " switchyard set mine --share 2; echo $? > /tmp/own;"
      " switchyard set mine --priority high; echo $? > /tmp/high;"
      " job_alloc alloc:600 alloc:600 > /tmp/alloc 2>&1; echo > /tmp/done) > /dev/null 2>&1 &"
      " exec job_loop";
  auto job = enter(one_, {"sh", "-c", kScript},
                   {{"SWITCHYARD_NAME", "mine"}, {"SWITCHYARD_PRIORITY", "high"}});
  ASSERT_EQ(line_of(job), "ready") << job.finish(kLimit).err;
  EXPECT_EQ(host_job("mine")["priority"], "normal") << "the cap";
  std::ofstream(one_.root + "/tmp/go") << "go\n";
  ASSERT_TRUE(eventually([&] { return fs::exists(one_.root + "/tmp/done"); }));
  const auto said = [&](const char* file) {
    std::string line;
    std::ifstream in(one_.root + "/tmp/" + file);
    std::getline(in, line, '\0');
    return line;
  };
  EXPECT_EQ(said("own"), "0\n");
  EXPECT_EQ(said("high"), "6\n");
  EXPECT_NE(said("alloc").find("alloc 2"), std::string::npos) << said("alloc");
  EXPECT_EQ(host_job("mine")["share_weight"], 2);
}

INSTANTIATE_TEST_SUITE_P(Namespaces, TwoRoots, ::testing::Bool(), [](const auto& users) {
  return users.param ? "WithUsers" : "WithoutUsers";
});

// `switchyard run` on the host, and a sandbox below it.
TEST_F(Containers, AProcessOfAJobThatGoesIntoOneStaysInItsJob) {
  const Container one = make_container("one");
  auto daemon = host_monitor();
  Words command{built("switchyard"), "run", "--require", "--name", "boxed", "--"};
  // The library would be looked for in the root file system, too.
  const Words inside = in_container(one, {"/usr/lib/switchyard/switchyard-entrypoint", "job_loop"});
  command.insert(command.end(),
                 {"env", "-u", "LD_PRELOAD", "SWITCHYARD_SOCKET=", "LD_LIBRARY_PATH=/driver"});
  command.insert(command.end(), inside.begin(), inside.end());
  auto child = start(command, on_the_host());
  ASSERT_EQ(line_of(child), "ready") << child.finish(kLimit).err;
  EXPECT_EQ(host_job("boxed")["processes"].size(), 1U);
  EXPECT_EQ(listing("ps", on_the_host())["jobs"].size(), 1U);
  EXPECT_EQ(child.finish(kLimit).status, 0);
}

}  // namespace
}  // namespace switchyard::system_tests
