// The ring of events: numbers, what is lost, and what it remembers besides.
#include "monitor/history/journal.h"

#include <gtest/gtest.h>

#include <chrono>

namespace switchyard::monitor {
namespace {

using std::chrono::seconds;

HistoryEvent numbered(std::uint64_t value, Time at = Time{0}) {
  HistoryEvent out = event_of(EventKind::kState, 7, at);
  out.value = value;
  return out;
}

// Event number N has the value N.
EventRing ring_of(std::size_t capacity, std::uint64_t events) {
  EventRing out(capacity);
  for (std::uint64_t i = 1; i <= events; ++i) out.push(numbered(i, seconds(i)));
  return out;
}

std::vector<std::uint64_t> values(const std::vector<HistoryEvent>& events) {
  std::vector<std::uint64_t> out;
  out.reserve(events.size());
  for (const HistoryEvent& event : events) out.push_back(event.value);
  return out;
}

using Values = std::vector<std::uint64_t>;

TEST(EventRing, AnEmptyOneHasNothingToRead) {
  const EventRing ring(4);
  std::vector<HistoryEvent> out;
  const EventRing::Read read = ring.read(0, out, 10);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(read.last, 0u);
  EXPECT_EQ(read.lost, 0u);
  EXPECT_EQ(ring.dropped(), 0u);
}

TEST(EventRing, AReaderGoesOnWhereItWas) {
  const EventRing ring = ring_of(8, 5);
  std::vector<HistoryEvent> out;
  EventRing::Read read = ring.read(0, out, 3);
  EXPECT_EQ(values(out), (Values{1, 2, 3}));
  EXPECT_EQ(read.first, 1u);
  EXPECT_EQ(read.last, 3u);
  out.clear();
  read = ring.read(read.last, out, 3);
  EXPECT_EQ(values(out), (Values{4, 5}));
  EXPECT_EQ(read.last, 5u);
  out.clear();
  read = ring.read(read.last, out, 3);
  EXPECT_TRUE(out.empty());
  EXPECT_EQ(read.last, 5u);
  EXPECT_EQ(read.lost, 0u);
}

TEST(EventRing, AReaderThatIsLateIsToldHowManyItLost) {
  const EventRing ring = ring_of(4, 10);
  EXPECT_EQ(ring.oldest(), 7u);
  EXPECT_EQ(ring.dropped(), 6u);
  std::vector<HistoryEvent> out;
  EventRing::Read read = ring.read(2, out, 10);
  EXPECT_EQ(values(out), (Values{7, 8, 9, 10}));
  EXPECT_EQ(read.lost, 4u) << "3 to 6";
  out.clear();
  read = ring.read(6, out, 10);
  EXPECT_EQ(read.lost, 0u) << "the next one is kept";
  EXPECT_EQ(read.first, 7u);
}

TEST(EventRing, ANumberThatIsYetToComeIsTheNewest) {
  const EventRing ring = ring_of(4, 3);
  std::vector<HistoryEvent> out;
  EXPECT_EQ(ring.read(99, out, 10).last, 3u);
  EXPECT_TRUE(out.empty());
}

TEST(EventRing, FindsTheLastOneBeforeATime) {
  const EventRing ring = ring_of(4, 10);
  EXPECT_EQ(ring.before(seconds(9)), 8u);
  EXPECT_EQ(ring.before(seconds(100)), 10u);
  EXPECT_EQ(ring.before(seconds(3)), 0u) << "that one is not kept";
}

TEST(EventRing, AThousandEventsASecondAreReadWithoutLoss) {
  EventRing ring(Journal::kEvents);
  std::vector<HistoryEvent> out;
  EventRing::Read read;
  std::uint64_t pushed = 0;
  for (int second = 0; second < 60; ++second) {
    for (int look = 0; look < 5; ++look) {
      for (int i = 0; i < 200; ++i) ring.push(numbered(++pushed));
      read = ring.read(read.last, out, 4096);
      ASSERT_EQ(read.lost, 0u);
    }
  }
  ASSERT_EQ(out.size(), 60'000u);
  for (std::uint64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i].value, i + 1);
  // Nobody reads for 20 s.
  for (int i = 0; i < 20'000; ++i) ring.push(numbered(++pushed));
  out.clear();
  read = ring.read(read.last, out, 1'000'000);
  EXPECT_EQ(read.lost, 20'000 - Journal::kEvents);
  EXPECT_EQ(out.size(), Journal::kEvents);
}

TEST(Journal, WhatComesWithEachTurnPushesOutNothingRare) {
  Journal journal(4, 8);
  journal.take(event_of(EventKind::kPaused, 1, Time{0}));
  for (const EventKind kind : {EventKind::kGate, EventKind::kSlice, EventKind::kWork}) {
    for (int i = 0; i < 10; ++i) journal.take(event_of(kind, 1, Time{0}));
  }
  EXPECT_EQ(journal.rare().newest(), 1u);
  EXPECT_EQ(journal.rare().dropped(), 0u);
  EXPECT_EQ(journal.timeline().newest(), 30u);
  EXPECT_EQ(journal.timeline().dropped(), 22u);
}

TEST(Journal, AnEndedJobHasItsNameAsLongAsItsEnd) {
  Journal journal(4, 4);
  journal.job_begins(1, {"j1", "first", 1000}, 77, seconds(1));
  journal.job_ends(1, std::nullopt, seconds(2));
  journal.job_begins(2, {"j2", "second", 1001}, 78, seconds(3));
  ASSERT_NE(journal.name_of(1), nullptr);
  EXPECT_EQ(journal.name_of(1)->name, "first");
  for (int i = 0; i < 4; ++i) journal.take(event_of(EventKind::kState, 2, seconds(4)));
  journal.job_begins(3, {"j3", "third", 1000}, 79, seconds(5));
  EXPECT_EQ(journal.name_of(1), nullptr);
  ASSERT_NE(journal.name_of(2), nullptr) << "it lives";
  const HistoryEvent& begins = journal.rare().at(journal.rare().newest());
  EXPECT_EQ(begins.kind, EventKind::kJobBegins);
  EXPECT_EQ(begins.uid, 1000u);
  EXPECT_EQ(begins.pid, 79);
}

TEST(Journal, TheNameStaysWhileTheEndIsTheOldestEvent) {
  Journal journal(4, 4);
  journal.job_begins(1, {"j1", "first", 1000}, 77, seconds(1));
  journal.job_ends(1, std::nullopt, seconds(2));
  for (int i = 0; i < 3; ++i) journal.take(event_of(EventKind::kState, 2, seconds(3)));
  ASSERT_EQ(journal.rare().oldest(), 2u) << "its end";
  journal.job_begins(2, {"j2", "second", 1000}, 78, seconds(4));
  EXPECT_NE(journal.name_of(1), nullptr);
  journal.job_begins(3, {"j3", "third", 1000}, 79, seconds(5));
  EXPECT_EQ(journal.name_of(1), nullptr);
}

TEST(Journal, RemembersTheTextsOfTheLastCommands) {
  Journal journal(4096, 4);
  for (std::size_t i = 1; i <= Journal::kTexts + 1; ++i) {
    journal.command(event_of(EventKind::kCommand, 1, Time{0}), "set " + std::to_string(i));
  }
  EXPECT_EQ(journal.text_of(journal.rare().at(1)), "") << "it was one of the last no more";
  EXPECT_EQ(journal.text_of(journal.rare().at(2)), "set 2");
  EXPECT_EQ(journal.text_of(journal.rare().at(Journal::kTexts + 1)), "set 1025");
  EXPECT_EQ(journal.text_of(event_of(EventKind::kCommand, 1, Time{0})), "");
}

TEST(Events, AreWhatWasStored) {
  const char* const keys[] = {
      "monitor begins", "job begins",    "job ends",         "state",          "work",
      "paused",         "resumed",       "leaves",           "left",           "returns",
      "is back",        "move prepares", "move leaves",      "move lands",     "move arrives",
      "move ended",     "command",       "command refused",  "memory refused", "process refused",
      "gate",           "slice",         "unmanaged begins", "unmanaged ends", "island ended",
      "island fault"};
  ASSERT_EQ(std::size(keys), kEventKinds);
  for (unsigned i = 0; i < kEventKinds; ++i) {
    EXPECT_STREQ(key_of(static_cast<EventKind>(i + 1)), keys[i]);
  }
  EXPECT_STREQ(key_of(static_cast<EventKind>(0)), "unknown");
  EXPECT_STREQ(key_of(static_cast<EventKind>(999)), "unknown");
  EXPECT_EQ(offsetof(HistoryEvent, value), 8u);
  EXPECT_EQ(offsetof(HistoryEvent, job), 16u);
  EXPECT_EQ(offsetof(HistoryEvent, by_job), 20u);
  EXPECT_EQ(offsetof(HistoryEvent, uid), 24u);
  EXPECT_EQ(offsetof(HistoryEvent, pid), 28u);
  EXPECT_EQ(offsetof(HistoryEvent, kind), 32u);
  EXPECT_EQ(offsetof(HistoryEvent, gpu), 34u);
  EXPECT_EQ(offsetof(HistoryEvent, from_state), 36u);
  EXPECT_EQ(offsetof(HistoryEvent, reason), 39u);
}

}  // namespace
}  // namespace switchyard::monitor
