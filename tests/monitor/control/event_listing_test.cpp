// The journal as people and their programs see it.
#include "monitor/control/event_listing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "monitor/status/changes.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

json events(Rig& rig, json request = json::object()) {
  request["op"] = "events";
  return rig.ask(request);
}

std::vector<std::string> texts(const json& answer) {
  std::vector<std::string> out;
  for (const json& event : answer["events"]) out.push_back(event["text"]);
  return out;
}

using Texts = std::vector<std::string>;

TEST(EventListing, SaysWhatHappenedAndWhoDidIt) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(milliseconds(200));
  rig.ask({{"op", "pause"}, {"target", "x"}, {"timeout_seconds", 60}}, 0, 77);
  rig.pass(milliseconds(200));
  rig.tell("resume");
  rig.pass(milliseconds(200));
  rig.dies(job);
  const json answer = events(rig);
  EXPECT_EQ(answer["ok"], true);
  EXPECT_EQ(texts(answer), (Texts{"the monitor begins (pid " + std::to_string(::getpid()) + ")",
                                  "begins by " + user_name(1000) + " (pid 3000000)", "idle",
                                  "paused for 60 s by root (pid 77)", "held: paused by root",
                                  "resumed by root (pid 1)", "running", "ends"}));
  const json paused = answer["events"][3];
  EXPECT_EQ(paused["number"], 4);
  EXPECT_EQ(paused["kind"], "paused");
  EXPECT_EQ(paused["name"], "x");
  EXPECT_EQ(paused["by_user"], "root");
  EXPECT_EQ(paused["by_pid"], 77);
  EXPECT_EQ(paused["before"], nullptr);
  const json state = answer["events"][4];
  EXPECT_EQ(state["before"], (json{{"state", "running"}, {"reason", nullptr}}));
  EXPECT_EQ(state["after"], (json{{"state", "paused"}, {"reason", "pause"}}));
  EXPECT_EQ(state["by_pid"], 77);
  EXPECT_EQ(answer["last"], 8);
  EXPECT_EQ(answer["lost"], 0);
  EXPECT_EQ(answer["more"], false);
}

TEST(EventListing, ItsTimesAreThoseOfTheCalendar) {
  Rig rig;
  rig.now += seconds(100);
  rig.runs({.name = "x"});
  rig.now += seconds(5);
  const auto before = std::chrono::system_clock::now();
  const json begins = events(rig)["events"][1];
  const double unix_seconds = std::chrono::duration<double>(before.time_since_epoch()).count() - 5;
  EXPECT_GE(begins["unix_seconds"].get<double>(), unix_seconds - 1e-3);
  const std::string time = begins["time"];
  EXPECT_EQ(time.size(), std::string("2026-11-26T21:03:12.123Z").size());
  EXPECT_EQ(time.back(), 'Z');
}

TEST(EventListing, ALongOneComesInParts) {
  Rig rig;
  rig.runs({.name = "x"});
  for (int i = 0; i < 2000; ++i) {
    rig.monitor.journal().take(event_of(EventKind::kIsBack, 1, rig.now));
  }
  std::uint64_t last = 0, parts = 0, next = 1;
  for (bool more = true; more; ++parts) {
    const json answer = events(rig, {{"since", last}});
    EXPECT_LT(answer.dump().size(), wire::kMaxFrame / 2);
    for (const json& event : answer["events"]) ASSERT_EQ(event["number"], next++);
    ASSERT_GT(answer["last"], last);
    last = answer["last"];
    more = answer["more"];
  }
  EXPECT_EQ(next - 1, rig.monitor.journal().rare().newest());
  EXPECT_GT(parts, 2u);
}

TEST(EventListing, OfOneJobItIsWholeAcrossPartsWithoutAny) {
  Rig rig;
  const Joined x = rig.runs({.name = "x"});
  const Joined y = rig.runs({.name = "y"});
  for (int i = 0; i < 10'000; ++i) {
    const JobKey job = i % 5000 == 0 ? x.client->job : y.client->job;
    rig.monitor.journal().take(event_of(EventKind::kIsBack, job, rig.now));
  }
  json found = json::array();
  json request{{"target", "x"}};
  for (bool more = true; more;) {
    const json answer = events(rig, request);
    for (const json& event : answer["events"]) found.push_back(event["kind"]);
    request["since"] = answer["last"];
    more = answer["more"];
  }
  EXPECT_EQ(found, (json{"job begins", "is back", "is back"}));
}

TEST(EventListing, AJobThatEndedIsFoundByNameAndId) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  const std::string id = rig.job()["job"];
  rig.dies(job);
  rig.runs({.name = "y"});
  EXPECT_EQ(texts(events(rig, {{"target", "x"}})).back(), "ends");
  EXPECT_EQ(texts(events(rig, {{"target", id}})), texts(events(rig, {{"target", "x"}})));
  const json refused = events(rig, {{"target", "z"}});
  EXPECT_EQ(refused["code"], kNoSuchJobOrGpu);
  EXPECT_EQ(events(rig, {{"target", "z"}, {"since", 1}})["events"], json::array())
      << "a reader who goes on outlasts it";
}

TEST(EventListing, OfTheLastSecondsAndFromNowOn) {
  Rig rig;
  rig.runs({.name = "x"});
  rig.now += seconds(100);
  rig.runs({.name = "y"});
  rig.now += seconds(1);
  EXPECT_EQ(events(rig, {{"seconds", 10}})["events"].size(), 1u);
  EXPECT_EQ(events(rig, {{"seconds", 1000}})["events"].size(), 3u);
  const json none = events(rig, {{"seconds", 0}});
  EXPECT_EQ(none["events"], json::array());
  EXPECT_EQ(none["last"], 3);
}

TEST(EventListing, OfASpanWhatWasReadAlreadyIsNotReadAgain) {
  Rig rig;
  for (int i = 0; i < 9; ++i) {
    rig.monitor.journal().take(event_of(EventKind::kIsBack, 1, rig.now));
    rig.now += seconds(1);
  }
  const auto numbers = [&](const json& request) {
    std::vector<int> out;
    const json answer = events(rig, request);
    for (const json& event : answer["events"]) out.push_back(event["number"]);
    return out;
  };
  EXPECT_EQ(numbers({{"seconds", 3.5}, {"since", 8}}), (std::vector{9, 10}));
  EXPECT_EQ(numbers({{"seconds", 1.5}, {"since", 5}}), (std::vector{10}));
}

TEST(EventListing, NamesTheGpuAndTheJobForWhichItHappened) {
  Rig rig(2);
  const Joined x = rig.runs({.name = "x"});
  const Joined y = rig.runs({.name = "y"});
  HistoryEvent event = event_of(EventKind::kIsBack, x.client->job, rig.now);
  event.by_job = static_cast<std::uint32_t>(y.client->job);
  set_gpu(event, 1);
  rig.monitor.journal().take(event);
  const json told = events(rig)["events"].back();
  EXPECT_EQ(told["name"], "x");
  EXPECT_EQ(told["by_name"], "y");
  EXPECT_EQ(told["gpu_uuid"], rig.monitor.gpus()[1].info.uuid_text);
  EXPECT_EQ(told["by_user"], nullptr);
  EXPECT_EQ(told["by_pid"], nullptr);
}

TEST(EventListing, WhatIsForgottenIsCounted) {
  Rig rig;
  for (std::size_t i = 0; i < Journal::kEvents + 99; ++i) {
    rig.monitor.journal().take(event_of(EventKind::kIsBack, 1, rig.now));
  }
  EXPECT_EQ(events(rig)["lost"], 100) << "the monitor's beginning, too";
  EXPECT_EQ(events(rig, {{"since", 50}})["lost"], 50);
  EXPECT_EQ(events(rig, {{"since", 100}})["lost"], 0);
}

TEST(EventListing, NonsenseIsAUsageError) {
  Rig rig;
  for (const json& value : {json("x"), json(-1), json(nullptr), json::array()}) {
    EXPECT_EQ(events(rig, {{"since", value}})["code"], kUsage) << value;
    EXPECT_EQ(events(rig, {{"seconds", value}})["code"], kUsage) << value;
  }
  EXPECT_EQ(events(rig, {{"since", 1e300}})["events"], json::array());
  EXPECT_EQ(events(rig, {{"seconds", 1e300}})["ok"], true);
}

class EventText : public ::testing::Test {
 protected:
  Rig rig{2};
  Joined job = rig.runs({.name = "serve"});
  std::string text(EventKind kind, std::uint64_t value = 0, std::size_t gpu = 1) {
    HistoryEvent event = event_of(kind, job.client->job, Peer{7, 0}, rig.now);
    event.value = value;
    set_gpu(event, gpu);
    return event_text(rig.monitor, event);
  }
  std::string state(status::Code code, std::uint64_t value = 0) {
    HistoryEvent event = event_of(EventKind::kState, 99, rig.now);
    event.by_job = static_cast<std::uint32_t>(job.client->job);
    event.state = static_cast<std::uint8_t>(code.state);
    event.reason = static_cast<std::uint8_t>(code.reason);
    event.value = value;
    return event_text(rig.monitor, event);
  }
};

TEST_F(EventText, EachKindHasOne) {
  for (unsigned kind = 1; kind <= kEventKinds; ++kind) {
    const std::string said = text(static_cast<EventKind>(kind));
    EXPECT_FALSE(said.empty()) << kind;
    EXPECT_NE(said, "unknown") << kind;
  }
  EXPECT_EQ(text(static_cast<EventKind>(99)), "unknown");
}

TEST_F(EventText, OfSwapsMovesAndRefusals) {
  EXPECT_EQ(text(EventKind::kLeaves, static_cast<unsigned>(residency::Reason::kUser)),
            "its memory leaves: swap-out by root (pid 7)");
  EXPECT_EQ(text(EventKind::kLeft, static_cast<unsigned>(residency::Reason::kYield)),
            "its memory has left: another job needs the memory by root (pid 7)");
  EXPECT_EQ(text(EventKind::kMoveLeaves), "goes to GPU 1 by root (pid 7)");
  EXPECT_EQ(text(EventKind::kMoveLeaves, 1), "goes back to GPU 1 by root (pid 7)");
  EXPECT_EQ(text(EventKind::kMoveEnded), "moved to GPU 1 by root (pid 7)");
  EXPECT_EQ(text(EventKind::kMoveEnded, kTimedOut),
            "did not move and stays on GPU 1 by root (pid 7)");
  EXPECT_EQ(text(EventKind::kMemoryRefused, 2 * kGiB), "2.00 GiB refused to pid 7 on GPU 1");
  EXPECT_EQ(text(EventKind::kProcessRefused, 9),
            "pid 7 of root refused: old library (page layout 9)");
  EXPECT_EQ(text(EventKind::kProcessRefused), "pid 7 of root refused");
  EXPECT_EQ(text(EventKind::kCommand), "command by root (pid 7)") << "its text is forgotten";
}

TEST_F(EventText, OfSeveralReasonsThatOfAPersonIsSaid) {
  const auto both = [](residency::Reason a, residency::Reason b) {
    return static_cast<unsigned>(a) | static_cast<unsigned>(b);
  };
  EXPECT_EQ(text(EventKind::kLeaves, both(residency::Reason::kUser, residency::Reason::kPause)),
            "its memory leaves: swap-out by root (pid 7)");
  EXPECT_EQ(text(EventKind::kLeaves, both(residency::Reason::kIdle, residency::Reason::kYield)),
            "its memory leaves: idle by root (pid 7)");
}

TEST_F(EventText, OfMemoryBeyondAQuotaOfItsOwnNamesNoCapOfRoots) {
  Settings settings;
  settings.caps.memory_bytes = 2 * kGiB;
  Rig capped(1, 4 * kGiB, settings);
  const auto refused = [&](const Ask& ask) {
    const Joined who = capped.join(ask);
    HistoryEvent event = event_of(EventKind::kMemoryRefused, who.client->job, capped.now);
    event.reason = wire::kOverQuota;
    return event_text(capped.monitor, event).find("root allows") != std::string::npos;
  };
  EXPECT_TRUE(refused({.name = "without"}));
  EXPECT_FALSE(refused({.name = "with", .memory = "1GiB"}));
}

TEST_F(EventText, OfStatesIsThatOfPs) {
  using status::Reason;
  using status::State;
  EXPECT_EQ(state({State::kWaiting, Reason::kRoom}, kGiB), "waiting: 1.00 GiB of serve");
  EXPECT_EQ(state({State::kWaiting, Reason::kTurn}), "waiting: turn of serve");
  EXPECT_EQ(state({State::kHeld, Reason::kLimit}, 300'000), "held: limit 30%");
  EXPECT_EQ(state({State::kMoving, Reason::kMove}, 2), "moving to GPU 1");
  EXPECT_EQ(state({State::kUnmanaged, Reason::kOldLibrary}, 9),
            "unmanaged: old library (page layout 9)");
  EXPECT_EQ(state({}), "not there any more");
}

TEST_F(EventText, OfWhatAPagesWordsBecame) {
  EXPECT_EQ(text(EventKind::kGate, 0), "gate opened");
  EXPECT_EQ(text(EventKind::kGate, 0x100000000 | abi::kClosedByPause),
            fmt::format("gate closed ({:#x})", unsigned{abi::kClosedByPause}));
  EXPECT_EQ(text(EventKind::kGate, 0x100000000), "gate opened") << "its upper half is no gate's";
  EXPECT_EQ(text(EventKind::kSlice, 7ull << 32 | 2000), "slices of 2000 us, copies 7 us");
  EXPECT_EQ(text(EventKind::kMemoryRefused, kGiB, 7), "1.00 GiB refused to pid 7 on a GPU")
      << "there is no such GPU";
}

TEST_F(EventText, OfAPauseSaysHowLongItGoesOn) {
  const auto paused = [&](Time until) {
    return text(EventKind::kPaused, static_cast<std::uint64_t>(until.count()));
  };
  EXPECT_EQ(paused(Time{0}), "paused by root (pid 7)");
  EXPECT_EQ(paused(rig.now + seconds(20)), "paused for 20 s by root (pid 7)");
  EXPECT_EQ(paused(rig.now), "paused by root (pid 7)");
}

}  // namespace
}  // namespace switchyard::monitor::test
