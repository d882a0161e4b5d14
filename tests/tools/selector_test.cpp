// Which jobs the words and options of a command mean, and what a command does with several.
#include "tools/base/selector.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "fake_monitor.h"
#include "tools/base/interrupt.h"
#include "tools/base/targets.h"
#include "tools/pause/pause.h"
#include "tools/set/set.h"

namespace switchyard::tools::selector_tests {
namespace {

using nlohmann::json;
using Names = std::vector<std::string>;

// The user of these tests, or one whom root can be.
uid_t bob() { return ::geteuid() == 0 ? 1002 : ::geteuid(); }
constexpr uid_t kAlice = 1001;

json job(const std::string& id, const std::string& name, const std::string& user, unsigned pid,
         unsigned gpu, const std::string& state = "running") {
  return {{"job", id},
          {"name", name},
          {"user", user},
          {"uid", user == "alice" ? kAlice : bob()},
          {"state", state},
          {"processes", {{{"pid", pid}}}},
          {"gpus",
           {{{"uuid", "GPU-aa"}, {"index", 0}, {"launches", gpu == 0 ? 5 : 0}},
            {{"uuid", "GPU-ab"}, {"index", 1}, {"memory_used_bytes", gpu == 1 ? 5 : 0}}}}};
}

json jobs() {
  return {job("jab12", "train-1", "alice", 100, 0), job("jab34", "train-2", "bob", 200, 1, "held"),
          job("jcd56", "serve", "bob", 300, 0, "idle"), job("jef78", "100", "alice", 400, 1),
          job("train-9", "jcd56x", "alice", 500, 0)};
}

Selection words(Names given) {
  Selection selection;
  selection.words = std::move(given);
  return selection;
}

// --user, --gpu and --state
Selection options(const std::string& users, const std::string& gpus, const std::string& states) {
  Selection selection;
  selection.users = users;
  selection.gpus = gpus;
  selection.states = states;
  return selection;
}

Names meant(const Selection& selection) {
  const json all = jobs();
  const auto found = select(all, selection);
  if (!found) return {"error " + std::to_string(found.error().code) + ": " + found.error().text};
  Names names;
  for (const std::size_t place : *found) names.push_back(all[place]["name"]);
  return names;
}

TEST(Selector, EachRowOfTheGrammar) {
  EXPECT_EQ(meant(words({"serve"})), Names{"serve"});
  EXPECT_EQ(meant(words({"jab12"})), Names{"train-1"});
  EXPECT_EQ(meant(words({"jcd56"})), Names{"serve"}) << "an id wins over the beginning of a name";
  EXPECT_EQ(meant(words({"train-?"})), (Names{"train-1", "train-2", "jcd56x"})) << "names and ids";
  EXPECT_EQ(meant(words({"*ve"})), Names{"serve"});
  EXPECT_EQ(meant(words({"*"})).size(), 5u);
  EXPECT_EQ(meant(words({"200"})), Names{"train-2"}) << "a PID";
  EXPECT_EQ(meant(words({"100"})), Names{"100"}) << "a name wins over a PID";
  EXPECT_EQ(meant(words({"jcd5"})), Names{"serve"});
  EXPECT_EQ(meant(words({"train-"})), Names{"jcd56x"}) << "an id, and no beginning of a name";
}

TEST(Selector, AnAmbiguousIdNamesTheCandidates) {
  EXPECT_EQ(meant(words({"jab"})),
            Names{"error 2: 'jab' begins the ids of 2 jobs: jab12 (train-1), jab34 (train-2); give "
                  "more of it"});
  EXPECT_EQ(meant(words({"ja"})), Names{"error 4: no job 'ja'; `switchyard ps` lists the jobs"})
      << "two letters are no id";
}

TEST(Selector, OfManyCandidatesSomeAreNamed) {
  json many = json::array();
  for (int i = 0; i < 300; ++i) many.push_back({{"job", "jab" + std::to_string(1000 + i)}});
  const auto found = select(many, words({"jab"}));
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().text.find("300 jobs: jab1000"), std::string::npos);
  EXPECT_NE(found.error().text.find("and 292 more"), std::string::npos) << found.error().text;
}

TEST(Selector, AWordThatMeansNothingIsAnError) {
  EXPECT_EQ(meant(words({"serve", "none"})),
            Names{"error 4: no job 'none'; `switchyard ps` lists the jobs"});
  EXPECT_EQ(meant(words({"x*"})),
            Names{"error 4: no job fits 'x*'; `switchyard ps` lists the jobs"});
  EXPECT_EQ(meant(words({"999"})), Names{"error 4: no job '999'; `switchyard ps` lists the jobs"});
}

TEST(Selector, WordsAddUpAndOptionsNarrow) {
  EXPECT_EQ(meant(words({"serve", "train-1", "serve"})), (Names{"train-1", "serve"}));
  EXPECT_EQ(meant(options("bob", "", "")), (Names{"train-2", "serve"}));
  EXPECT_EQ(meant(options("bob,alice", "", "")).size(), 5u);
  EXPECT_EQ(meant(options(std::to_string(bob()), "", "")), (Names{"train-2", "serve"}));
  EXPECT_EQ(meant(options("", "1", "")), (Names{"train-2", "100"}))
      << "those that are on it, not seeing it";
  EXPECT_EQ(meant(options("", "GPU-aa", "")), (Names{"train-1", "serve", "jcd56x"}));
  EXPECT_EQ(meant(options("", "", "held,idle")), (Names{"train-2", "serve"}));
  Selection trains = words({"train-*"});
  trains.users = "bob";
  EXPECT_EQ(meant(trains), Names{"train-2"});
  EXPECT_EQ(meant(options("bob", "0", "running")), Names{});
  EXPECT_EQ(meant(options("carol", "", "")), Names{});
  EXPECT_EQ(meant(Selection{}).size(), 5u);
}

TEST(Selector, ABadValueOfAnOptionIsAnError) {
  EXPECT_EQ(meant(options("", "", "slow"))[0].rfind("error 2: --state cannot be 'slow'", 0), 0u);
  EXPECT_EQ(meant(options("", "first", ""))[0].rfind("error 2: --gpu cannot be 'first'", 0), 0u);
  EXPECT_EQ(meant(options("", "GPU-", ""))[0].rfind("error 2: --gpu cannot be 'GPU-'", 0), 0u)
      << "every UUID begins so";
  EXPECT_EQ(meant(options(",", "", ""))[0].rfind("error 2: --user cannot be ','", 0), 0u);
}

TEST(Selector, APatternIsWhatNamesNoJobAlone) {
  EXPECT_TRUE(words({"a*"}).is_pattern());
  EXPECT_TRUE(options("bob", "", "").is_pattern());
  EXPECT_FALSE(words({"a", "b"}).is_pattern());
  EXPECT_TRUE(Selection{}.means_all());
}

struct Said : CommandEnd {
  Names asked;  // "pause jab12"
};

// One command beside these jobs; `refused`: the id of one that may not be changed.
Said run(Names command, const std::string& refused = "") {
  Said said;
  const auto monitor = FakeMonitor::answering([&](const json& request) -> json {
    const std::string op = request["op"];
    if (op == "ps") return {{"ok", true}, {"jobs", jobs()}};
    const std::string target = request["target"];
    said.asked.push_back(op + " " + target);
    if (target == refused) return {{"ok", false}, {"code", kNoPermission}, {"error", "not yours"}};
    for (const json& each : jobs()) {
      if (each["job"] == target || each["name"] == target) return {{"ok", true}, {"name", target}};
    }
    return {{"ok", false}, {"code", kNoSuchJobOrGpu}, {"error", "no job '" + target + "'"}};
  });
  static_cast<CommandEnd&>(said) =
      run_command(monitor.socket(), {&add_pause, &add_resume, &add_set}, std::move(command));
  return said;
}

TEST(Targets, ANameIsAskedForAtOnce) {
  const Said said = run({"resume", "serve"});
  EXPECT_EQ(said.asked, Names{"resume serve"});
  EXPECT_EQ(said.out, "serve: resumed\n");
}

TEST(Targets, APidAndTheBeginningOfAnIdAreLookedUp) {
  EXPECT_EQ(run({"resume", "200"}).asked, (Names{"resume 200", "resume jab34"}));
  EXPECT_EQ(run({"resume", "200"}).out, "train-2: resumed\n");
  EXPECT_EQ(run({"resume", "jef"}).asked.back(), "resume jef78");
  const Said none = run({"resume", "nobody"});
  EXPECT_EQ(none.code, kNoSuchJobOrGpu);
  EXPECT_EQ(none.err, "switchyard: no job 'nobody'\n") << "as the monitor says it";
  const Said several = run({"resume", "jab"});
  EXPECT_EQ(several.code, kUsage);
  EXPECT_NE(several.err.find("jab12 (train-1), jab34 (train-2)"), std::string::npos) << several.err;
}

TEST(Targets, SeveralAreAskedForByTheirIds) {
  const Said said = run({"set", "serve", "jab12", "--share", "2"});
  EXPECT_EQ(said.asked, (Names{"set jab12", "set jcd56"}));
  EXPECT_EQ(said.out, "train-1: share 2\nserve: share 2\n");
  const Said lines = run({"resume", "serve", "jab12", "--json"});
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 2) << "an object in each line";
}

TEST(Targets, AnErrorOfOneDoesNotKeepTheOthersAndIsTheExitCode) {
  const Said said = run({"resume", "serve", "train-1"}, "jab12");
  EXPECT_EQ(said.asked, (Names{"resume jab12", "resume jcd56"}));
  EXPECT_EQ(said.code, kNoPermission);
  EXPECT_EQ(said.out, "serve: resumed\n");
  EXPECT_EQ(said.err, "switchyard: not yours\n");
}

TEST(Targets, WhoInterruptsOneIsAskedForNoOther) {
  const auto monitor = FakeMonitor::answering([](const json&) -> json {
    return {{"ok", true}, {"jobs", jobs()}};
  });
  ::setenv("SWITCHYARD_SOCKET", monitor.socket().c_str(), 1);
  Names acted;
  const auto interrupted = [&](const Target& target) -> std::optional<Error> {
    acted.push_back(target.id);
    return Error{kInterrupted, "cancelled"};
  };
  EXPECT_EQ(for_each_job(words({"serve", "train-1"}), interrupted), kInterrupted);
  EXPECT_EQ(acted, Names{"jab12"});
  ::unsetenv("SWITCHYARD_SOCKET");
}

TEST(Targets, APatternMeansOnesOwnJobsAndForRootAll) {
  const auto asked_as = [](uid_t user) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::geteuid() != user && ::seteuid(user) != 0) ::_exit(90);
      const Said said = run({"resume", "*"});
      ::_exit(said.code == kOk ? static_cast<int>(said.asked.size()) : 100 + said.code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(asked_as(bob()), 2);
  if (::geteuid() == 0) {
    EXPECT_EQ(asked_as(0), 5);
  }
}

TEST(Targets, WithoutAnyTheCommandAsksWhich) {
  const Said said = run({"pause"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_NE(said.err.find("pause: which job?"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("see `switchyard pause --help`"), std::string::npos) << said.err;
  EXPECT_EQ(said.asked, Names{});
  const Said none = run({"pause", "--user", "carol"});
  EXPECT_EQ(none.code, kNoSuchJobOrGpu);
}

}  // namespace
}  // namespace switchyard::tools::selector_tests
