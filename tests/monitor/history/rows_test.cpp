// Differences, added up.
#include "monitor/history/rows.h"

#include <gtest/gtest.h>

namespace switchyard::monitor::history {
namespace {

constexpr status::Code kRuns{status::State::kRunning, status::Reason::kNone};
constexpr status::Code kIdles{status::State::kIdle, status::Reason::kNone};

Rows some(double seconds, double peak) {
  Rows rows;
  rows.jobs[1] = {.id = "a", .command = "train", .started = 100, .lived_seconds = seconds};
  Bill& bill = rows.bills[{10, 1, 0}];
  bill.gpu_seconds = seconds / 2;
  bill.peak_bytes = peak;
  bill.launches = 3;
  bill.seconds = {{kRuns, seconds}};
  rows.observed[{10, 0}] = seconds;
  return rows;
}

TEST(HistoryRows, SumsAddUpAndAPeakIsTheHigherOne) {
  Rows rows = some(1, 500);
  EXPECT_EQ(rows.add(some(2, 300), 100), 0u);
  const Bill& bill = rows.bills.begin()->second;
  EXPECT_EQ(bill.gpu_seconds, 1.5);
  EXPECT_EQ(bill.peak_bytes, 500);
  EXPECT_EQ(bill.launches, 6);
  EXPECT_EQ(bill.seconds.at(kRuns), 3);
  EXPECT_EQ(rows.jobs.at(1).lived_seconds, 3);
  EXPECT_EQ(rows.observed.begin()->second, 3);
  EXPECT_EQ(rows.size(), 3u);
}

TEST(HistoryRows, AnotherHourAndAnotherStateHaveRowsOfTheirOwn) {
  Rows rows = some(1, 0);
  Rows later;
  later.bills[{10, 1, 0}].seconds = {{kIdles, 4}};
  later.bills[{11, 1, 0}].gpu_seconds = 1;
  rows.add(std::move(later), 100);
  EXPECT_EQ(rows.bills.size(), 2u);
  EXPECT_EQ(rows.bills.begin()->second.seconds.at(kIdles), 4);
}

TEST(HistoryRows, AJobsEndIsKeptAndItsCommandToo) {
  Rows rows = some(1, 0);
  Rows later;
  later.jobs[1] = {.id = "a", .started = 999, .ended = 120, .exit = "ended"};
  rows.add(std::move(later), 100);
  EXPECT_EQ(rows.jobs.at(1).ended, 120);
  EXPECT_EQ(rows.jobs.at(1).command, "train");
  EXPECT_EQ(rows.jobs.at(1).started, 100);
}

TEST(HistoryRows, EventsAreKeptInOrderAndTakeNoRoomOfBills) {
  Rows rows;
  for (std::uint64_t i = 0; i < 10; ++i) {
    Rows later;
    for (std::uint64_t k = 0; k < Rows::kMostEvents / 9; ++k) {
      later.events.push_back({.number = i * (Rows::kMostEvents / 9) + k});
    }
    rows.add(std::move(later), 1);
  }
  ASSERT_EQ(rows.events.size(), Rows::kMostEvents);
  for (std::uint64_t i = 0; i < Rows::kMostEvents; ++i) ASSERT_EQ(rows.events[i].number, i);
  EXPECT_FALSE(rows.empty());
  Rows later;
  later.events.push_back({});
  later.bills[{1, 1, 0}].gpu_seconds = 2;
  EXPECT_EQ(rows.add(std::move(later), 1), 1u) << "the event, not the bill";
  EXPECT_EQ(rows.bills.size(), 1u);
}

TEST(HistoryRows, BeyondTheBoundNewKeysAreLostAndOldOnesGrowOn) {
  Rows rows = some(1, 0);
  Rows later = some(1, 0);
  later.jobs[2] = {.id = "b"};
  later.bills[{10, 2, 0}].gpu_seconds = 1;
  EXPECT_EQ(rows.add(std::move(later), 3), 2u);
  EXPECT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows.bills.begin()->second.gpu_seconds, 1);
}

}  // namespace
}  // namespace switchyard::monitor::history
