// The monitor's directory, socket, and claims.
#include "monitor/place.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "monitor/knobs.h"
#include "monitor/options.h"
#include "switchyard/status.h"
#include "tests/monitor/wire_client.h"

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

struct PlaceTest : testing::Test {
  PlaceTest() {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    base = ::mkdtemp(name);
  }
  ~PlaceTest() override { fs::remove_all(base); }
  std::string refused(const std::string& socket) {
    Place place;
    EXPECT_FALSE(place.open(socket, why, taken));
    return why;
  }
  std::string base, why;
  bool taken = false;
};

TEST_F(PlaceTest, MakesItsDirectoryAndSocket) {
  Place place;
  ASSERT_TRUE(place.open(base + "/new/monitor.sock", why, taken)) << why;
  EXPECT_TRUE(fs::is_socket(base + "/new/monitor.sock"));
  const auto mode = fs::status(base + "/new").permissions();
  EXPECT_EQ(mode & fs::perms::others_write, fs::perms::none);
}

TEST_F(PlaceTest, TheSocketGoesWithTheMonitor) {
  {
    Place place;
    ASSERT_TRUE(place.open(base + "/monitor.sock", why, taken)) << why;
  }
  EXPECT_FALSE(fs::exists(base + "/monitor.sock"));
}

TEST_F(PlaceTest, ALeftOverSocketIsReplaced) {
  {
    Place place;
    ASSERT_TRUE(place.open(base + "/monitor.sock", why, taken));
    fs::copy(base + "/monitor.sock.lock", base + "/copy");
    fs::create_symlink("nowhere", base + "/kept");
  }
  // As a killed monitor leaves it.
  std::ofstream(base + "/monitor.sock") << "stale";
  Place place;
  EXPECT_TRUE(place.open(base + "/monitor.sock", why, taken)) << why;
  EXPECT_TRUE(fs::is_socket(base + "/monitor.sock"));
}

TEST_F(PlaceTest, ASecondMonitorIsToldThatThePlaceIsTaken) {
  Place first;
  ASSERT_TRUE(first.open(base + "/monitor.sock", why, taken));
  Place second;
  EXPECT_FALSE(second.open(base + "/monitor.sock", why, taken));
  EXPECT_TRUE(taken);
  EXPECT_TRUE(fs::is_socket(base + "/monitor.sock")) << "the first one keeps its socket";
}

TEST_F(PlaceTest, ADirectoryThatOthersMayChangeIsRefused) {
  fs::create_directory(base + "/open");
  ::chmod((base + "/open").c_str(), 0777);
  EXPECT_NE(refused(base + "/open/monitor.sock").find("changed by others"), std::string::npos);
  ::chmod((base + "/open").c_str(), 01777);
  Place place;
  EXPECT_TRUE(place.open(base + "/open/monitor.sock", why, taken)) << "like /tmp itself: " << why;
}

TEST_F(PlaceTest, AFileInTheWayIsRefused) {
  std::ofstream(base + "/file") << "x";
  EXPECT_NE(refused(base + "/file/monitor.sock").find("not a directory"), std::string::npos);
}

TEST_F(PlaceTest, APathThatCanNotBeASocketIsRefused) {
  EXPECT_FALSE(refused("relative.sock").empty());
  EXPECT_FALSE(refused("").empty());
  EXPECT_FALSE(refused(base + "/" + std::string(120, 'x')).empty());
  EXPECT_FALSE(refused(base + "/not/there/monitor.sock").empty());
}

TEST_F(PlaceTest, ALockFileThatIsALinkIsNotFollowed) {
  std::ofstream(base + "/precious") << "x";
  fs::create_symlink(base + "/precious", base + "/monitor.sock.lock");
  EXPECT_FALSE(refused(base + "/monitor.sock").empty());
}

std::string unique_uuid() { return "GPU-test-" + std::to_string(::getpid()); }

TEST(Claims, TheSecondClaimNamesTheFirst) {
  std::string why;
  const std::string uuid = unique_uuid();
  const auto first = claim_gpus({uuid}, why);
  ASSERT_EQ(first.size(), 1u) << why;
  // The holder's own answer, as the server gives it.
  const pid_t child = ::fork();
  if (child == 0) {
    std::string child_why;
    const bool refused = claim_gpus({"GPU-other-" + uuid, uuid}, child_why).empty();
    const bool named = child_why.find("pid " + std::to_string(::getppid())) != std::string::npos &&
                       child_why.find("socket /here") != std::string::npos;
    ::_exit(refused && named ? 0 : 1);
  }
  pollfd poll_for{first[0].get(), POLLIN, 0};
  ASSERT_EQ(::poll(&poll_for, 1, test::kPatienceMs), 1);
  const Fd caller(::accept(first[0].get(), nullptr, nullptr));
  ASSERT_GT(::send(caller.get(), "socket /here", 12, MSG_NOSIGNAL), 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Claims, AClaimEndsWithItsHolder) {
  std::string why;
  ASSERT_EQ(claim_gpus({unique_uuid()}, why).size(), 1u);
  EXPECT_EQ(claim_gpus({unique_uuid()}, why).size(), 1u) << why;
}

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
  EXPECT_EQ(options->log_level, "debug");
  EXPECT_EQ(options->log_file, "/tmp/l");
  EXPECT_EQ(options->settings.caps.priority, Priority::kNormal);
  EXPECT_EQ(options->settings.caps.share, 4);
  EXPECT_EQ(options->settings.caps.memory_bytes, 40ull << 30);
  EXPECT_EQ(options->settings.caps.may_be_high, (std::set<uid_t>{1000, 1001}));
  EXPECT_EQ(options->settings.idle_exit, std::chrono::seconds(1));
}

TEST(Options, NonsenseIsAUsageError) {
  const std::vector<std::vector<std::string>> bad = {
      {"--capacity", "much"}, {"--capacity", "0"},      {"--cap-priority", "urgent"},
      {"--cap-share", "x"},   {"--cap-memory", "-1"},   {"--idle-exit", "soon"},
      {"--log", "loud"},      {"--allow-high", "root"}, {"--no-such-option"}};
  for (const auto& words : bad) {
    int exit_code = -1;
    EXPECT_FALSE(options_of(words, exit_code)) << words[0];
    EXPECT_EQ(exit_code, kUsage) << words[0];
  }
}

TEST(Options, HelpAndVersionEndWell) {
  for (const char* word : {"--help", "--version"}) {
    int exit_code = -1;
    EXPECT_FALSE(options_of({word}, exit_code));
    EXPECT_EQ(exit_code, kOk);
  }
}

TEST(Uuids, AreReadAsTheDriverWritesThem) {
  const auto uuid = parse_uuid("GPU-5f1c0da0-514d-4a70-8a11-737769746300");
  ASSERT_TRUE(uuid);
  EXPECT_EQ((*uuid)[0], 0x5f);
  EXPECT_EQ((*uuid)[14], 0x63);
  EXPECT_TRUE(parse_uuid("MIG-5F1C0DA0-514d-4a70-8a11-737769746300"));
  for (const char* text :
       {"", "GPU-", "GPU-5f", "CPU-5f1c0da0-514d-4a70-8a11-737769746300",
        "GPU-5f1c0da0-514d-4a70-8a11-73776974630x", "GPU-5f1c0da0-514d-4a70-8a11-7377697463000"}) {
    EXPECT_FALSE(parse_uuid(text)) << text;
  }
}

}  // namespace
}  // namespace switchyard::monitor
