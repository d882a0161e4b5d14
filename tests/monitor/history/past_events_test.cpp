// Events on the disk: across monitors, beyond bounds, and what is said of those that are lost.
#include "monitor/history/past_events.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "monitor/history/database.h"

namespace switchyard::monitor::history {
namespace {

using nlohmann::json;
using Numbers = std::vector<int>;

constexpr double kWall = 490'000.0 * kHourSeconds;

class PastEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/switchyard-events-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder = name;
    next_monitor();
  }
  void TearDown() override {
    database.reset();
    std::filesystem::remove_all(folder);
  }
  void next_monitor() {
    database.reset();
    std::string why;
    Place place{folder + "/switchyard", 90, bytes, {}};
    database = Database::open(std::move(place), why);
    ASSERT_NE(database, nullptr) << why;
  }
  static EventRow event(int number, double seconds, const std::string& name = "x") {
    return {.number = static_cast<std::uint64_t>(number),
            .unix_seconds = kWall + seconds,
            .job = "id-" + name,
            .name = name,
            .json = json{{"number", number}, {"name", name}}.dump()};
  }
  bool write(std::vector<EventRow> events) {
    Rows rows;
    rows.events = std::move(events);
    std::string why;
    return database->write(rows, {now, static_cast<std::int64_t>(kWall)}, why);
  }
  // The numbers `from` to `to`, one each second.
  void write_numbers(int from, int to) {
    std::vector<EventRow> events;
    for (int number = from; number <= to; ++number) events.push_back(event(number, number));
    ASSERT_TRUE(write(std::move(events)));
  }
  // All parts, put together.
  json ask(double since_seconds = -1e6, const std::string& job = "") {
    Query query{.job = job, .events = true, .since_unix = kWall + since_seconds};
    json all = {{"events", json::array()}};
    for (parts = 1;; ++parts) {
      const json part = json::parse(database->report(query));
      EXPECT_EQ(part["ok"], true) << part;
      for (const json& each : part["events"]) all["events"].push_back(each);
      EXPECT_EQ(part.contains("lost"), parts == 1);
      if (parts == 1) all["lost"] = part["lost"];
      if (!part.contains("more_after")) {
        all["last"] = part["last"];
        return all;
      }
      query.after = part["more_after"];
    }
  }
  static Numbers numbers(const json& answer) {
    Numbers out;
    for (const json& each : answer["events"]) out.push_back(each["number"]);
    return out;
  }

  std::string folder;
  std::uint64_t bytes = 256u << 20;
  Time now = std::chrono::hours(1);
  int parts = 0;
  std::unique_ptr<Database> database;
};

TEST_F(PastEvents, OutliveTheirMonitorAndSayWhereTheJournalGoesOn) {
  EXPECT_EQ(ask(), (json{{"events", json::array()}, {"lost", 0}, {"last", 0}}));
  write_numbers(1, 3);
  EXPECT_EQ(ask()["last"], 3);
  next_monitor();
  EXPECT_EQ(numbers(ask()), (Numbers{1, 2, 3}));
  EXPECT_EQ(ask()["last"], 0) << "none of them is in this monitor's journal";
  write_numbers(1, 2);
  EXPECT_EQ(numbers(ask()), (Numbers{1, 2, 3, 1, 2}));
  EXPECT_EQ(ask()["last"], 2);
  EXPECT_EQ(ask()["lost"], 0);
}

TEST_F(PastEvents, AreThoseSinceAMomentAndOfOneJob) {
  ASSERT_TRUE(write({event(1, 10, "x"), event(2, 20, "y"), event(3, 30, "x")}));
  EXPECT_EQ(numbers(ask(20)), (Numbers{2, 3}));
  EXPECT_EQ(numbers(ask(20, "x")), (Numbers{3}));
  EXPECT_EQ(numbers(ask(0, "id-y")), (Numbers{2}));
  EXPECT_EQ(numbers(ask(0, "z")), (Numbers{}));
  EXPECT_EQ(ask(0, "y")["last"], 3) << "those of others are on the disk, too";
  EXPECT_EQ(ask(20)["lost"], 0);
  EXPECT_EQ(numbers(ask(31)), (Numbers{}));
  EXPECT_EQ(ask(31)["last"], 3);
}

TEST_F(PastEvents, AGapIsWhatWasLost) {
  ASSERT_TRUE(write({event(3, 1), event(4, 2), event(9, 3)}));
  EXPECT_EQ(ask()["lost"], 2 + 4);
  EXPECT_EQ(ask(2)["lost"], 4) << "those before are not of that time";
  next_monitor();
  ASSERT_TRUE(write({event(2, 4), event(3, 5)}));
  EXPECT_EQ(ask()["lost"], 2 + 4 + 1);
  EXPECT_EQ(ask(5)["lost"], 0);
}

TEST_F(PastEvents, BeyondTheirNumberTheOldestGo) {
  bytes = 2048 * 100;
  next_monitor();
  for (int i = 0; i < 10; ++i) write_numbers(1 + 30 * i, 30 + 30 * i);
  const json all = ask();
  EXPECT_EQ(all["events"].size(), 100u);
  EXPECT_EQ(all["events"][0]["number"], 201);
  EXPECT_EQ(all["lost"], 200);
  EXPECT_EQ(ask(250)["lost"], 0);
}

TEST_F(PastEvents, OldOnesGoWithTheBillsOfTheirHour) {
  ASSERT_TRUE(write({event(1, -91 * 86400), event(2, -89 * 86400), event(3, 0)}));
  // The clock is believed when it has not jumped for a while.
  const auto wall = static_cast<std::int64_t>(kWall);
  EXPECT_FALSE(database->tidy({now, wall}));
  EXPECT_EQ(ask(-1e9)["events"].size(), 3u);
  const auto later = Database::kTrustsClockAfter + std::chrono::seconds(1);
  while (database->tidy({now + later, wall + 601})) {
  }
  EXPECT_EQ(numbers(ask(-1e9)), (Numbers{2, 3}));
}

TEST_F(PastEvents, ComeInPartsThatAnAnswerCanTake) {
  std::vector<EventRow> events;
  for (int number = 1; number <= 300; ++number) {
    events.push_back(event(number, number));
    events.back().json = json{{"number", number}, {"text", std::string(2000, 'x')}}.dump();
  }
  ASSERT_TRUE(write(std::move(events)));
  const json all = ask(1);
  ASSERT_EQ(all["events"].size(), 300u);
  for (int i = 0; i < 300; ++i) ASSERT_EQ(all["events"][i]["number"], i + 1);
  EXPECT_EQ(parts, 3);
  EXPECT_EQ(all["last"], 300);
}

TEST_F(PastEvents, WhatIsNoEventIsLeftOut) {
  EventRow broken = event(1, 1);
  broken.json = "{";
  ASSERT_TRUE(write({broken, event(2, 2)}));
  EXPECT_EQ(numbers(ask()), (Numbers{2}));
}

}  // namespace
}  // namespace switchyard::monitor::history
