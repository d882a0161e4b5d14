// A file that is replaced as a whole, and work in the background.
#include "monitor/platform/replace_file.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <sstream>

#include "monitor/platform/background.h"

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

class ReplacedFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name = "a.prom") const { return folder_ + "/" + name; }
  static std::string text(const std::string& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
  }

 private:
  std::string folder_;
};

TEST_F(ReplacedFiles, HaveTheNewTextAndOthersMayReadThem) {
  std::string why;
  const mode_t before = ::umask(077);
  EXPECT_TRUE(replace_file(path(), "one", why)) << why;
  EXPECT_TRUE(replace_file(path(), "two", why)) << why;
  ::umask(before);
  EXPECT_EQ(text(path()), "two");
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path()).parent_path()), {}), 1)
      << "nothing else is left there";
}

TEST_F(ReplacedFiles, AReaderOfTheOldOneKeepsThat) {
  std::string why;
  ASSERT_TRUE(replace_file(path(), "one", why)) << why;
  std::ifstream reader(path());
  ASSERT_TRUE(replace_file(path(), "two", why)) << why;
  std::string seen;
  reader >> seen;
  EXPECT_EQ(seen, "one");
}

TEST_F(ReplacedFiles, ALinkInTheWayIsNotFollowed) {
  std::ofstream(path("other")) << "of somebody";
  fs::create_symlink(path("other"), path() + ".new");
  std::string why;
  EXPECT_TRUE(replace_file(path(), "one", why)) << why;
  EXPECT_EQ(text(path("other")), "of somebody");
  EXPECT_EQ(text(path()), "one");
}

TEST_F(ReplacedFiles, AFailureIsSaidAndTheOldOneStands) {
  std::string why;
  EXPECT_FALSE(replace_file(path("none/a.prom"), "one", why));
  EXPECT_EQ(why, "No such file or directory");
  ASSERT_TRUE(fs::create_directory(path()));
  std::ofstream(path() + "/x") << "x";
  EXPECT_FALSE(replace_file(path(), "one", why));
  EXPECT_TRUE(fs::exists(path() + "/x"));
  EXPECT_FALSE(fs::exists(path() + ".new"));
}

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 60'000) == 1;
}

TEST(BackgroundWork, IsDoneInOrderAndToldOnTheLoop) {
  Background background;
  std::string done, told;
  for (const char* each : {"a", "b", "c"}) {
    EXPECT_TRUE(background.run([&done, each] { done += each; }, [&told, each] { told += each; }));
  }
  while (told.size() < 3) {
    ASSERT_TRUE(readable(background.finished()));
    background.finish();
  }
  EXPECT_EQ(done, "abc");
  EXPECT_EQ(told, "abc");
}

TEST(BackgroundWork, ThatStandsStillIsNotWaitedFor) {
  auto goes_on = std::make_shared<std::promise<void>>();
  auto ended = std::make_shared<std::promise<void>>();
  auto begun = std::make_shared<std::promise<void>>();
  bool told = false;
  {
    Background background;
    background.run(
        [goes_on, ended, begun] {
          begun->set_value();
          goes_on->get_future().wait();
          ended->set_value();
        },
        [&told] { told = true; });
    background.run([] { FAIL() << "what waited behind it is dropped"; }, [] {});
    begun->get_future().wait();
  }
  goes_on->set_value();
  ended->get_future().wait();
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace switchyard::monitor
