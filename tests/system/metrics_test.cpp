// `switchyardd --metrics` and `--metrics-textfile`: what a scraper reads while jobs run.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "harness.h"
#include "tests/support/http.h"

namespace switchyard::system_tests {
namespace {

class Metrics : public Scene {
 protected:
  // No other test has this address of the machine's own.
  static std::string address() {
    const auto pid = static_cast<unsigned>(::getpid());
    return fmt::format("127.{}.{}.{}", 1 + pid / 65536 % 254, pid / 256 % 256, pid % 256);
  }
  static constexpr std::uint16_t kPort = 9835;
  static std::string place() { return address() + ":" + std::to_string(kPort); }

  static std::string scrape() {
    const test_support::HttpPeer peer(address(), kPort);
    peer.say("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string answer = peer.rest();
    EXPECT_EQ(answer.rfind("HTTP/1.1 200 OK\r\n", 0), 0u) << answer.substr(0, 200);
    return answer;
  }
  // Of the first sample with that name and that text in its labels; -1: there is none.
  static double value(const std::string& page, const std::string& name, const std::string& labels) {
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind(name + "{", 0) != 0 || line.find(labels) == std::string::npos) continue;
      return std::stod(line.substr(line.rfind(' ')));
    }
    return -1;
  }
};

TEST_F(Metrics, AScrapeTellsWhatEachJobHasHadAndItsCountersNeverFall) {
  const auto owner = monitor({"--metrics", place()});
  auto a = loop({"--name", "a", "--memory", "1GiB", "--priority", "high"});
  auto b = loop({"--name", "b"});
  std::string page;
  EXPECT_TRUE(eventually([&] {
    page = scrape();
    return value(page, "switchyard_gpu_seconds_total", R"(job_name="a")") > 0.1 &&
           value(page, "switchyard_gpu_seconds_total", R"(job_name="b")") > 0.1;
  })) << page;
  EXPECT_EQ(value(page, "switchyard_jobs", ""), 2);
  EXPECT_EQ(value(page, "switchyard_memory_quota_bytes", R"(job_name="a")"), 1024.0 * kMiB);
  EXPECT_EQ(value(page, "switchyard_job_state", R"(state="unmanaged")"), 0);
  EXPECT_GE(value(page, "switchyard_gpu_memory_used_bytes", R"(pci_bus_id="00000000:01:00.0")"), 0);
  EXPECT_NE(page.find(R"(job_name="a",user=")"), std::string::npos);
  EXPECT_EQ(page.find(",job="), std::string::npos) << "that label is Prometheus' own";
  const double before = value(page, "switchyard_gpu_seconds_total", R"(job_name="a")");
  a.finish(kLimit);
  EXPECT_TRUE(eventually([&] {
    page = scrape();
    return value(page, "switchyard_job_state", R"(priority="high",state="ended")") == 1 ||
           page.find(R"(state="ended"} 1)") != std::string::npos;
  })) << page;
  EXPECT_GE(value(page, "switchyard_gpu_seconds_total", R"(job_name="a")"), before);
  EXPECT_EQ(value(page, "switchyard_memory_quota_bytes", R"(job_name="a")"), -1);
  EXPECT_GE(value(page, "switchyard_user_gpu_seconds_total", ""), before);
  EXPECT_EQ(value(page, "switchyard_jobs", ""), 1);
}

TEST_F(Metrics, AnAddressThatCannotBeHadEndsTheMonitorWithALine) {
  const auto owner = monitor({"--metrics", place()});
  const auto second =
      run({built("switchyardd"), "--socket", in_folder("2.sock"), "--metrics", place()},
          {{"FAKECUDA_STATE", in_folder("gpu2")}});
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(says(second, "cannot listen for --metrics at " + place() +
                               ": Address already in use; another program has the port"))
      << second.err;
  EXPECT_NE(::access(in_folder("2.sock").c_str(), F_OK), 0) << "somebody may wait there in vain";
  const auto bad = run({built("switchyardd"), "--metrics", "localhost:9835"});
  EXPECT_EQ(bad.status, 2);
  EXPECT_TRUE(says(bad, "invalid value 'localhost:9835' for --metrics: expected an address"))
      << bad.err;
  const auto file = run({built("switchyardd"), "--metrics-textfile", in_folder("metrics.txt")});
  EXPECT_EQ(file.status, 2);
  EXPECT_TRUE(says(file, "for --metrics-textfile: expected an absolute path whose name ends in"))
      << file.err;
}

TEST_F(Metrics, OfAMonitorAndAnObserverWithOneAddressTheSecondEndsWithALine) {
  const Changes there{{"SWITCHYARD_SOCKET", in_folder("o.sock")}};
  const Words manages{built("switchyardd"), "--metrics", place()};
  const Words observes{built("switchyardd"), "--observe", "--socket",
                       in_folder("o.sock"),  "--metrics", place()};
  const auto is_refused = [this](const Words& second) {
    const auto end = run(second);
    EXPECT_EQ(end.status, 1);
    EXPECT_TRUE(says(end, "cannot listen for --metrics at " + place() +
                              ": Address already in use; another program has the port"))
        << end.err;
  };
  {
    const auto owner = start(observes);
    ASSERT_TRUE(eventually([&] { return monitor_pid(there) == owner.pid(); }));
    is_refused(manages);
    EXPECT_NE(::access(socket().c_str(), F_OK), 0) << "somebody may wait there in vain";
  }
  const auto owner = monitor({"--metrics", place()});
  is_refused(observes);
  EXPECT_EQ(monitor_pid(there), 0);
  EXPECT_EQ(monitor_pid(), owner.pid()) << "it goes on";
}

TEST_F(Metrics, ATextfileIsThereForAnybodyToRead) {
  const std::string path = in_folder("switchyard.prom");
  const auto owner = monitor({"--metrics-textfile", path});
  struct stat info {};
  EXPECT_TRUE(eventually([&] { return ::stat(path.c_str(), &info) == 0; }));
  EXPECT_EQ(info.st_mode & 07777, 0644u);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(value(text.str(), "switchyard_build_info", "version="), 1) << text.str();
}

// A folder that is not there is a line in the log, and costs nothing else.
TEST_F(Metrics, ATextfileThatCannotBeWrittenIsSaidInTheLog) {
  const auto owner = monitor({"--metrics-textfile", in_folder("none/switchyard.prom")});
  EXPECT_TRUE(eventually([&] {
    std::ostringstream text;
    text << std::ifstream(in_folder("m.log")).rdbuf();
    return text.str().find("none/switchyard.prom': No such file or directory") != std::string::npos;
  }));
  EXPECT_NE(monitor_pid(), 0);
}

}  // namespace
}  // namespace switchyard::system_tests
