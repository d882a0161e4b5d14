// Events on their way from the journal to the history.
#include "monitor/control/event_keeper.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "monitor/control/event_listing.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

// The rows on the disk. The thread writes at the store's end at the latest.
struct Written {
  std::vector<history::EventRow> events;
};

class OnDisk final : public history::Backend {
 public:
  explicit OnDisk(Written& written) : written_(written) {}
  bool write(const history::Rows& rows, history::Moment, std::string&) override {
    written_.events.insert(written_.events.end(), rows.events.begin(), rows.events.end());
    return true;
  }
  bool tidy(history::Moment) override { return false; }
  std::string report(const history::Query&) override { return "{}"; }

 private:
  Written& written_;
};

class KeptEvents : public ::testing::Test {
 protected:
  KeptEvents() { rig.monitor.records_to(*store); }
  Rig rig;
  Written written;
  std::unique_ptr<history::Store> store = std::make_unique<history::Store>(
      [this](std::string&) { return std::make_unique<OnDisk>(written); });
  EventKeeper keeper;
};

TEST_F(KeptEvents, TakesEachEventOnceAsListingsHaveIt) {
  const Joined job = rig.runs({.name = "x"});
  keeper.tick(rig.monitor, rig.now);
  keeper.tick(rig.monitor, rig.now);
  rig.dies(job);
  keeper.tick(rig.monitor, rig.now + seconds(5));
  const json listed = rig.ask({{"op", "events"}})["events"];
  store.reset();
  ASSERT_EQ(written.events.size(), listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const history::EventRow& row = written.events[i];
    json kept = json::parse(row.json);
    EXPECT_EQ(row.number, listed[i]["number"]);
    EXPECT_EQ(row.name, listed[i]["name"].is_null() ? "" : listed[i]["name"]);
    EXPECT_EQ(kept["unix_seconds"], row.unix_seconds);
    EXPECT_EQ(kept["text"], listed[i]["text"]);
    EXPECT_EQ(kept["job"], listed[i]["job"]);
  }
}

TEST_F(KeptEvents, TakesABoundedNumberAtATimeAndAllAtTheEnd) {
  const auto happens = [&](std::size_t times) {
    for (std::size_t i = 0; i < times; ++i) {
      rig.monitor.journal().take(event_of(EventKind::kIsBack, 1, rig.now));
    }
  };
  happens(Journal::kEvents + 99);
  keeper.tick(rig.monitor, rig.now);
  happens(7);
  keeper.finish(rig.monitor, rig.now);
  store.reset();
  const auto& kept = written.events;
  // Rows that wait for the disk have a bound, too (rows.h).
  ASSERT_GE(kept.size(), history::Rows::kMostEvents);
  // The first hundred were overwritten before anybody took them.
  EXPECT_EQ(kept.front().number, 101u);
  EXPECT_EQ(kept[EventKeeper::kMostAtOnce - 1].number, 100u + EventKeeper::kMostAtOnce);
  EXPECT_GT(kept[EventKeeper::kMostAtOnce].number, kept[EventKeeper::kMostAtOnce - 1].number);
}

TEST(EventKeeper, WithoutAHistoryItDoesNothing) {
  Rig rig;
  EventKeeper keeper;
  keeper.tick(rig.monitor, rig.now);
  keeper.finish(rig.monitor, rig.now);
  const json refused = rig.ask({{"op", "past events"}, {"seconds", 60}});
  EXPECT_EQ(refused["code"], kFailure);
}

}  // namespace
}  // namespace switchyard::monitor::test
