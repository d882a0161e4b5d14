// The command line of switchyardd, and its file that is read anew.
#include "monitor/options.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "monitor/core/job_settings.h"
#include "monitor/reload.h"
#include "switchyard/status.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor {
namespace {

std::optional<Options> options_of(std::vector<std::string> words, int& exit_code) {
  words.insert(words.begin(), "switchyardd");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), exit_code);
}

TEST(Options, AreUnderstood) {
  int exit_code = -1;
  const auto options =
      options_of({"--socket", "/x/y", "--persist", "--capacity", "24GiB", "--log", "debug:/tmp/l",
                  "--cap-priority", "normal", "--cap-share", "4", "--cap-memory", "40GiB",
                  "--allow-high", "1000,1001", "--idle-exit", "1s"},
                 exit_code);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->settings.socket, "/x/y");
  EXPECT_TRUE(options->settings.persist);
  EXPECT_EQ(options->settings.capacity, 24ull << 30);
  EXPECT_EQ(options->settings.log_level, "debug");
  EXPECT_EQ(options->log_file, "/tmp/l");
  EXPECT_EQ(options->settings.caps.priority, Priority::kNormal);
  EXPECT_EQ(options->settings.caps.share, 4);
  EXPECT_EQ(options->settings.caps.memory_bytes, 40ull << 30);
  EXPECT_EQ(options->settings.caps.may_be_high, (std::set<uid_t>{1000, 1001}));
  EXPECT_EQ(options->settings.idle_exit, std::chrono::seconds(1));
}

TEST(Options, TheSystemMonitorListensOnTheWellKnownPlaceAndStays) {
  int exit_code = -1;
  const auto options = options_of({"--system", "--wait-for-gpu", "2m"}, exit_code);
  if (::geteuid() != 0) {
    EXPECT_FALSE(options);
    EXPECT_EQ(exit_code, kUsage);
    return;
  }
  ASSERT_TRUE(options);
  EXPECT_EQ(options->settings.socket, "/run/switchyard/monitor.sock");
  EXPECT_TRUE(options->settings.persist);
  EXPECT_EQ(options->wait_for_gpu, std::chrono::minutes(2));
}

TEST(Options, NonsenseIsAUsageError) {
  const std::vector<std::vector<std::string>> bad = {{"--capacity", "much"},
                                                     {"--capacity", "0"},
                                                     {"--cap-priority", "urgent"},
                                                     {"--cap-share", "x"},
                                                     {"--cap-memory", "-1"},
                                                     {"--idle-exit", "soon"},
                                                     {"--wait-for-gpu", "soon"},
                                                     {"--system", "--socket", "/x/y"},
                                                     {"--socket", "a/relative/path"},
                                                     {"--socket", "/" + std::string(107, 'x')},
                                                     {"--log", "loud"},
                                                     {"--allow-high", "root"},
                                                     {"--allow-high", ""},
                                                     {"--capacity", ""},
                                                     {"--capacity="},
                                                     {"--host-pool", ""},
                                                     {"--cap-memory", ""},
                                                     {"--socket", ""},
                                                     {"--no-such-option"}};
  for (const auto& words : bad) {
    int exit_code = -1;
    EXPECT_FALSE(options_of(words, exit_code)) << words[0];
    EXPECT_EQ(exit_code, kUsage) << words[0];
  }
}

TEST(Options, ASocketThatCannotBeIsNamedByWhoSaidIt) {
  const auto said = [](const char* variable, const std::string& value) {
    ::setenv(variable, value.c_str(), 1);
    testing::internal::CaptureStderr();
    int exit_code = -1;
    EXPECT_FALSE(options_of({}, exit_code));
    EXPECT_EQ(exit_code, kUsage);
    ::unsetenv(variable);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said("SWITCHYARD_SOCKET", "m.sock")
                .find("'m.sock' for SWITCHYARD_SOCKET: expected an "
                      "absolute path of at most 107 bytes"),
            std::string::npos);
  if (::geteuid() == 0 && ::seteuid(65534) != 0) GTEST_SKIP() << "root has a socket of its own";
  const std::string runtime = "/" + std::string(99, 'x');
  const std::string text = said("XDG_RUNTIME_DIR", runtime);
  EXPECT_NE(text.find(runtime + "/switchyard/monitor.sock' for the socket in XDG_RUNTIME_DIR"),
            std::string::npos)
      << text;
  EXPECT_EQ(::seteuid(::getuid()), 0);
}

TEST(Options, AnOptionIsNoValueOfTheOneBeforeIt) {
  for (const char* word : {"--log-file", "--socket", "--capacity"}) {
    int exit_code = -1;
    testing::internal::CaptureStderr();
    EXPECT_FALSE(options_of({word, "--persist"}, exit_code));
    EXPECT_EQ(exit_code, kUsage);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("'--persist' looks like an option"),
              std::string::npos)
        << word;
  }
}

TEST(Options, HelpAndVersionEndWell) {
  for (const char* word : {"--help", "--version"}) {
    int exit_code = -1;
    EXPECT_FALSE(options_of({word}, exit_code));
    EXPECT_EQ(exit_code, kOk);
  }
}

// However soon the first reading is over.
TEST(Reload, ASignalDuringAReadingMakesOneMore) {
  char folder[] = "/tmp/switchyard-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string file = std::string(folder) + "/f.toml";
  std::ofstream(file) << "[caps]\n";
  int exit_code = -1;
  const auto options = options_of({"--config", file}, exit_code);
  ASSERT_TRUE(options);
  const test::LogLines log;
  {
    asio::io_context io;
    test::Rig rig;
    const Reload reload(io, rig.monitor, *options);
    ::raise(SIGHUP);
    ::raise(SIGHUP);
    const auto readings = [&] { return log.count(" is read anew: "); };
    while (readings() < 2 && io.run_one_for(std::chrono::seconds(5)) != 0) continue;
    EXPECT_EQ(readings(), 2u);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace switchyard::monitor
