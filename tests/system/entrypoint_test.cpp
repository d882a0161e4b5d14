// switchyard-entrypoint: what it becomes, what it prepends, and what it says where that can't be.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

class Entrypoint : public Scene {
 protected:
  Child::End enter(const Words& command, const Changes& changes = {}) {
    Words all{built("switchyard-entrypoint")};
    all.insert(all.end(), command.begin(), command.end());
    return run(all, changes);
  }
  // What the command finds in its environment; empty when it is not set.
  std::string seen(const std::string& name, const Changes& changes) {
    const auto end = enter({"printenv", name}, changes);
    return end.out.empty() ? "" : end.out.substr(0, end.out.size() - 1);
  }
};

std::string image(const std::string& name) { return built("tests/images/" + name); }

long lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST_F(Entrypoint, BecomesTheCommandWithItsStatusAndSignals) {
  auto daemon = monitor();
  EXPECT_EQ(enter({"sh", "-c", "exit 7"}).status, 7);
  EXPECT_EQ(enter({"--", "sh", "-c", "kill -TERM $$"}).status, 128 + 15);
  Child child = start({built("switchyard-entrypoint"), "sh", "-c", "echo $$"});
  const pid_t pid = child.pid();
  EXPECT_EQ(child.finish(kLimit).out, std::to_string(pid) + "\n");
}

TEST_F(Entrypoint, FailsToStartAsAShellDoes) {
  auto daemon = monitor();
  const auto none = enter({"no-such-program"});
  EXPECT_EQ(none.status, 127);
  EXPECT_TRUE(says(none, "cannot run 'no-such-program'")) << none.err;
  const std::string plain = in_folder("plain");
  std::ofstream(plain) << "#!/bin/sh\n";
  EXPECT_EQ(enter({plain}).status, 126);
  EXPECT_EQ(enter({}).status, 2);
  const std::string help = enter({"--help"}).out;
  EXPECT_NE(help.find("Usage:"), std::string::npos);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

TEST_F(Entrypoint, KeepsWhatTheImagePreloads) {
  auto daemon = monitor();
  EXPECT_EQ(seen("LD_PRELOAD", {}), built("libswitchyard.so"));
  EXPECT_EQ(seen("LD_PRELOAD", {{"LD_PRELOAD", "libm.so.6"}}),
            built("libswitchyard.so") + ":libm.so.6");
}

TEST_F(Entrypoint, AJobWithoutFurtherWordsIsManaged) {
  auto daemon = monitor();
  auto child = start({built("switchyard-entrypoint"), loop_program()},
                     {{"SWITCHYARD_NAME", "inside"}, {"SWITCHYARD_PRIORITY", "low"}});
  ASSERT_EQ(line_of(child), "ready");
  EXPECT_EQ(job_named("inside")["priority"], "low");
  const auto end = child.finish(kLimit);
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.err, "");
}

struct Unfit {
  const char* name;
  const char* program;
  const char* why;
};

class EntrypointUnfit : public Entrypoint, public ::testing::WithParamInterface<Unfit> {};

TEST_P(EntrypointUnfit, OneLineSaysWhyAndItRunsUnmanaged) {
  auto daemon = monitor();
  // As a container device sets it, which does not know the image. An image's own one stays.
  const auto end =
      enter({image(GetParam().program)}, {{"LD_PRELOAD", built("libswitchyard.so") + ":mine.so"}});
  EXPECT_EQ(end.out, "ran with mine.so\n");
  EXPECT_EQ(end.status, 9);
  EXPECT_EQ(lines_of(end.err), 1) << end.err;
  EXPECT_TRUE(says(end, GetParam().why) && says(end, "starting unmanaged")) << end.err;
  const auto silent = enter({image(GetParam().program)}, {{"SWITCHYARD_LOG", "off"}});
  EXPECT_EQ(silent.err, "");
  EXPECT_EQ(silent.out, "ran\n");
}

TEST_P(EntrypointUnfit, ItIsNotStartedWhereAMonitorIsRequired) {
  auto daemon = monitor();
  const auto end = enter({image(GetParam().program)}, {{"SWITCHYARD_REQUIRE", "1"}});
  EXPECT_EQ(end.status, 125);
  EXPECT_EQ(end.out, "");
  EXPECT_EQ(lines_of(end.err), 1) << end.err;
  EXPECT_TRUE(says(end, GetParam().why) && says(end, "SWITCHYARD_REQUIRE is set")) << end.err;
  EXPECT_EQ(enter({image(GetParam().program)}, {{"SWITCHYARD_REQUIRE", "0"}}).status, 9);
}

TEST_P(EntrypointUnfit, AScriptIsAsItsInterpreterIs) {
  auto daemon = monitor();
  const std::string script = in_folder("script");
  std::ofstream(script) << "#! " << image(GetParam().program) << " -x\n";
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  const auto end = enter({"script"}, {{"PATH", "/none:" + in_folder("")}});
  EXPECT_EQ(end.out, "ran\n");
  EXPECT_TRUE(says(end, GetParam().why)) << end.err;
}

INSTANTIATE_TEST_SUITE_P(
    Images, EntrypointUnfit,
    ::testing::Values(Unfit{"OldGlibc", "2.27/program",
                            "runs on a glibc of version 2.27, and the library needs"},
                      Unfit{"Musl", "musl/program", "runs on musl"},
                      Unfit{"Static", "2.28/ld-linux-x86-64.so.2", "is linked statically"}),
    [](const auto& unfit) { return std::string(unfit.param.name); });

TEST_F(Entrypoint, AGlibcThatIsJustNewEnoughGetsTheLibrary) {
  auto daemon = monitor();
  const auto end = enter({image("2.28/program")});
  EXPECT_EQ(end.out, "ran with " + built("libswitchyard.so") + "\n");
  EXPECT_EQ(end.err, "");
}

TEST_F(Entrypoint, WithoutALibraryItSaysWhereItLooked) {
  const std::string alone = in_folder("switchyard-entrypoint");
  std::filesystem::copy_file(built("switchyard-entrypoint"), alone);
  // Where Switchyard is installed on this machine, there is one.
  if (std::filesystem::exists("/usr/lib/switchyard/libswitchyard.so")) {
    EXPECT_EQ(run({alone, "printenv", "LD_PRELOAD"}).out, "/usr/lib/switchyard/libswitchyard.so\n");
    return;
  }
  const auto end = run({alone, "sh", "-c", "exit 5"});
  EXPECT_EQ(end.status, 5);
  EXPECT_TRUE(says(end, "neither in " + in_folder("").substr(0, in_folder("").size() - 1) +
                            " nor in /usr/lib/switchyard"))
      << end.err;
}

TEST_F(Entrypoint, WithoutAMonitorItSaysWhatToMount) {
  const auto end = enter({"sh", "-c", "exit 5"});
  EXPECT_EQ(end.status, 5);
  EXPECT_EQ(lines_of(end.err), 1);
  EXPECT_TRUE(says(end, "there is no socket " + socket()) && says(end, "until a monitor answers"))
      << end.err;
  EXPECT_EQ(enter({"true"}, {{"SWITCHYARD_REQUIRE", "1"}}).status, 125);
  EXPECT_EQ(enter({"true"}, {{"SWITCHYARD_LOG", "off"}}).err, "");
  // One that was killed leaves its socket.
  auto daemon = monitor();
  kill_and_wait(monitor_pid());
  const auto left = enter({"true"});
  EXPECT_TRUE(says(left, "no monitor listens on " + socket())) << left.err;
}

TEST_F(Entrypoint, SwitchedOffItDoesNothing) {
  const auto end = enter(
      {"printenv", "LD_PRELOAD"},
      {{"SWITCHYARD_DISABLE", "1"}, {"CUDA_TASK_PRIORITY", "x"}, {"LD_PRELOAD", "libm.so.6"}});
  EXPECT_EQ(end.out, "libm.so.6\n");
  EXPECT_EQ(end.err, "");
}

struct Translated {
  const char* name;
  Changes theirs;
  const char* ours;
  const char* value;  // empty: none
  const char* said = "";
};

class EntrypointTranslates : public Entrypoint, public ::testing::WithParamInterface<Translated> {};

TEST_P(EntrypointTranslates, WhatOtherSchedulersSet) {
  auto daemon = monitor();
  const std::string ours = GetParam().ours;
  Words command{built("switchyard-entrypoint"), "printenv", ours};
  const auto end = run(command, GetParam().theirs);
  const std::string value = GetParam().value;
  EXPECT_EQ(end.out, value.empty() ? "" : value + "\n");
  if (GetParam().said[0] == '\0') {
    EXPECT_EQ(end.err, "");
  } else {
    EXPECT_EQ(lines_of(end.err), 1) << end.err;
    EXPECT_TRUE(says(end, GetParam().said)) << end.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, EntrypointTranslates,
    ::testing::Values(
        Translated{
            "Memory", {{"CUDA_DEVICE_MEMORY_LIMIT", "4g"}}, "SWITCHYARD_MEMORY", "4294967296"},
        Translated{"MemoryOfAGpu",
                   {{"CUDA_DEVICE_MEMORY_LIMIT_0", "3000m"}},
                   "SWITCHYARD_MEMORY",
                   "3145728000"},
        Translated{"MemoryThatDiffers",
                   {{"CUDA_DEVICE_MEMORY_LIMIT_0", "2048M"}, {"CUDA_DEVICE_MEMORY_LIMIT_1", "1G"}},
                   "SWITCHYARD_MEMORY",
                   "1073741824",
                   "the smallest holds, 1024 MiB"},
        Translated{"NoMemory", {{"CUDA_DEVICE_MEMORY_LIMIT", "0"}}, "SWITCHYARD_MEMORY", ""},
        Translated{"BadMemory",
                   {{"CUDA_DEVICE_MEMORY_LIMIT_1", "much"}},
                   "SWITCHYARD_MEMORY",
                   "",
                   "CUDA_DEVICE_MEMORY_LIMIT_1 is 'much'"},
        Translated{"LittleMemory",
                   {{"CUDA_DEVICE_MEMORY_LIMIT", "10"}},
                   "SWITCHYARD_MEMORY",
                   "",
                   "CUDA_DEVICE_MEMORY_LIMIT is '10'"},
        Translated{"HugeMemory",
                   {{"CUDA_DEVICE_MEMORY_LIMIT", "999999999999999g"}},
                   "SWITCHYARD_MEMORY",
                   "",
                   "is ignored"},
        Translated{"OurMemory",
                   {{"CUDA_DEVICE_MEMORY_LIMIT", "x"}, {"SWITCHYARD_MEMORY", "1GiB"}},
                   "SWITCHYARD_MEMORY",
                   "1GiB"},
        Translated{"Limit", {{"CUDA_DEVICE_SM_LIMIT", "30"}}, "SWITCHYARD_LIMIT", "30%"},
        Translated{"NoLimit", {{"CUDA_DEVICE_SM_LIMIT", "100"}}, "SWITCHYARD_LIMIT", ""},
        Translated{"BadLimit",
                   {{"CUDA_DEVICE_SM_LIMIT", "101"}},
                   "SWITCHYARD_LIMIT",
                   "",
                   "CUDA_DEVICE_SM_LIMIT is '101'"},
        Translated{"High", {{"CUDA_TASK_PRIORITY", "0"}}, "SWITCHYARD_PRIORITY", "high"},
        Translated{"Low", {{"CUDA_TASK_PRIORITY", "1"}}, "SWITCHYARD_PRIORITY", "low"},
        Translated{"BadPriority",
                   {{"CUDA_TASK_PRIORITY", "2"}},
                   "SWITCHYARD_PRIORITY",
                   "",
                   "CUDA_TASK_PRIORITY is '2'"},
        Translated{"OurPriority",
                   {{"CUDA_TASK_PRIORITY", "0"}, {"SWITCHYARD_PRIORITY", "low"}},
                   "SWITCHYARD_PRIORITY",
                   "low"},
        Translated{"Portion", {{"GPU_PORTION", "0.25"}}, "SWITCHYARD_SHARE", "0.25"},
        Translated{"BadPortion",
                   {{"GPU_PORTION", "1.5"}},
                   "SWITCHYARD_SHARE",
                   "",
                   "GPU_PORTION is '1.5'"}),
    [](const auto& translated) { return std::string(translated.param.name); });

TEST_F(Entrypoint, AQuotaOfAnotherSchedulerIsKept) {
  auto daemon = monitor();
  const auto end = enter({built("tests/jobs/job_alloc"), "alloc:600", "alloc:600"},
                         {{"CUDA_DEVICE_MEMORY_LIMIT_0", "1024m"}, {"SWITCHYARD_REQUIRE", "1"}});
  EXPECT_EQ(end.out, "alloc 0\nalloc 2\n") << end.err;
}

}  // namespace
}  // namespace switchyard::system_tests
