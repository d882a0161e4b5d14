// The door to the file: whose it may be, and the names that it has.
#include "monitor/config/reader.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "monitor/platform/processes.h"

namespace switchyard::monitor::config {
namespace {

namespace fs = std::filesystem;

class ConfigReader : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "switchyard-config-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/switchyard.toml";
    std::ofstream(path_) << "[caps]\n";
    ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string why_not(const std::string& path) const {
    std::string why;
    EXPECT_EQ(read_file(path, why), std::nullopt);
    return why;
  }
  std::string folder_, path_;
};

TEST_F(ConfigReader, AFileOfItsOwnIsRead) {
  std::string why;
  EXPECT_EQ(read_file(path_, why), "[caps]\n") << why;
}

TEST_F(ConfigReader, AFileThatOthersCanWriteIsNotBelieved) {
  for (const mode_t mode : {0664, 0646, 0666}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_NE(why_not(path_).find("can be written by others than its owner: chmod go-w"),
              std::string::npos);
  }
}

TEST_F(ConfigReader, AFileOfAnotherUserIsNotBelieved) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  ASSERT_EQ(::chown(path_.c_str(), 1000, 1000), 0);
  EXPECT_NE(why_not(path_).find("belongs to uid 1000: it must be root's"), std::string::npos);
}

TEST_F(ConfigReader, WhatIsNoFileIsNotWaitedFor) {
  EXPECT_EQ(why_not(folder_ + "/none"), "") << "there is none";
  EXPECT_NE(why_not(folder_).find("is no regular file"), std::string::npos);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(why_not(pipe).find("is no regular file"), std::string::npos);
  std::ofstream(path_) << std::string(kMostBytes + 1, '#');
  EXPECT_NE(why_not(path_).find("is larger than"), std::string::npos);
}

TEST_F(ConfigReader, NamesBecomeNumbersAndUnknownOnesAreTold) {
  Rules rules;
  rules.file = "f.toml";
  const auto add = [&rules](Scope scope, const char* name, unsigned line) {
    Rule rule;
    rule.scope = scope;
    rule.name = name;
    rule.line = line;
    rules.rules.push_back(rule);
  };
  add(Scope::kUser, "root", 1);
  add(Scope::kUser, "1007", 2);
  add(Scope::kGroup, "no-such-group", 3);
  add(Scope::kUser, "-1", 4);
  add(Scope::kContainer, "*", 5);
  const Remarks remarks = resolve(rules);
  EXPECT_EQ(remarks.nobody,
            (std::vector<std::string>{
                "f.toml:3: there is no group 'no-such-group': its rule holds for nobody",
                "f.toml:4: there is no user '-1': its rule holds for nobody"}));
  EXPECT_EQ(remarks.unanswered, std::vector<std::string>());
  EXPECT_EQ(rules.rules[0].id, 0u);
  EXPECT_EQ(rules.rules[1].id, 1007u);
  EXPECT_EQ(rules.rules[2].id, std::nullopt);
}

TEST_F(ConfigReader, ANameThatTheSystemDoesNotAnswerForIsNotOneThatNobodyHas) {
  Rules rules{"f.toml", {}};
  for (const char* name : {"students", "1007"}) {
    rules.rules.push_back({Scope::kGroup, name, std::nullopt, {}, {}, 7});
  }
  const Remarks remarks = resolve(rules, [](const Rule&) {
    return NameAnswer{std::nullopt, ECONNREFUSED};
  });
  EXPECT_EQ(remarks.nobody, std::vector<std::string>());
  EXPECT_EQ(remarks.unanswered, (std::vector<std::string>{
                                    "f.toml:7: asking the system for group 'students': Connection "
                                    "refused; once it answers, let the file be read anew"}));
}

// The kernel says them: a service of names may take its time.
TEST(PeerGroups, AreThoseOfTheProcessAtTheOtherEnd) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd one(ends[0]), other(ends[1]);
  const auto peer = peer_of(one.get());
  ASSERT_TRUE(peer);
  std::vector<gid_t> own(static_cast<std::size_t>(::getgroups(0, nullptr)));
  ASSERT_GE(::getgroups(static_cast<int>(own.size()), own.data()), 0);
  own.push_back(::getegid());
  std::vector<gid_t> seen = peer->groups;
  for (auto* list : {&own, &seen}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  EXPECT_EQ(seen, own);
  EXPECT_EQ(peer->owner().groups, peer->groups);
  EXPECT_TRUE(peer->owner() == Owner(peer->uid)) << "groups are not part of who it is";
}

}  // namespace
}  // namespace switchyard::monitor::config
