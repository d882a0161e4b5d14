// `switchyard events` against a monitor that the test plays.
#include "tools/events/events.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>

#include "switchyard/paths.h"
#include "switchyard/status.h"
#include "tests/tools/fake_monitor.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

json event(int number) {
  return {{"number", number},
          {"unix_seconds", 1e9 + number},
          {"name", "train"},
          {"text", "event " + std::to_string(number)}};
}

// Output and exit code of the command.
// It has heard all that the command asked when this returns.
CommandEnd events(std::vector<std::string> words, FakeMonitor::Answer play) {
  const FakeMonitor monitor = FakeMonitor::answering(std::move(play));
  words.insert(words.begin(), "events");
  return run_command(monitor.socket(), {&add_events}, std::move(words));
}

json answer(std::initializer_list<int> numbers, bool more, int lost = 0) {
  json out{{"ok", true}, {"events", json::array()}, {"lost", lost}, {"more", more}};
  for (const int number : numbers) out["events"].push_back(event(number));
  out["last"] = numbers.size() == 0 ? 0 : *(numbers.end() - 1);
  return out;
}

class Events : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
  }
  void TearDown() override {
    ::unsetenv("SWITCHYARD_SOCKET");
    ::unsetenv("TZ");
    ::tzset();
  }
};

TEST_F(Events, ALineSaysWhenWhoAndWhat) {
  EXPECT_EQ(event_line({{"unix_seconds", 1e9 + 0.25}, {"name", "train"}, {"text", "ends"}}),
            "2001-09-09 01:46:40.250  train            ends");
  EXPECT_EQ(event_line({{"unix_seconds", 1e9}, {"name", nullptr}, {"text", "policy"}}),
            "2001-09-09 01:46:40.000  -                policy");
}

TEST_F(Events, PartsArePutTogether) {
  const FakeMonitor::Answer monitor = [](const json& request) {
    return request.contains("since") ? answer({3}, false) : answer({1, 2}, true);
  };
  const CommandEnd said = events({"--json"}, monitor);
  EXPECT_EQ(said.code, kOk);
  const json listing = json::parse(said.out);
  EXPECT_EQ(listing["events"], (json{event(1), event(2), event(3)}));
  EXPECT_EQ(listing["lost"], 0);
  EXPECT_EQ(listing["schema_version"], kSchemaVersion);
}

TEST_F(Events, WhatIsForgottenIsSaid) {
  const FakeMonitor::Answer monitor = [](const json&) { return answer({7}, false, 6); };
  const CommandEnd said = events({}, monitor);
  EXPECT_EQ(said.out, "2001-09-09 01:46:47.000  train            event 7\n");
  EXPECT_EQ(said.err, "switchyard: 6 earlier events are forgotten\n");
}

TEST_F(Events, TheRequestSaysWhatIsWanted) {
  json asked = json::array();
  const FakeMonitor::Answer monitor = [&asked](const json& request) {
    asked.push_back(request);
    return answer({}, false);
  };
  EXPECT_EQ(events({"--job", "train"}, monitor).code, kOk);
  EXPECT_EQ(asked, (json::array({{{"op", "events"}, {"target", "train"}}})));
  asked = json::array();
  EXPECT_EQ(events({"--since", "1h", "--job", "train"}, monitor).code, kOk);
  ASSERT_EQ(asked.size(), 3u);
  EXPECT_EQ(asked[0],
            (json{{"op", "past events"}, {"seconds", 3600.0}, {"target", "train"}, {"after", 0}}));
  EXPECT_EQ(asked[1],
            (json{{"op", "events"}, {"seconds", 3600.0}, {"target", "train"}, {"since", 0}}));
  EXPECT_EQ(asked[2], (json{{"op", "events"}, {"seconds", 0}, {"target", "train"}}))
      << "nothing came: the monitor says whether it knows the job";
  const CommandEnd bad = events({"--since", "monday"}, monitor);
  EXPECT_EQ(bad.code, kUsage);
  EXPECT_NE(bad.err.find("--since"), std::string::npos);
}

// The answers of a monitor whose disk has events 1 to 4, in two parts, and whose memory has 4 to 6.
json with_a_past(const json& request) {
  if (request["op"] == "past events") {
    json out = request["after"] == 0 ? answer({1, 2}, false, 7) : answer({3, 4}, false);
    request["after"] == 0 ? out["more_after"] = 22 : out["last"] = 4;
    return out;
  }
  const bool goes_on = request.value("since", 0) == 4;
  return goes_on ? answer({5, 6}, false, 2) : answer({4, 5, 6}, false);
}

TEST_F(Events, WhatTheDiskHasComesFirstAndNothingComesTwice) {
  const CommandEnd said = events({"--since", "1h", "--json"}, &with_a_past);
  EXPECT_EQ(said.code, kOk) << said.err;
  const json listing = json::parse(said.out);
  EXPECT_EQ(listing["events"], (json{event(1), event(2), event(3), event(4), event(5), event(6)}));
  EXPECT_EQ(listing["lost"], 9);
  EXPECT_EQ(json::parse(events({"--json"}, &with_a_past).out)["events"].size(), 3u)
      << "without --since it is what the monitor remembers";
}

TEST_F(Events, WithoutAHistoryThereIsWhatIsRemembered) {
  int code = kFailure;
  const FakeMonitor::Answer monitor = [&code](const json& request) -> json {
    if (request["op"] == "events") return answer({7}, false);
    // The second part fails.
    if (request["after"] == 0) {
      json out = answer({1, 2}, false);
      out["more_after"] = 22;
      return out;
    }
    return {{"ok", false}, {"code", code}, {"error", "no history"}};
  };
  CommandEnd said = events({"--since", "1h"}, monitor);
  EXPECT_EQ(said.code, kOk);
  EXPECT_EQ(said.out, "2001-09-09 01:46:47.000  train            event 7\n");
  EXPECT_EQ(said.err, "switchyard: earlier events are not known: no history\n");
  code = kUsage;  // a monitor of an earlier version
  said = events({"--since", "1h"}, monitor);
  EXPECT_EQ(said.out, "2001-09-09 01:46:47.000  train            event 7\n");
  EXPECT_EQ(said.err, "");
}

TEST_F(Events, AJobOfWhichNothingIsKnownIsNone) {
  const FakeMonitor::Answer monitor = [](const json& request) -> json {
    if (request["op"] == "events" && !request.contains("since")) {
      return {{"ok", false}, {"code", kNoSuchJobOrGpu}, {"error", "no event is about it"}};
    }
    return answer({}, false);
  };
  EXPECT_EQ(events({"--since", "1h", "--job", "x"}, monitor).code, kNoSuchJobOrGpu);
}

TEST_F(Events, WhoFollowsGoesOnWhereItWasAndIsToldWhatItLost) {
  std::atomic<int> asked{0};
  std::vector<json> requests;
  const FakeMonitor::Answer monitor = [&](const json& request) -> json {
    requests.push_back(request);
    switch (++asked) {
      case 1:
        return {{"ok", true}, {"events", json::array()}, {"lost", 0}, {"more", false}, {"last", 4}};
      case 2:
        return answer({5, 6}, true);
      case 3:
        return answer({9}, false, 2);
      case 4:
        return answer({10}, false);
      default:
        return {{"ok", false}, {"code", kMonitorUnreachable}, {"error", "it has ended"}};
    }
  };
  const CommandEnd said = events({"--follow"}, monitor);
  EXPECT_EQ(said.code, kMonitorUnreachable);
  ASSERT_EQ(requests.size(), 5u);
  EXPECT_EQ(requests[0], (json{{"op", "events"}, {"seconds", 0.0}}));
  EXPECT_EQ(requests[1], (json{{"op", "events"}, {"since", 4}}));
  EXPECT_EQ(requests[2], (json{{"op", "events"}, {"since", 6}}));
  EXPECT_EQ(requests[3], (json{{"op", "events"}, {"since", 9}}));
  EXPECT_NE(said.out.find("event 9"), std::string::npos);
  const std::size_t lost = said.err.find("2 events are lost");
  EXPECT_NE(lost, std::string::npos);
  EXPECT_EQ(said.err.find("2 events are lost", lost + 1), std::string::npos) << "once";
}

TEST_F(Events, WhoFollowsAsJsonGetsALineForEachAnswer) {
  std::atomic<int> asked{0};
  const FakeMonitor::Answer monitor = [&](const json&) -> json {
    if (++asked == 1) return answer({}, false);
    if (asked == 2) return answer({1, 2}, false);
    return {{"ok", false}, {"code", kMonitorUnreachable}, {"error", "it has ended"}};
  };
  const CommandEnd said = events({"--follow", "--json"}, monitor);
  const json line = json::parse(said.out);
  EXPECT_EQ(line["events"].size(), 2u);
  EXPECT_EQ(said.out.find('\n'), said.out.size() - 1);
}

// Jobs a and b that live, and the ended c: with an event of each. Events of b name GPU 1.
json of_three_jobs(const json& request) {
  const auto job = [](const char* name, int pid) {
    return json{{"job", std::string("id-") + name},
                {"name", name},
                {"user", "anna"},
                {"state", "running"},
                {"processes", {{{"pid", pid}}}},
                {"gpus", json::array()}};
  };
  if (request["op"] == "ps") return {{"ok", true}, {"jobs", {job("a", 100), job("b", 200)}}};
  if (request["op"] == "status") {
    return {{"ok", true}, {"gpus", {{{"index", 1}, {"uuid", "GPU-one"}}}}};
  }
  if (request.contains("target")) {
    return {{"ok", false}, {"code", kNoSuchJobOrGpu}, {"error", "no event is about it"}};
  }
  json out = answer({1, 2, 3, 4}, false);
  const char* names[] = {"a", "b", "c"};
  for (int i = 0; i < 3; ++i) {
    out["events"][i]["name"] = names[i];
    out["events"][i]["job"] = std::string("id-") + names[i];
    out["events"][i]["user"] = i == 2 ? "bob" : "anna";
  }
  out["events"][1]["gpu_uuid"] = "GPU-one";
  return out;
}

TEST_F(Events, AreSelectedAsPsSelectsJobsAlsoOfThoseThatEnded) {
  const auto numbers = [](std::vector<std::string> words) {
    words.emplace_back("--json");
    const CommandEnd said = events(std::move(words), of_three_jobs);
    EXPECT_EQ(said.code, kOk) << said.err;
    std::vector<int> out;
    const json listing = json::parse(said.out);
    for (const json& each : listing["events"]) out.push_back(each["number"]);
    return out;
  };
  using Numbers = std::vector<int>;
  EXPECT_EQ(numbers({}), (Numbers{1, 2, 3, 4})) << "the fourth is about no job";
  EXPECT_EQ(numbers({"100"}), (Numbers{1})) << "a PID";
  EXPECT_EQ(numbers({"id-b"}), (Numbers{2}));
  EXPECT_EQ(numbers({"a", "c"}), (Numbers{1, 3}));
  EXPECT_EQ(numbers({"?"}), (Numbers{1, 2, 3}));
  EXPECT_EQ(numbers({"--user", "bob"}), (Numbers{3}));
  EXPECT_EQ(numbers({"--gpu", "1"}), (Numbers{2}));
  EXPECT_EQ(numbers({"--state", "running"}), (Numbers{1, 2}));
  EXPECT_EQ(numbers({"?", "--user", "anna", "--gpu", "1"}), (Numbers{2}));
  EXPECT_EQ(events({"x-*"}, of_three_jobs).code, kNoSuchJobOrGpu);
  EXPECT_EQ(events({"--state", "asleep"}, of_three_jobs).code, kUsage);
  EXPECT_EQ(events({"--gpu", "9"}, of_three_jobs).code, kNoSuchJobOrGpu) << "no such GPU";
  EXPECT_EQ(events({"--user", "nobody"}, of_three_jobs).code, kOk);
}

TEST_F(Events, APatternWaitsForJobsThatBeginLaterAndANameDoesNot) {
  std::atomic<int> asked{0};
  const FakeMonitor::Answer monitor = [&](const json& request) -> json {
    if (request["op"] == "ps") return {{"ok", true}, {"jobs", json::array()}};
    if (request["op"] == "status") return {{"ok", true}, {"gpus", json::array()}};
    if (request.contains("target")) {
      return {{"ok", false}, {"code", kNoSuchJobOrGpu}, {"error", "no event is about it"}};
    }
    if (++asked == 1) return answer({1}, false);
    if (asked > 2) return {{"ok", false}, {"code", kMonitorUnreachable}, {"error", "it has ended"}};
    json out = answer({2}, false);
    out["events"][0]["job"] = "id-late";
    out["events"][0]["name"] = "late";
    return out;
  };
  EXPECT_EQ(events({"--follow", "missing", "other"}, monitor).code, kNoSuchJobOrGpu);
  asked = 0;
  const CommandEnd said = events({"--follow", "la*"}, monitor);
  EXPECT_EQ(said.code, kMonitorUnreachable) << said.err;
  EXPECT_NE(said.out.find("event 2"), std::string::npos) << said.out;
}

}  // namespace
}  // namespace switchyard::tools
