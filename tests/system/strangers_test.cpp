// Many connections of another user that claim all that can be claimed, beside a job of root's.
// The row `strangers` of bench/ times it with 1,000; here is counted what must hold at any speed.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;

class StrangersAtWork : public Scene {
 protected:
  // Kilobytes of the monitor that are its own: pages are its clients', too.
  static long own_kilobytes(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/status");
    for (std::string word; file >> word;) {
      long value = 0;
      if (word == "RssAnon:" && file >> value) return value;
    }
    return -1;
  }
  std::string log() const {
    std::ifstream file(in_folder("m.log"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST_F(StrangersAtWork, TakeNeitherTheMonitorNorItsMemoryFromOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user can be played by root alone";
  constexpr int kConnections = 60;
  const Child owner = monitor();
  fs::permissions(in_folder(""), fs::perms::owner_all | fs::perms::others_exec);
  fs::copy_file(built("tests/jobs/job_strangers"), in_folder("job_strangers"));
  Child mine = loop({"--name", "mine", "--require"}, {"--us", "500"});
  const int pid = monitor_pid();
  const long before = own_kilobytes(pid);
  ASSERT_GT(before, 0);
  {
    const std::string uuid = listing("status")["gpus"][0]["uuid"];
    Child strangers =
        start({"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
               in_folder("job_strangers"), socket(), std::to_string(kConnections), uuid});
    // As many as one user may have, where the monitor may open few files.
    const std::string joined = line_of(strangers);
    ASSERT_EQ(joined.rfind("joined ", 0), 0u) << joined;
    EXPECT_GE(std::stoi(joined.substr(7)), 20);
    const long seen = kernels(mine);
    // Until the first late ranks are told of, and the rings have been full for long.
    EXPECT_TRUE(eventually([&] { return log().find("has not launched") != std::string::npos; }));
    for (int i = 0; i < 20; ++i) EXPECT_EQ(cli({"policy"}).status, 0);
    // A listing has all that the strangers claim, in parts: megabytes.
    for (int i = 0; i < 3; ++i) EXPECT_EQ(job_named("mine")["processes"].size(), 1u);
    EXPECT_TRUE(eventually([&] { return kernels(mine) > seen; }));
    EXPECT_LT(own_kilobytes(pid), before + 64 * 1024);
    EXPECT_EQ(strangers.finish(kLimit).status, 0);
  }
  EXPECT_TRUE(eventually([&] {
    const json all = listing("ps");
    return all.is_object() && all["jobs"].size() == 1;
  }));
  EXPECT_TRUE(eventually([&] { return own_kilobytes(pid) < before + 8 * 1024; }))
      << own_kilobytes(pid) << " KiB, before " << before;
  EXPECT_EQ(monitor_pid(), pid);
  const std::string said = log();
  EXPECT_EQ(said.find("joined job 'mine'"), said.rfind("joined job 'mine'"))
      << "the job never lost the monitor";
}

}  // namespace
}  // namespace switchyard::system_tests
