// The parts of `run` before the exec: words, knobs, program, environment.
#include "tools/run/run.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "switchyard/variables.h"
#include "tools/base/knobs.h"
#include "tools/base/places.h"
#include "tools/run/environment.h"
#include "tools/run/gpus.h"
#include "tools/run/program.h"
#include "tools/run/request.h"

namespace switchyard::tools {
namespace {

using Words = std::vector<std::string>;

// No SWITCHYARD_* variable of whoever runs the tests counts.
class RunEnvironment : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const Knob& knob : knobs()) ::unsetenv(knob.environment);
    ::unsetenv("LD_PRELOAD");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
  }
  void TearDown() override { SetUp(); }
};
using RunRequest = RunEnvironment;

std::pair<Words, Words> split(Words arguments) {
  Words command;
  split_command(arguments, command);
  return {arguments, command};
}

TEST(RunWords, TheCommandStartsBehindTheMarker) {
  const auto [own, command] = split({"run", "--name", "a", "--", "python", "--", "x.py"});
  EXPECT_EQ(own, (Words{"run", "--name", "a"}));
  EXPECT_EQ(command, (Words{"python", "--", "x.py"}));
}

TEST(RunWords, WithoutMarkerTheFirstWordThatIsNoOptionStartsTheCommand) {
  const auto [own, command] =
      split({"run", "--require", "--share=2", "--name", "a", "python", "-u", "x.py"});
  EXPECT_EQ(own, (Words{"run", "--require", "--share=2", "--name", "a"}));
  EXPECT_EQ(command, (Words{"python", "-u", "x.py"}));
}

TEST(RunWords, ASwappableJobIsAskedForWithoutAValue) {
  const auto [own, command] = split({"run", "--swappable", "python", "x.py"});
  EXPECT_EQ(own, (Words{"run", "--swappable"}));
  EXPECT_EQ(command, (Words{"python", "x.py"}));
}

TEST(RunWords, EveryFlagOfRunTakesNoValue) {
  for (const char* flag :
       {"-h", "--help", "--require", "--best-effort", "--separate", "--report"}) {
    EXPECT_EQ(split({"run", flag, "python"}).second, Words{"python"}) << flag;
  }
  for (const Knob& knob : knobs()) {
    if (knob.option == nullptr) continue;
    const bool flag = knob.may_be_flag();
    const auto command = split({"run", knob.option, "a", "b"}).second;
    EXPECT_EQ(command, flag ? (Words{"a", "b"}) : Words{"b"}) << knob.option;
  }
}

TEST(RunWords, NothingBehindTheMarkerIsNoCommand) {
  EXPECT_TRUE(split({"run", "--name", "a", "--"}).second.empty());
  EXPECT_TRUE(split({"run"}).second.empty());
}

// The monitor has the defaults, and its file may have others.
TEST_F(RunRequest, WhatNobodySaidIsNotAskedFor) {
  const auto card = make_card({});
  ASSERT_TRUE(card);
  for (const char* field :
       {"priority", "share", "memory", "on_oom", "oom_timeout", "swappable", "idle_release", "park",
        "gradient_noise", "urgent_collectives", "co_run"}) {
    EXPECT_EQ(card->at(field), "") << field;
  }
  EXPECT_EQ(card->count("job"), 0U);
  EXPECT_EQ(create_request(*card)["card"], nlohmann::json::object());
}

TEST_F(RunRequest, AnOptionWinsOverTheVariableAndThatOverTheDefault) {
  ::setenv("SWITCHYARD_PRIORITY", "low", 1);
  ::setenv("SWITCHYARD_SHARE", "3", 1);
  const auto card = make_card({{"share", "4"}});
  ASSERT_TRUE(card);
  EXPECT_EQ(card->at("priority"), "low");
  EXPECT_EQ(card->at("share"), "4");
}

TEST_F(RunRequest, InsideAnotherRunTheVariablesAreTheOuterJobs) {
  ::setenv("SWITCHYARD_JOB", "outer-1", 1);
  ::setenv("SWITCHYARD_NAME", "outer", 1);
  ::setenv("SWITCHYARD_MEMORY", "3GiB", 1);
  const auto card = make_card({});
  ASSERT_TRUE(card);
  EXPECT_EQ(card->at("name"), "");
  EXPECT_EQ(card->at("memory"), "");
}

TEST_F(RunRequest, APromiseIsWhatWasAskedForAndIsNotTheDefault) {
  EXPECT_TRUE(promises_of({}).empty());
  EXPECT_TRUE(promises_of({{"name", "a"}, {"priority", "normal"}, {"memory", "none"}}).empty());
  EXPECT_TRUE(promises_of({{"limit", "100%"}, {"deadline", "0"}, {"share", "1.0"}}).empty());
  EXPECT_TRUE(promises_of({{"oom_timeout", "5m"}, {"guard", "none"}}).empty());
  ::setenv("SWITCHYARD_LIMIT", "30%", 1);
  EXPECT_EQ(origins_text(promises_of({{"memory", "1g"}})), "SWITCHYARD_LIMIT and --memory");
  EXPECT_EQ(origins_text(promises_of({{"memory", "1g"}, {"limit", "none"}})), "--memory");
  EXPECT_EQ(origins_text(promises_of({{"swappable", "yes"}, {"priority", "low"}, {"share", "2"}})),
            "--priority, --share, SWITCHYARD_LIMIT and --swappable");
}

TEST_F(RunRequest, InsideAnotherRunADifferingSettingIsBeyondTheOuterJob) {
  enter_job("outer-1", {{"memory", "1GiB"}, {"priority", "low"}}, "/tmp/m.sock", "/l.so", false);
  EXPECT_TRUE(beyond_outer_job({{"memory", "1GiB"}, {"name", "x"}, {"limit", "none"}}).empty());
  EXPECT_TRUE(beyond_outer_job({{"memory", "1024m"}, {"limit", "100%"}}).empty());
  EXPECT_EQ(origins_text(beyond_outer_job({{"memory", "2GiB"}})), "--memory");
  EXPECT_EQ(origins_text(beyond_outer_job({{"memory", "none"}})), "--memory");
  EXPECT_EQ(origins_text(beyond_outer_job({{"priority", "normal"}})), "--priority");
  leave_job();
  ::unsetenv("SWITCHYARD_SOCKET");
}

TEST_F(RunRequest, EveryBadValueIsAUsageErrorWithTheValueAndTheForms) {
  const struct {
    const char* field;
    const char* text;
    const char* form;
  } cases[] = {
      {"priority", "urgent", "high, normal or low"},
      {"priority", "", "high, normal or low"},
      {"share", "0", "0.01 to 1000"},
      {"limit", "0", "1% to 100%"},
      {"limit", "30", "1% to 100%"},
      {"limit", "101%", "1% to 100%"},
      {"limit", "0.333333", "expected at most 7 characters"},
      {"limit", "33.33333%", "expected at most 7 characters"},
      {"guard", "60%", "1% to 50%"},
      {"guard", "5", "1% to 50%"},
      {"share", "automatic", "or auto"},
      {"deadline", "tomorrow", "from the job's start"},
      {"deadline", "25h", "up to 24h"},
      {"share", "-1", "0.01 to 1000"},
      {"share", "1001", "0.01 to 1000"},
      {"share", "nan", "0.01 to 1000"},
      {"memory", "20 gibi", "20GiB"},
      {"memory", "0", "20GiB"},
      {"memory", "10", "below 1 MiB needs a unit"},
      {"memory", "-1GiB", "20GiB"},
      {"memory", "2000TiB", "20GiB"},
      {"memory", "99999999999999999999999GiB", "20GiB"},
      {"on_oom", "swap", "fail or wait"},
      {"oom_timeout", "25h", "300s"},
      {"oom_timeout", "soon", "300s"},
      {"swappable", "maybe", "yes or no"},
      {"swappable", "", "yes or no"},
      {"oversubscribe", "perhaps", "yes or no"},
      {"urgent_collectives", "perhaps", "yes or no"},
      {"park", "gpu", "host, peer or auto"},
      {"park", "", "host, peer or auto"},
      {"gradient_noise", "0", "from 1 to 999999"},
      {"gradient_noise", "1000000", "from 1 to 999999"},
      {"gradient_noise", "often", "yes (the same as 1)"},
      {"co_run", "a b", "1 to 31 letters"},
      {"co_run", "", "1 to 31 letters"},
      {"co_run", "a2345678901234567890123456789012", "1 to 31 letters"},
      {"idle_release", "0", "above 0"},
      {"idle_release", "25h", "above 0"},
      {"idle_release", "never", "without work"},
      {"name", "a b", "letters"},
      {"name", "-a", "letters"},
  };
  for (const auto& bad : cases) {
    const auto card = make_card({{bad.field, bad.text}});
    ASSERT_FALSE(card) << bad.field << " " << bad.text;
    EXPECT_EQ(card.error().code, kUsage);
    const std::string value = std::string("'") + bad.text + "'";
    EXPECT_NE(card.error().text.find(value), std::string::npos) << card.error().text;
    EXPECT_NE(card.error().text.find(bad.form), std::string::npos) << card.error().text;
  }
}

TEST_F(RunRequest, TheEnvironmentMakesItSwappable) {
  ::setenv("SWITCHYARD_SWAPPABLE", "yes", 1);
  const auto card = make_card({});
  ASSERT_TRUE(card);
  EXPECT_EQ(card->at("swappable"), "yes");
  ::setenv("SWITCHYARD_SWAPPABLE", "1", 1);
  const auto bad = make_card({});
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().text.find("SWITCHYARD_SWAPPABLE"), std::string::npos);
}

TEST_F(RunRequest, ABadVariableIsNamedAsTheVariable) {
  ::setenv("SWITCHYARD_MEMORY", "lots", 1);
  const auto card = make_card({});
  ASSERT_FALSE(card);
  EXPECT_NE(card.error().text.find("SWITCHYARD_MEMORY"), std::string::npos);
}

TEST_F(RunRequest, TheCardTravelsWithoutWhatWasNotAskedFor) {
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const auto request = create_request({{"priority", "low"}, {"memory", ""}});
  EXPECT_EQ(request["op"], "create");
  EXPECT_EQ(request["pid"], ::getpid());
  EXPECT_EQ(request["card"], (nlohmann::json{{"priority", "low"}}));
  EXPECT_EQ(request["cuda_visible_devices"], "1");
}

NvmlReport report_of(unsigned gpus) {
  NvmlReport report;
  for (unsigned i = 0; i < gpus; ++i) {
    report.gpus.emplace_back();
    report.gpus[i].index = i;
    report.gpus[i].uuid = "GPU-aaaa0000-000" + std::to_string(i);
  }
  if (gpus == 0) report.problem = "NVML lists none";
  return report;
}

TEST(RunGpus, AreNamedByIndexOrTheBeginningOfAUuid) {
  const auto by_index = choose_gpus("2,0", report_of(3), false);
  ASSERT_TRUE(by_index);
  EXPECT_EQ(*by_index, "GPU-aaaa0000-0002,GPU-aaaa0000-0000");
  const auto by_uuid = choose_gpus("GPU-aaaa0000-0001", report_of(3), false);
  ASSERT_TRUE(by_uuid);
  EXPECT_EQ(*by_uuid, "GPU-aaaa0000-0001");
}

TEST(RunGpus, WhatIsNoListOfGpusIsAMistakeOfUsage) {
  for (const char* text : {"", ",", "0,", "one", "-1", "0;1", "GPU-", "99999999999", "0,0",
                           "1,GPU-aaaa0000-0001", "GPU-aaaa", "MIG-1"}) {
    const auto chosen = choose_gpus(text, report_of(3), false);
    ASSERT_FALSE(chosen) << text;
    EXPECT_EQ(chosen.error().code, kUsage) << text;
    EXPECT_NE(chosen.error().text.find("--gpus"), std::string::npos) << text;
  }
}

TEST(RunGpus, AGpuThatIsNotThereIsRefusedWithThoseThatAre) {
  for (const char* text : {"3", "0,7", "GPU-bbbb"}) {
    const auto chosen = choose_gpus(text, report_of(3), false);
    ASSERT_FALSE(chosen) << text;
    EXPECT_EQ(chosen.error().code, kRunRefused) << text;
    EXPECT_NE(chosen.error().text.find("this machine has GPUs 0, 1, 2"), std::string::npos)
        << chosen.error().text;
  }
  const auto chosen = choose_gpus("7", report_of(1), true);
  ASSERT_FALSE(chosen) << "--best-effort does not make a GPU";
  EXPECT_NE(chosen.error().text.find("this machine has GPU 0"), std::string::npos)
      << chosen.error().text;
}

TEST(RunGpus, AreTakenAsGivenUnderBestEffortWhereNvmlListsNone) {
  const auto refused = choose_gpus("0,2", report_of(0), false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, kRunRefused);
  for (const char* said : {"NVML lists none", "not started", "switchyard doctor"}) {
    EXPECT_NE(refused.error().text.find(said), std::string::npos) << refused.error().text;
  }
  const auto anyway = choose_gpus("0,2", report_of(0), true);
  ASSERT_TRUE(anyway);
  EXPECT_EQ(*anyway, "0,2");
  const auto nonsense = choose_gpus("0,x", report_of(0), true);
  ASSERT_FALSE(nonsense);
  EXPECT_EQ(nonsense.error().code, kUsage);
}

TEST(RunProgram, FoundAsAShellFindsIt) {
  EXPECT_FALSE(refuse_program("true"));
  EXPECT_FALSE(refuse_program("/bin/true"));
}

TEST(RunProgram, MissingIs127AndNotExecutableIs126) {
  EXPECT_EQ(refuse_program("no-such-program-at-all")->code, kNotFound);
  EXPECT_EQ(refuse_program("/no/such/program")->code, kNotFound);
  EXPECT_EQ(refuse_program("")->code, kNotFound);
  EXPECT_EQ(refuse_program("/etc/passwd")->code, kNotExecutable);
  EXPECT_EQ(refuse_program("/etc")->code, kNotExecutable);
}

TEST(RunProgram, AnEmptyPartOfPathIsTheCurrentFolder) {
  char folder[] = "/tmp/switchyard-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  std::ofstream(std::string(folder) + "/only-here") << "x";
  ::chmod((std::string(folder) + "/only-here").c_str(), 0755);
  const auto before = std::filesystem::current_path();
  const std::string path = ::getenv("PATH");
  std::filesystem::current_path(folder);
  for (const char* with : {"", ":", "/nowhere:", ":/nowhere", "/nowhere::/nowhere"}) {
    ::setenv("PATH", with, 1);
    EXPECT_FALSE(refuse_program("only-here")) << with;
  }
  ::setenv("PATH", "/nowhere", 1);
  EXPECT_TRUE(refuse_program("only-here"));
  ::setenv("PATH", path.c_str(), 1);
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

TEST(RunPreload, OursComesLastAndOnlyOnceAndOthersStay) {
  const std::string ours = "/opt/libswitchyard.so";
  EXPECT_EQ(preload_with("", ours), ours);
  EXPECT_EQ(preload_with("liba.so:libb.so", ours), "liba.so:libb.so:" + ours);
  EXPECT_EQ(preload_with("liba.so libb.so", ours), "liba.so:libb.so:" + ours);
  EXPECT_EQ(preload_with(ours, ours), ours);
  EXPECT_EQ(preload_with("/old/libswitchyard.so:liba.so", ours), "liba.so:" + ours);
  EXPECT_EQ(preload_without("::" + ours + ": :"), "");
  EXPECT_EQ(preload_without("libnotswitchyard.so"), "libnotswitchyard.so");
}

TEST_F(RunEnvironment, EnteringAJobSetsWhatTheShimReads) {
  ::setenv("SWITCHYARD_MEMORY", "1GiB", 1);
  ::setenv("LD_PRELOAD", "liba.so", 1);
  enter_job("train-1", {{"name", "train"}, {"priority", "low"}, {"memory", ""}}, "/tmp/m.sock",
            "/opt/libswitchyard.so", true);
  EXPECT_STREQ(::getenv("SWITCHYARD_JOB"), "train-1");
  EXPECT_STREQ(::getenv("SWITCHYARD_NAME"), "train");
  EXPECT_STREQ(::getenv("SWITCHYARD_PRIORITY"), "low");
  EXPECT_EQ(::getenv("SWITCHYARD_MEMORY"), nullptr) << "an outer job's quota is not ours";
  EXPECT_STREQ(::getenv("SWITCHYARD_SOCKET"), "/tmp/m.sock");
  EXPECT_STREQ(::getenv("SWITCHYARD_REQUIRE"), "1");
  EXPECT_STREQ(::getenv("LD_PRELOAD"), "liba.so:/opt/libswitchyard.so");
  leave_job();
  EXPECT_EQ(::getenv("SWITCHYARD_JOB"), nullptr);
  EXPECT_EQ(::getenv("SWITCHYARD_REQUIRE"), nullptr);
  EXPECT_STREQ(::getenv("LD_PRELOAD"), "liba.so");
  ::unsetenv("SWITCHYARD_SOCKET");
}

TEST_F(RunEnvironment, StayingInAJobRequiresAMonitorOnlyIfTheNestedRunDoes) {
  stay_in_job("/opt/libswitchyard.so", true);
  EXPECT_STREQ(::getenv("SWITCHYARD_REQUIRE"), "1");
  stay_in_job("/opt/libswitchyard.so", false);
  EXPECT_EQ(::getenv("SWITCHYARD_REQUIRE"), nullptr) << "run --best-effort wins over the variable";
}

TEST(RunLibrary, APathThatPreloadWouldSplitIsRefusedWithWhatToDo) {
  char folder[] = "/tmp/switchyard test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string library = std::string(folder) + "/libswitchyard.so";
  std::ofstream(library) << "x";
  ::setenv("SWITCHYARD_LIBRARY", library.c_str(), 1);
  const auto found = find_library();
  ::unsetenv("SWITCHYARD_LIBRARY");
  std::filesystem::remove_all(folder);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().text.find(library), std::string::npos) << found.error().text;
  EXPECT_NE(found.error().text.find("blank"), std::string::npos) << found.error().text;
}

TEST(RunLibrary, AFileThatIsNoSharedLibraryOfThisMachineIsRefused) {
  char folder[] = "/tmp/switchyard-library-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/libswitchyard.so";
  const auto found = [&](const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    ::setenv("SWITCHYARD_LIBRARY", path.c_str(), 1);
    auto out = find_library();
    ::unsetenv("SWITCHYARD_LIBRARY");
    return out;
  };
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string head(64, 0);
  self.read(head.data(), 64);
  head[16] = 3;  // ET_DYN
  EXPECT_TRUE(found(head));
  std::string other = head;
  other[18] = static_cast<char>(other[18] ^ 1);  // another machine
  std::string object = head;
  object[16] = 1;  // ET_REL
  for (const std::string& bad : {std::string(), std::string("root:x:0:0:root:/root:/bin/sh\n"),
                                 head.substr(0, 19), other, object}) {
    const auto none = found(bad);
    ASSERT_FALSE(none) << bad.size();
    EXPECT_NE(none.error().text.find(path + "', which is no shared library of this machine"),
              std::string::npos)
        << none.error().text;
  }
  std::filesystem::remove_all(folder);
}

TEST(Variables, AFlagIsOnUnlessItIsEmptyOrZero) {
  constexpr char kName[] = "SWITCHYARD_TEST_FLAG";
  for (const char* on : {"1", "yes", "true", "no", "00"}) {
    ::setenv(kName, on, 1);
    EXPECT_TRUE(flag_variable(kName)) << on;
  }
  ::setenv(kName, "0", 1);
  EXPECT_FALSE(flag_variable(kName));
  EXPECT_FALSE(flag_variable(kName, true));
  ::setenv(kName, "", 1);
  EXPECT_FALSE(flag_variable(kName));
  EXPECT_TRUE(flag_variable(kName, true));
  ::unsetenv(kName);
  EXPECT_FALSE(flag_variable(kName));
  EXPECT_TRUE(flag_variable(kName, true));
}

std::string unknown_among(std::vector<const char*> environment) {
  environment.push_back(nullptr);
  char names[512] = "";
  const bool any = list_unknown_variables(environment.data(), names);
  EXPECT_EQ(any, names[0] != '\0');
  return names;
}

TEST(Variables, AMisspeltOneIsFound) {
  EXPECT_EQ(
      unknown_among({"PATH=x", "SWITCHYARD_MEMORY=1g", "SWITCHYARD_LOG=", "SWITCHYARD_TEST_X=1"}),
      "");
  for (const Knob& knob : knobs()) {
    const std::string text = std::string(knob.environment) + "=1";
    EXPECT_EQ(unknown_among({text.c_str()}), "") << text;
  }
  EXPECT_EQ(unknown_among({"SWITCHYARD_MEMORY=1g", "SWITCHYARD_MEMROY=1g"}), "SWITCHYARD_MEMROY");
  EXPECT_EQ(unknown_among({"SWITCHYARD_MEMORYS=1g"}), "SWITCHYARD_MEMORYS");
}

TEST(Variables, AllMisspeltOnesAreNamedUpToEight) {
  EXPECT_EQ(unknown_among({"SWITCHYARD_A=1", "SWITCHYARD_JOB=x", "SWITCHYARD_B"}),
            "SWITCHYARD_A, SWITCHYARD_B");
  const std::string eight =
      "SWITCHYARD_A, SWITCHYARD_A, SWITCHYARD_A, SWITCHYARD_A, SWITCHYARD_A, SWITCHYARD_A, "
      "SWITCHYARD_A, SWITCHYARD_A";
  EXPECT_EQ(unknown_among(std::vector<const char*>(8, "SWITCHYARD_A=1")), eight);
  EXPECT_EQ(unknown_among(std::vector<const char*>(12, "SWITCHYARD_A=1")), eight + ", ...");
  const std::string longest = "SWITCHYARD_" + std::string(600, 'A');
  EXPECT_EQ(unknown_among({longest.c_str(), "SWITCHYARD_B"}), longest.substr(0, 511));
}

}  // namespace
}  // namespace switchyard::tools
