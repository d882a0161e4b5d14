// Requests to the history: they are checked, and made into queries.
#include <gtest/gtest.h>
#include <unistd.h>

#include <ctime>
#include <memory>

#include "monitor/control/commands.h"
#include "monitor/history/store.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

constexpr uid_t kMonitorOwner = 4711;

struct HistoryQueries : ::testing::Test {
  HistoryQueries() { rig.monitor.records_to(store); }
  static Settings owned() {
    Settings settings;
    settings.owner = kMonitorOwner;
    settings.bills_of_all = false;
    return settings;
  }
  Answer ask(const json& request, const Peer& peer = {1, 0}) {
    return answer_command(rig.monitor, peer, request.dump(), rig.now);
  }
  history::Query report(json request, const Peer& peer = {1, 0}) {
    request["op"] = "report";
    const Answer answer = ask(request, peer);
    EXPECT_TRUE(answer.report) << answer.json;
    return answer.report.value_or(history::Query{});
  }
  int refusal_of(const json& request) { return json::parse(ask(request).json).value("code", 0); }

  Rig rig{1, 4 * kGiB, owned()};
  history::Store store{[](std::string&) { return nullptr; }};
};

TEST_F(HistoryQueries, AreByJobUnlessTheyNameAnother) {
  using history::By;
  EXPECT_EQ(report({}).by, By::kJob);
  const struct {
    const char* name;
    By by;
  } rows[] = {{"job", By::kJob},
              {"user", By::kUser},
              {"gpu", By::kGpu},
              {"day", By::kDay},
              {"slurmjob", By::kSlurmJob}};
  for (const auto& row : rows) EXPECT_EQ(report({{"by", row.name}}).by, row.by) << row.name;
  EXPECT_EQ(refusal_of({{"op", "report"}, {"by", "x"}}), kUsage);
}

TEST_F(HistoryQueries, BeginWithAWholeHourAndEndWithOne) {
  const auto hours = [&](const json& since, const json& until) {
    const history::Query query = report({{"since", since}, {"until", until}});
    return std::pair(query.since_hour, query.until_hour);
  };
  EXPECT_EQ(hours(3599, 3600), std::pair(0l, 1l));
  EXPECT_EQ(hours(3600, 3601), std::pair(1l, 2l)) << "an hour that has begun is a whole one";
  EXPECT_EQ(hours(7200, 7200), std::pair(2l, 2l));
}

TEST_F(HistoryQueries, WithoutAnEndGoOnForAnHourFromNow) {
  const auto before = static_cast<std::int64_t>(std::time(nullptr));
  const history::Query query = report({{"since", nullptr}});
  const auto after = static_cast<std::int64_t>(std::time(nullptr));
  EXPECT_EQ(query.since_hour, 0);
  EXPECT_GE(query.until_hour, before / 3600 + 1);
  EXPECT_LE(query.until_hour, after / 3600 + 2);
}

TEST_F(HistoryQueries, OfImpossibleTimesAndListsAreRefused) {
  for (const char* key : {"since", "until", "after"}) {
    for (const json& value : {json(-1), json(1.5), json("1"), json((1ll << 40) + 1)}) {
      EXPECT_EQ(refusal_of({{"op", "report"}, {key, value}}), kUsage) << key << value;
    }
    EXPECT_EQ(refusal_of({{"op", "report"}, {key, 1ll << 40}}), 0) << key;
  }
  for (const char* key : {"jobs", "gpus"}) {
    for (const json& value : {json("x"), json::array({1}), json::array({"x", nullptr})}) {
      EXPECT_EQ(refusal_of({{"op", "report"}, {key, value}}), kUsage) << key << value;
    }
  }
  for (const char* key : {"ids", "users"}) {
    EXPECT_EQ(refusal_of({{"op", "report"}, {"jobs", {{key, "x"}}}}), kUsage) << key;
  }
}

TEST_F(HistoryQueries, NameWhatTheyAreAbout) {
  const history::Query query = report({{"after", 7},
                                       {"job", "x"},
                                       {"slurm_job", "42"},
                                       {"jobs", {"a", "b"}},
                                       {"gpus", {"0", "GPU-1"}}});
  EXPECT_EQ(query.after, 7);
  EXPECT_EQ(query.job, "x");
  EXPECT_EQ(query.slurm_job, "42");
  EXPECT_EQ(query.jobs, R"(["a","b"])");
  EXPECT_EQ(query.gpus, (std::vector<std::string>{"0", "GPU-1"}));
  EXPECT_EQ(report({}).jobs, "") << "of all";
  EXPECT_EQ(report({{"jobs", json::array()}}).jobs, "[]") << "of none";
  EXPECT_EQ(report({}).users, "") << "of all";
  const history::Query both = report({{"jobs", {{"ids", {"a"}}, {"users", {"ann", "7"}}}}});
  EXPECT_EQ(both.jobs, R"(["a"])");
  EXPECT_EQ(both.users, R"(["ann","7"])");
}

TEST_F(HistoryQueries, OnlyByJobThereIsABriefAnswer) {
  EXPECT_FALSE(report({}).brief);
  EXPECT_TRUE(report({{"brief", true}}).brief);
  EXPECT_FALSE(report({{"brief", true}, {"by", "user"}}).brief);
}

// Root and the monitor's owner see all. From inside of a container nobody sees a command line.
TEST_F(HistoryQueries, ShowWhatTheAskerMaySee) {
  const struct {
    uid_t uid;
    const char* container;
    bool all, commands;
  } rows[] = {{0, "", true, true},      {kMonitorOwner, "", true, true},
              {1000, "", false, true},  {kMonitorOwner, "box", false, false},
              {0, "box", false, false}, {1000, "box", false, false}};
  for (const auto& row : rows) {
    const Peer peer{1, row.uid, row.container};
    const history::Query query = report({}, peer);
    EXPECT_EQ(query.uid, peer.account()) << row.uid << row.container;
    EXPECT_EQ(query.sees_all, row.all) << row.uid << row.container;
    EXPECT_EQ(query.sees_bills, row.all) << row.uid << row.container;
    EXPECT_EQ(query.sees_commands, row.commands) << row.uid << row.container;
  }
}

TEST_F(HistoryQueries, OfEventsAreOfTheLastSecondsAndOfOneJob) {
  const double before =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Answer answer =
      ask({{"op", "past events"}, {"seconds", 60}, {"after", 7}, {"target", "x"}}, {1, 1000});
  ASSERT_TRUE(answer.report) << answer.json;
  EXPECT_TRUE(answer.report->events);
  EXPECT_NEAR(answer.report->since_unix, before - 60, 30);
  EXPECT_EQ(answer.report->after, 7);
  EXPECT_EQ(answer.report->job, "x");
  EXPECT_EQ(answer.report->uid, 1000u);
  EXPECT_EQ(refusal_of({{"op", "past events"}, {"seconds", -1}}), kUsage);
  EXPECT_EQ(refusal_of({{"op", "past events"}, {"after", "x"}}), kUsage);
}

}  // namespace
}  // namespace switchyard::monitor::test
