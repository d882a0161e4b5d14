// The log in a file: bounded, and nobody else's.
#include "monitor/platform/log_file.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

class LogFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path() const { return folder_ + "/monitor.log"; }
  static std::string text(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }
  std::string refused() const {
    std::string why;
    EXPECT_EQ(open_log_file(path(), 1000, why), nullptr);
    return why;
  }

 private:
  std::string folder_;
};

TEST_F(LogFiles, AFullOneIsKeptOnceAndANewOneBegins) {
  std::string why;
  auto file = open_log_file(path(), 1000, why);
  ASSERT_NE(file, nullptr) << why;
  spdlog::logger log("test", file);
  for (int i = 0; i < 100; ++i) log.warn("line {} {}", i, std::string(50, 'x'));
  EXPECT_LE(fs::file_size(path()), 1000u);
  EXPECT_LE(fs::file_size(path() + ".old"), 1000u);
  EXPECT_NE(text(path()).find("line 99"), std::string::npos);
  EXPECT_EQ(text(path() + ".old").find("line 0 "), std::string::npos) << "one older file is kept";
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(LogFiles, OneThatIsThereGoesOn) {
  std::ofstream(path()) << "before\n";
  std::string why;
  auto file = open_log_file(path(), 1000, why);
  ASSERT_NE(file, nullptr) << why;
  spdlog::logger("test", file).warn("after");
  const std::string all = text(path());
  EXPECT_EQ(all.rfind("before\n", 0), 0u) << all;
  EXPECT_NE(all.find("after"), std::string::npos) << all;
}

TEST_F(LogFiles, ALinkIsNotFollowedAndASecondNameIsRefused) {
  std::ofstream(path() + ".precious") << "x";
  fs::create_symlink(path() + ".precious", path());
  EXPECT_NE(refused(), "");
  fs::remove(path());
  fs::create_hard_link(path() + ".precious", path());
  EXPECT_NE(refused(), "");
  EXPECT_EQ(text(path() + ".precious"), "x");
}

TEST_F(LogFiles, AnotherUsersIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  std::ofstream(path()) << "x";
  ASSERT_EQ(::chown(path().c_str(), 47112, 47112), 0);
  EXPECT_NE(refused().find("47112"), std::string::npos);
}

TEST_F(LogFiles, ALineHasTheZoneOfItsTime) {
  std::string why;
  auto file = open_log_file(path(), 1000, why);
  ASSERT_NE(file, nullptr) << why;
  spdlog::logger log("test", file);
  log.set_pattern(kLogPattern);
  log.warn("words");
  const std::string line = text(path());
  EXPECT_TRUE(std::regex_search(
      line, std::regex(R"(^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d \[warning\] words)")))
      << line;
}

}  // namespace
}  // namespace switchyard::monitor
