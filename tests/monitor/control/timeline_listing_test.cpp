// The recorded timeline as a program asks for it.
#include "monitor/control/timeline_listing.h"

#include <gtest/gtest.h>

#include "monitor/status/job_status.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

json timeline_of(Rig& rig, const char* of, json request = json::object()) {
  request["op"] = "timeline";
  request["of"] = of;
  return rig.ask(request, 1001, 7);  // neither root nor the owner of a job
}

constexpr unsigned number_of(status::State state) { return static_cast<unsigned>(state); }

TEST(TimelineListing, WordsExplainTheCodesAndNameTheGpus) {
  Rig rig(2);
  const json words = timeline_of(rig, "words");
  ASSERT_EQ(words["ok"], true);
  EXPECT_EQ(words["now_ns"], rig.now.count());
  EXPECT_EQ(words["started_ns"], rig.monitor.started().count());
  EXPECT_EQ(words["states"][number_of(status::State::kRunning)], "running");
  EXPECT_EQ(words["reasons"][0], "");
  EXPECT_EQ(words["reasons"][static_cast<unsigned>(status::Reason::kTurn)], "turn");
  EXPECT_EQ(words["reasons"].size(), static_cast<std::size_t>(status::Reason::kOldLibrary) + 1);
  EXPECT_EQ(words["kinds"][static_cast<unsigned>(EventKind::kGate)], "gate");
  EXPECT_EQ(words["kinds"].size(), kEventKinds + 1);
  ASSERT_EQ(words["gpus"].size(), 2u);
  EXPECT_EQ(words["gpus"][1]["uuid"], rig.monitor.gpus()[1].info.uuid_text);
}

TEST(TimelineListing, AJobSaysWhatItDoesNowAndWhichGatesAreClosed) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(milliseconds(200));
  rig.ask({{"op", "pause"}, {"target", "x"}}, 0, 77);
  timeline_of(rig, "words");
  const json listed = timeline_of(rig, "jobs")["jobs"];
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["key"], job.client->job);
  EXPECT_EQ(listed[0]["name"], "x");
  EXPECT_EQ(listed[0]["user"], user_name(1000));
  EXPECT_EQ(listed[0]["state"][0], number_of(status::State::kPaused));
  EXPECT_EQ(listed[0]["gpus"][0][0], 1);
  EXPECT_EQ(listed[0]["gates"], (json::array({{1, job.client->peer.pid, abi::kClosedByPause}})));
  EXPECT_EQ(listed[0].count("command"), 0u) << "others' command lines are nobody's business";
}

TEST(TimelineListing, AnEndedJobIsKnownByItsName) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(milliseconds(200));
  rig.dies(job);
  const json listed = timeline_of(rig, "jobs")["jobs"];
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0]["name"], "x");
  EXPECT_EQ(listed[0].count("gates"), 0u);
}

TEST(TimelineListing, RecordsAreTheTapsOwn) {
  Rig rig;
  const Joined job = rig.runs({.name = "x"});
  rig.pass(milliseconds(200));
  rig.ask({{"op", "pause"}, {"target", "x"}}, 0, 77);
  const json turns = timeline_of(rig, "turns");
  ASSERT_FALSE(turns["records"].empty());
  const json gate = turns["records"].back();
  EXPECT_EQ(gate[0], rig.now.count());
  EXPECT_EQ(gate[1], static_cast<unsigned>(EventKind::kGate));
  EXPECT_EQ(gate[2], job.client->job);
  EXPECT_EQ(gate[4], 1);
  EXPECT_EQ(gate[5], job.client->peer.pid);
  EXPECT_EQ(gate[7], abi::kClosedByPause);
  EXPECT_EQ(turns["users"], (json{{{"uid", 1000}, {"user", user_name(1000)}}}));
  const json changes = timeline_of(rig, "changes");
  EXPECT_EQ(changes["records"][0][1], static_cast<unsigned>(EventKind::kMonitorBegins));
  const json samples = timeline_of(rig, "samples", {{"seconds", 1}});
  ASSERT_FALSE(samples["records"].empty());
  EXPECT_EQ(samples["records"][0][1], job.client->job) << "it is sampled when it joins";
  EXPECT_EQ(samples["records"][1][1], 0) << "and the GPU with the first tick";
}

// However much there is, one answer has a bounded part of it, and the parts leave nothing out.
TEST(TimelineListing, ManyRecordsComeInParts) {
  Rig rig;
  const std::uint64_t before = rig.monitor.journal().timeline().newest();
  for (unsigned i = 0; i < 5000; ++i) {
    HistoryEvent event = event_of(EventKind::kGate, 1, rig.now + Time(i));
    event.value = i;
    rig.monitor.journal().take(event);
  }
  json request{{"since", before}};
  std::uint64_t next = 0, parts = 0;
  for (bool more = true; more; ++parts) {
    const std::string text =
        answer_command(
            rig.monitor, {7, 1001},
            json{{"op", "timeline"}, {"of", "turns"}, {"since", request["since"]}}.dump(), rig.now)
            .json;
    ASSERT_LT(text.size(), 256u * 1024);
    const json answer = json::parse(text);
    EXPECT_EQ(answer["lost"], 0);
    for (const json& record : answer["records"]) ASSERT_EQ(record[7], next++);
    request["since"] = answer["last"];
    more = answer["more"];
  }
  EXPECT_EQ(next, 5000u);
  EXPECT_EQ(parts, 5u);
}

TEST(TimelineListing, ManyJobsComeInParts) {
  Rig rig;
  std::vector<Joined> jobs;
  for (int i = 0; i < 300; ++i) {
    const uid_t user = 1000 + i % 2;  // one user may not have as many
    jobs.push_back(rig.join({.name = "j" + std::to_string(i)}, user));
  }
  std::set<std::string> names;
  json request = json::object();
  for (int parts = 0; parts < 3; ++parts) {
    const json answer = timeline_of(rig, "jobs", request);
    for (const json& job : answer["jobs"]) EXPECT_TRUE(names.insert(job["name"]).second);
    if (answer["more_after"].is_null()) break;
    request["after"] = answer["more_after"];
  }
  EXPECT_EQ(names.size(), 300u);
}

TEST(TimelineListing, AnAnswerHasABoundedNumberOfGates) {
  Rig rig(16);
  std::vector<Joined> all;
  for (const char* job : {"a", "b"}) {
    for (int i = 0; i < 32; ++i) all.push_back(rig.join({.job = job}, 0, 16));
  }
  const json first = timeline_of(rig, "jobs");
  ASSERT_EQ(first["jobs"].size(), 1u);
  EXPECT_EQ(first["jobs"][0]["gates"].size(), 512u);
  const json rest = timeline_of(rig, "jobs", {{"after", first["more_after"]}});
  EXPECT_EQ(rest["jobs"].size(), 1u);
  EXPECT_EQ(rest["more_after"], nullptr);
}

TEST(TimelineListing, ASpanOfTimeIsTheLastOne) {
  Rig rig;
  for (int i = 0; i < 20; ++i) rig.pass(seconds(1));
  const json samples = timeline_of(rig, "samples", {{"seconds", 5.5}})["records"];
  ASSERT_EQ(samples.size(), 6u);
  EXPECT_EQ(samples[0][0], (rig.now - seconds(5)).count());
}

TEST(TimelineListing, OfASpanWhatWasReadAlreadyIsNotReadAgain) {
  Rig rig;
  for (int i = 0; i < 20; ++i) rig.pass(seconds(1));
  const std::uint64_t last = timeline_of(rig, "samples")["last"];
  EXPECT_EQ(timeline_of(rig, "samples", {{"seconds", 5.5}, {"since", last - 2}})["records"].size(),
            2u);
  EXPECT_EQ(timeline_of(rig, "samples", {{"seconds", 1.5}, {"since", last - 9}})["records"].size(),
            2u);
}

TEST(TimelineListing, NonsenseIsRefused) {
  Rig rig;
  for (const json& bad :
       {json{{"of", "x"}}, json::object(), json{{"of", "turns"}, {"since", "x"}},
        json{{"of", "turns"}, {"seconds", -1}}, json{{"of", "jobs"}, {"after", json::array()}}}) {
    json request = bad;
    request["op"] = "timeline";
    EXPECT_EQ(rig.ask(request)["code"], kUsage) << bad;
  }
  EXPECT_EQ(timeline_of(rig, "turns", {{"since", 1e300}})["records"], json::array());
  EXPECT_EQ(timeline_of(rig, "turns", {{"seconds", 1e300}})["ok"], true);
}

}  // namespace
}  // namespace switchyard::monitor::test
