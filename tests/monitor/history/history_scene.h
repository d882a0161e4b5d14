// A history in a folder of its own, monitors that open it one after the other, and rows for it.
//
// Threading: one thread.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "monitor/history/database.h"
#include "switchyard/status.h"

namespace switchyard::monitor::history {

namespace fs = std::filesystem;
using nlohmann::json;

inline constexpr std::int64_t kNow = 490'000 * kHourSeconds;  // in 2025
inline constexpr status::Code kRunning{status::State::kRunning, status::Reason::kNone};
inline constexpr status::Code kTurn{status::State::kWaiting, status::Reason::kTurn};

class HistoryScene : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/switchyard-history-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = std::string(name) + "/switchyard";
    open();
  }
  void TearDown() override {
    database.reset();
    fs::remove_all(fs::path(folder).parent_path());
  }
  // The next monitor.
  void open() {
    database.reset();
    why.clear();
    Place place{folder, days, bytes, {{"GPU-a", "Fake", 0}, {"GPU-b", "Fake", 1}}};
    database = Database::open(std::move(place), why);
  }
  // Another version had the file meanwhile, and changed it so.
  void open_after(const std::string& change) {
    database.reset();
    Sqlite other;
    ASSERT_TRUE(other.open(file()));
    ASSERT_TRUE(other.run(change));
    other = {};
    open();
  }
  std::string file() const { return folder + "/history.db"; }

  static JobRow job(const std::string& id, uid_t uid = 1000) {
    JobRow row{.id = id, .name = "n-" + id, .user = "u" + std::to_string(uid)};
    row.command = "python " + id;
    row.uid = uid;
    row.started = kNow;
    row.lived_seconds = 10;
    return row;
  }
  static Bill bill(double gpu_seconds) {
    Bill out;
    out.gpu_seconds = gpu_seconds;
    out.estimated_seconds = gpu_seconds / 4;
    out.memory_byte_seconds = 1000;
    out.idle_byte_seconds = 100;
    out.peak_bytes = gpu_seconds * 7;
    out.launches = 5;
    out.seconds = {{kRunning, 8}, {kTurn, 2}};
    return out;
  }
  bool write(const Rows& rows, std::int64_t wall = kNow) {
    return database->write(rows, {now, wall}, why);
  }
  bool write_one(JobKey key, const JobRow& row, std::int64_t hour, double gpu_seconds,
                 std::size_t gpu = 0) {
    Rows rows;
    rows.jobs[key] = row;
    rows.bills[{hour, key, gpu}] = bill(gpu_seconds);
    return write(rows, std::max(kNow, hour * kHourSeconds));
  }
  json ask(By by, uid_t uid = 0, bool sees_bills = true) {
    Query query{.by = by, .since_hour = since, .until_hour = until, .uid = uid};
    query.sees_all = uid == 0;
    query.sees_bills = sees_bills || uid == 0;
    return json::parse(database->report(query));
  }
  json rows(By by, uid_t uid = 0, bool sees_bills = true) {
    return ask(by, uid, sees_bills)["rows"];
  }

  std::string folder, why;
  std::int64_t days = 90;
  std::uint64_t bytes = 256u << 20;
  std::int64_t since = 0, until = 1'000'000;
  Time now = std::chrono::hours(1);
  std::unique_ptr<Database> database;
};

inline Rows unmanaged_rows(std::int64_t hour, uid_t uid, double gpu_seconds, std::size_t gpu = 0) {
  Rows rows;
  rows.unmanaged[{hour, uid, gpu}] = {"u" + std::to_string(uid), gpu_seconds, 1000, 100,
                                      gpu_seconds * 7};
  return rows;
}

}  // namespace switchyard::monitor::history
