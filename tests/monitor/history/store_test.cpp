// The store's thread behind a disk that stalls, fails, and is damaged.
#include "monitor/history/store.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "tests/monitor/log_lines.h"

namespace switchyard::monitor::history {
namespace {

using test::LogLines;

// What a made-up disk has, and how it behaves.
struct Disk {
  std::mutex mutex;
  std::condition_variable changed;
  bool stalls = false, full = false;
  bool stalled = false;  // a write stands still now
  int refused = 0;
  Rows written;

  void set(bool& what, bool value) {
    const std::lock_guard lock(mutex);
    what = value;
    changed.notify_all();
  }
  template <typename Condition>
  void wait(Condition condition) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), condition));
  }
};

class OnDisk final : public Backend {
 public:
  explicit OnDisk(Disk& disk) : disk_(disk) {}
  bool write(const Rows& rows, Moment, std::string& why) override {
    std::unique_lock lock(disk_.mutex);
    disk_.stalled = disk_.stalls;
    disk_.changed.notify_all();
    disk_.changed.wait(lock, [this] { return !disk_.stalls; });
    disk_.stalled = false;
    why = "disk full";
    disk_.refused += disk_.full ? 1 : 0;
    if (!disk_.full) disk_.written.add(rows, 1000);
    disk_.changed.notify_all();
    return !disk_.full;
  }
  bool tidy(Moment) override { return false; }
  std::string report(const Query& query) override { return "{\"job\":\"" + query.job + "\"}"; }

 private:
  Disk& disk_;
};

Rows bill_of(JobKey job, double seconds) {
  Rows rows;
  rows.jobs[job] = {.id = std::to_string(job)};
  rows.bills[{1, job, 0}].gpu_seconds = seconds;
  return rows;
}

class HistoryStore : public ::testing::Test {
 protected:
  Store::Open disk_open() {
    return [this](std::string&) { return std::make_unique<OnDisk>(disk); };
  }
  static Store::Bounds soon(std::size_t rows = 1000) {
    return {.rows = rows, .pause = std::chrono::milliseconds(1)};
  }
  static void finish(Store& store) {
    pollfd entry{store.finished(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 60'000), 1);
    store.finish();
  }
  double written(JobKey job) {
    const auto found = disk.written.bills.find({1, job, 0});
    return found != disk.written.bills.end() ? found->second.gpu_seconds : 0;
  }

  Disk disk;
};

TEST_F(HistoryStore, RowsReachTheDiskAndWhatIsLeftDoesAtItsEnd) {
  {
    Store store(disk_open(), soon());
    store.add(bill_of(1, 2));
    disk.wait([this] { return written(1) == 2; });
  }
  {
    Store store(disk_open(), {.pause = std::chrono::hours(1)});
    store.add(bill_of(2, 3));
  }
  EXPECT_EQ(written(2), 3);
}

TEST_F(HistoryStore, ADiskThatStallsStopsNobodyAndLosesNothing) {
  disk.stalls = true;
  Store store(disk_open(), soon());
  store.add(bill_of(1, 1));
  disk.wait([this] { return disk.stalled; });
  // The thread stands still inside of the disk from here on.
  for (int i = 0; i < 1000; ++i) store.add(bill_of(1, 1));
  EXPECT_EQ(store.lost(), 0u);
  disk.set(disk.stalls, false);
  disk.wait([this] { return written(1) == 1001; });
}

TEST_F(HistoryStore, ItsEndDoesNotWaitForADiskThatStalls) {
  disk.stalls = true;
  {
    Store store(disk_open(), soon());
    store.add(bill_of(1, 1));
    disk.wait([this] { return disk.stalled; });
  }
  disk.wait([this] { return disk.stalled; });
  disk.set(disk.stalls, false);
  disk.wait([this] { return written(1) == 1; });  // before the disk of this test goes
}

TEST_F(HistoryStore, AFullDiskIsToldOnceAndTriedAgain) {
  LogLines log;
  disk.full = true;
  Store store(disk_open(), soon());
  store.add(bill_of(1, 1));
  disk.wait([this] { return disk.refused >= 3; });
  store.add(bill_of(1, 1));
  disk.set(disk.full, false);
  disk.wait([this] { return written(1) == 2; });
  EXPECT_EQ(store.lost(), 0u);
  finish(store);
  EXPECT_EQ(log.count("writing the history failed: disk full"), 1u);
  while (log.count("the history is written again") == 0) finish(store);
}

TEST_F(HistoryStore, RowsThatComeDuringAWriteThatFailsAreWrittenWithTheNext) {
  disk.stalls = disk.full = true;
  Store store(disk_open(), soon());
  store.add(bill_of(1, 1));
  disk.wait([this] { return disk.stalled; });
  store.add(bill_of(1, 1));
  disk.set(disk.stalls, false);
  disk.wait([this] { return disk.refused >= 1; });
  disk.set(disk.full, false);
  disk.wait([this] { return written(1) == 2; });
  EXPECT_EQ(store.lost(), 0u);
}

TEST_F(HistoryStore, TheLastRowOfAJobIsTheOneThatCameDuringAWriteThatFails) {
  disk.stalls = disk.full = true;
  Store store(disk_open(), soon());
  Rows lives = bill_of(1, 1), ends = bill_of(1, 1);
  lives.events = {{.json = "first"}};
  ends.events = {{.json = "second"}};
  ends.jobs[1].ended = 7;
  ends.jobs[1].exit = "exit code 3";
  store.add(std::move(lives));
  disk.wait([this] { return disk.stalled; });
  store.add(std::move(ends));
  disk.set(disk.stalls, false);
  disk.wait([this] { return disk.refused >= 1; });
  disk.set(disk.full, false);
  disk.wait([this] { return written(1) == 2; });
  const std::lock_guard lock(disk.mutex);
  EXPECT_EQ(disk.written.jobs[1].ended, 7);
  EXPECT_EQ(disk.written.jobs[1].exit, "exit code 3");
  ASSERT_EQ(disk.written.events.size(), 2u);
  EXPECT_EQ(disk.written.events[0].json, "first");
  EXPECT_EQ(disk.written.events[1].json, "second");
}

TEST_F(HistoryStore, BeyondItsBoundRowsAreCountedAndToldOnce) {
  LogLines log;
  disk.stalls = true;
  Store store(disk_open(), soon(4));
  store.add(bill_of(1, 1));
  disk.wait([this] { return disk.stalled; });
  for (JobKey job = 2; job < 8; ++job) store.add(bill_of(job, 1));
  EXPECT_EQ(store.lost(), 8u);  // two jobs of six find room
  finish(store);
  EXPECT_EQ(log.count("rows of the history are lost"), 1u);
  disk.set(disk.stalls, false);
  disk.wait([this] { return written(1) == 1 && written(3) == 1; });
  EXPECT_EQ(written(4), 0);
}

TEST_F(HistoryStore, AQuestionIsAnsweredOnTheLoopAfterTheRowsBeforeIt) {
  Store store(disk_open(), {.pause = std::chrono::hours(1)});
  store.add(bill_of(1, 1));
  std::string said, why;
  ASSERT_TRUE(store.ask(
      {.job = "x"}, [&](std::string json) { said = std::move(json); }, why));
  finish(store);
  EXPECT_EQ(said, "{\"job\":\"x\"}");
  EXPECT_EQ(written(1), 1);
}

TEST_F(HistoryStore, OneUserCannotFillTheQueueOfQuestions) {
  disk.stalls = true;
  Store store(disk_open(),
              {.questions = 5, .questions_of_user = 3, .pause = std::chrono::milliseconds(1)});
  store.add(bill_of(1, 1));
  disk.wait([this] { return disk.stalled; });
  std::string why;
  int answers = 0;
  const auto ask = [&](uid_t uid) {
    return store.ask(
        {.uid = uid}, [&](const std::string&) { ++answers; }, why);
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask(1));
  EXPECT_FALSE(ask(1));
  EXPECT_NE(why.find("ask again"), std::string::npos);
  EXPECT_TRUE(ask(2));
  EXPECT_TRUE(ask(2));
  EXPECT_FALSE(ask(3));
  disk.set(disk.stalls, false);
  while (answers < 5) finish(store);
}

TEST_F(HistoryStore, WithoutADatabaseItSaysWhyOnceAndTakesNothing) {
  LogLines log;
  Store store([](std::string& why) {
    why = "another monitor writes it";
    return nullptr;
  });
  finish(store);
  EXPECT_EQ(log.count("no history is kept: another monitor writes it"), 1u);
  store.add(bill_of(1, 1));
  std::string why;
  EXPECT_FALSE(store.ask(
      {}, [](const std::string&) {}, why));
  EXPECT_EQ(why, "no history is kept: another monitor writes it");
}

}  // namespace
}  // namespace switchyard::monitor::history
