// Jobs whose memory is lent to others, with the real monitor and the command line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/system/harness.h"
#include "tools/base/monitor_client.h"

namespace switchyard::system_tests {

class Release : public Scene {
 protected:
  void TearDown() override {
    child_.reset();
    Scene::TearDown();
  }
  void begin(const Words& options = {}, std::uint64_t mebibytes = 40, Changes changes = {}) {
    Words all = {"--name", "lender", "--swappable"};
    all.insert(all.end(), options.begin(), options.end());
    changes.insert(changes.begin(), {"FAKECUDA_PATTERN", "1"});
    child_.emplace(
        job(all, {built("tests/jobs/job_swap"), std::to_string(mebibytes * kMiB)}, changes));
    ASSERT_EQ(line(), "ready");
  }
  std::string line() { return line_of(*child_); }
  std::string ask(const std::string& command) { return system_tests::ask(*child_, command); }
  json gpu() { return gpu_of("lender"); }
  bool residency(const std::string& wanted) {
    // A job that looks for a monitor is in no list.
    return eventually([&] {
      const json found = gpu();
      return !found.is_null() && found.value("residency", "") == wanted;
    });
  }

  void resumes_beyond(const std::string& count) {
    ASSERT_EQ(cli({"resume", "lender"}).status, 0);
    ASSERT_TRUE(residency("resident"));
    EXPECT_TRUE(eventually([&] { return ask("count") != count; }));
  }

  std::optional<Child> child_;
};

// Two jobs of equal pieces, by default 48 MiB in pieces of 6, of which not all fit.
class ReleaseInParts : public Release {
 protected:
  struct Pieces {
    std::size_t count = 8;
    std::uint64_t mebibytes = 6;
  };
  // `environment`: the monitor's; `of_jobs`: theirs.
  void two_at_work(const Words& capacity, const Changes& environment = {}) {
    two_at_work(capacity, environment, Pieces{}, {});
  }
  void two_at_work(const Words& capacity, const Changes& environment, const Pieces& pieces,
                   Changes of_jobs) {
    owner_.emplace(monitor(capacity, environment));
    Words command = {built("tests/jobs/job_swap")};
    command.insert(command.end(), pieces.count, std::to_string(pieces.mebibytes * kMiB));
    of_jobs.insert(of_jobs.begin(), {"FAKECUDA_PATTERN", "1"});
    for (const char* name : {"one", "two"}) {
      jobs_.push_back(
          std::make_unique<Child>(job({"--name", name, "--oversubscribe"}, command, of_jobs)));
      ASSERT_EQ(said_by(jobs_.size() - 1), "ready");
      tell(jobs_.size() - 1, "begin");
    }
  }
  std::string said_by(std::size_t index) { return line_of(*jobs_[index]); }
  std::string tell(std::size_t index, const std::string& command) {
    return system_tests::ask(*jobs_[index], command);
  }
  // Until the memory of the job is on its way. That takes some milliseconds, and to start a command
  // takes longer on a loaded machine: so one connection asks as often as it can.
  bool caught_moving(const char* name) {
    auto client = tools::MonitorClient::connect(socket());
    if (!client) return false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLimit);
    std::size_t asked = 0;
    json last;
    while (std::chrono::steady_clock::now() < deadline) {
      auto listed = client->ask({{"op", "ps"}});
      if (!listed) break;
      ++asked;
      last = std::move((*listed)["jobs"]);
      for (const json& job : last) {
        if (job["name"] == name && job["residency"] == "moving") return true;
      }
    }
    ADD_FAILURE() << name << " was not seen to move, asked " << asked << " times; in the end "
                  << last;
    return false;
  }
  bool advances(std::size_t index) {
    const std::string before = tell(index, "count");
    return eventually([&] { return tell(index, "count") != before; });
  }

  // Both go on, and every word is where they left it.
  void expect_all_right() {
    EXPECT_TRUE(advances(0));
    EXPECT_TRUE(advances(1));
    for (const std::size_t each : {0, 1}) expect_right_in_the_end(each);
  }
  void expect_right_in_the_end(std::size_t index) {
    EXPECT_EQ(tell(index, "end"), "did end");
    EXPECT_EQ(tell(index, "check"), "right");
  }

  std::optional<Child> owner_;
  std::vector<std::unique_ptr<Child>> jobs_;
};

}  // namespace switchyard::system_tests
