// A monitor is killed, and the next one reads the history. The clock is played, also the one of the
// store's thread.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "monitor/history/database.h"
#include "monitor/history/store.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

namespace fs = std::filesystem;

class HistoryAfterAKill : public ::testing::Test {
 protected:
  static constexpr Time kTick = milliseconds(200);  // of the loop (transport/server.cpp)
  static constexpr double kMostLost = 5;

  void SetUp() override {
    char name[] = "/tmp/switchyard-kill-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
    database = open("first");
    rig.monitor.ledger().records_to(
        [this](history::Rows rows) { waiting.add(std::move(rows), 1000); },
        [this] { return wall; });
  }
  void TearDown() override {
    database.reset();
    fs::remove_all(folder);
  }
  std::unique_ptr<history::Database> open(const std::string& name) {
    std::string why;
    auto out =
        history::Database::open({folder + "/" + name, 90, 256u << 20, {{"GPU-a", "Fake", 0}}}, why);
    EXPECT_NE(out, nullptr) << why;
    return out;
  }
  // A tick in which the job has all of the GPU. The store writes what waits once its pause is over.
  void step(Joined& job) {
    job.client->lanes[0].had.known = true;
    job.client->lanes[0].had.gpu_ns += static_cast<double>(kTick.count());
    job.shim.launch();
    used += monitor::seconds(kTick);
    rig.pass(kTick);
    if (rig.now < write_at) return;
    write_at = rig.now + history::Store::Bounds{}.pause;
    std::string why;
    ASSERT_TRUE(database->write(std::exchange(waiting, {}), {rig.now, wall}, why)) << why;
  }
  // The files as a kill leaves them, to a monitor that knows nothing else.
  json read_by_the_next(const std::string& name) {
    fs::create_directory(folder + "/" + name);
    fs::permissions(folder + "/" + name, fs::perms::owner_all);
    for (const char* file : {"/history.db", "/history.db-wal"}) {
      fs::copy_file(folder + "/first" + file, folder + "/" + name + file);
    }
    const json answer = json::parse(
        open(name)->report({.by = history::By::kJob, .until_hour = 1'000'000, .sees_all = true}));
    return answer["rows"];
  }

  std::string folder;
  Rig rig;
  std::int64_t wall = 490'000 * history::kHourSeconds;
  history::Rows waiting;
  Time write_at{0};
  double used = 0;  // by the job's own clock
  std::unique_ptr<history::Database> database;
};

TEST_F(HistoryAfterAKill, TheNextMonitorLacksFiveSecondsOfTheJobAtMost) {
  Joined job = rig.runs({.job = "a", .name = "train"});
  for (int i = 0; i < 50; ++i) step(job);  // ten seconds
  double most = 0;
  // The kill comes at each moment of two pauses of the store.
  for (int moment = 0; moment < 30; ++moment) {
    step(job);
    const json rows = read_by_the_next(std::to_string(moment));
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0]["exit"], "lost") << "nobody saw its end";
    const double billed = rows[0]["gpu_seconds"];
    EXPECT_LE(billed, used + 1e-6);
    EXPECT_LE(used - billed, kMostLost) << moment;
    EXPECT_LE(used - rows[0]["lived_seconds"].get<double>(), kMostLost) << moment;
    most = std::max(most, used - billed);
  }
  EXPECT_GT(most, 1) << "something was lost: the files are not those of an orderly end";
}

}  // namespace
}  // namespace switchyard::monitor::test
