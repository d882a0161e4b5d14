// Settings that are read anew while jobs run.
#include "switchyard/status.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

using config::Counts;
using config::Rule;
using config::Scope;
using Lines = std::vector<std::string>;

Rule rule_of(Scope scope, const std::string& name, id_t id) {
  Rule rule;
  rule.scope = scope;
  rule.name = name;
  rule.id = id;
  return rule;
}

Settings with_memory_cap(std::uint64_t bytes, unsigned line) {
  Settings settings;
  settings.caps.memory_bytes = bytes;
  settings.caps.from.memory = "caps.memory, f.toml:" + std::to_string(line);
  return settings;
}

TEST(Reconfigure, ALoweredCapLeavesWhatAJobHasAndRefusesMore) {
  Rig rig(1, 8 * kGiB, with_memory_cap(4 * kGiB, 2));
  const Joined a = rig.join({.name = "a"});
  ASSERT_TRUE(rig.allocate(a, 2 * kGiB));
  rig.monitor.reconfigure(with_memory_cap(kGiB, 2), rig.now);
  rig.pass(seconds(1));
  EXPECT_GE(rig.account().charged(a.client->job), 2 * kGiB) << "it keeps what it has";
  EXPECT_EQ(a.lane().quota_bytes, kGiB);
  EXPECT_FALSE(rig.allocate(a, 64 * kMiB)) << "and gets no more";
  rig.monitor.reconfigure(with_memory_cap(6 * kGiB, 2), rig.now);
  EXPECT_TRUE(rig.allocate(a, 3 * kGiB)) << "a raised cap holds at once";
  rig.monitor.reconfigure({}, rig.now);
  EXPECT_EQ(a.lane().quota_bytes, 0u) << "and so does a removed one";
  EXPECT_TRUE(rig.allocate(a, 2 * kGiB));
}

TEST(Reconfigure, APromisedQuotaStaysBelowALoweredCap) {
  Rig rig(1, 8 * kGiB);
  const Joined a = rig.join({.name = "a", .memory = "4GiB"});
  rig.monitor.reconfigure(with_memory_cap(kGiB, 2), rig.now);
  EXPECT_EQ(rig.account().reserved(), 4 * kGiB);
  EXPECT_TRUE(rig.allocate(a, 3 * kGiB));
  const json more = rig.ask({{"op", "set"}, {"target", "a"}, {"memory", "5GiB"}}, 1000);
  EXPECT_EQ(more["code"], kRefusedByPolicy);
  EXPECT_NE(more["error"].get<std::string>().find("caps.memory, f.toml:2"), std::string::npos);
}

TEST(Reconfigure, RefusedMemoryNamesTheRuleInItsEvent) {
  Rig rig(1, 8 * kGiB, with_memory_cap(kGiB, 7));
  const Joined a = rig.join({.name = "a"});
  EXPECT_FALSE(rig.allocate(a, 2 * kGiB));
  std::string text;
  const json listed = rig.ask({{"op", "events"}});
  for (const json& event : listed["events"]) {
    if (event["kind"] == "memory refused") text = event["text"];
  }
  EXPECT_NE(text.find("root allows 1.00 GiB here: caps.memory, f.toml:7"), std::string::npos)
      << text;
}

TEST(Reconfigure, ARuleOfAUserHoldsForItAlone) {
  Settings settings;
  settings.user_rules.file = "f.toml";
  settings.user_rules.rules = {rule_of(Scope::kUser, "alice", 1000)};
  settings.user_rules.rules[0].caps = {{"priority", "low", 3}};
  settings.user_rules.rules[0].defaults = {{"share", "3", 5}};
  Rig rig(1, 4 * kGiB, settings);
  const json high = {{"op", "create"}, {"card", {{"priority", "high"}}}};
  const json refused = rig.ask(high, 1000);
  EXPECT_EQ(refused["code"], kRefusedByPolicy);
  EXPECT_NE(refused["error"].get<std::string>().find("caps.priority of user 'alice', f.toml:3"),
            std::string::npos);
  EXPECT_EQ(rig.ask(high, 1001)["ok"], true);
}

TEST(Reconfigure, DefaultsHoldForWhoAsksForNothing) {
  Settings settings;
  settings.user_rules.rules = {rule_of(Scope::kAll, "", 0)};
  settings.user_rules.rules[0].defaults = {
      {"priority", "low", 2}, {"share", "3", 3}, {"swappable", "yes", 4}, {"limit", "none", 5}};
  Rig rig(1, 4 * kGiB, settings);
  ASSERT_EQ(rig.ask({{"op", "create"}, {"card", {{"name", "made"}, {"share", "5"}}}}, 1000)["ok"],
            true);
  const Job* made = rig.monitor.registry().find_target("made");
  EXPECT_EQ(made->knobs.priority, Priority::kLow);
  EXPECT_EQ(made->knobs.share.weight, 5) << "it asked for it";
  EXPECT_TRUE(made->knobs.swappable);
  const Joined bare = rig.join({.name = "bare", .priority = "normal"});
  EXPECT_STREQ(bare.shim.card().priority, "normal");
  EXPECT_STREQ(bare.shim.card().share, "3");
  EXPECT_STREQ(bare.shim.card().swappable, "yes");
  EXPECT_FALSE(bare.client->other_settings) << "a default is nothing that it asks for";
}

TEST(Reconfigure, ADefaultAboveACapIsLowered) {
  Settings settings = with_memory_cap(kGiB, 2);
  settings.user_rules.rules = {rule_of(Scope::kAll, "", 0)};
  settings.user_rules.rules[0].defaults = {{"memory", "2GiB", 2}};
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_EQ(rig.ask({{"op", "create"}, {"card", {{"name", "x"}}}}, 1000)["ok"], true);
  EXPECT_EQ(rig.monitor.registry().find_target("x")->knobs.memory, MemoryQuota{kGiB});
  EXPECT_EQ(rig.join({.name = "y"}, 1001).lane().quota_bytes, kGiB);
}

TEST(Reconfigure, AJobThatRejoinsKeepsItsCard) {
  Settings settings;
  settings.user_rules.rules = {rule_of(Scope::kAll, "", 0)};
  settings.user_rules.rules[0].defaults = {{"share", "3", 3}};
  Rig rig(1, 4 * kGiB, settings);
  const Joined again = rig.join({.name = "x", .priority = "low"}, 1000, 1, wire::kRejoin);
  EXPECT_STREQ(again.shim.card().share, "") << "it was made before there was a default";
}

TEST(Reconfigure, AChoiceStaysWhereTheFileChangesSomethingElse) {
  Rig rig;
  const json chosen = {{"op", "policy"}, {"minimum", "10%"}, {"slice", "4ms"}, {"waits", "slices"}};
  ASSERT_EQ(rig.ask(chosen)["ok"], true);
  Settings settings;
  settings.rules.kind = policy::Kind::kExclusive;
  rig.monitor.reconfigure(settings, rig.now);
  const json now = rig.ask({{"op", "policy"}});
  EXPECT_EQ(now["policy"], "exclusive");
  EXPECT_EQ(now["minimum_ratio"], 0.1);
  EXPECT_EQ(now["slice_us"], 4000);
  EXPECT_EQ(now["waits"], "slices");
}

TEST(Reconfigure, TheChoiceOfAPersonStaysUnlessTheFileChanges) {
  Rig rig;
  EXPECT_EQ(rig.ask({{"op", "policy"}, {"policy", "fair"}})["ok"], true);
  Settings settings;
  rig.monitor.reconfigure(settings, rig.now);
  EXPECT_EQ(rig.monitor.scheduler().rules().kind, policy::Kind::kFair);
  settings.rules.kind = policy::Kind::kExclusive;
  rig.monitor.reconfigure(settings, rig.now);
  EXPECT_EQ(rig.monitor.scheduler().rules().kind, policy::Kind::kExclusive);
}

TEST(Reconfigure, SaysWhatChangedAndWhatWaits) {
  Settings settings;
  settings.shown = {{"monitor.policy", "fair", "f.toml:1", Counts::kAtReload},
                    {"history.days", "90", "default", Counts::kAtStart}};
  settings.user_rules.rules = {rule_of(Scope::kGroup, "students", 70)};
  settings.user_rules.rules[0].caps = {{"memory", "4GiB", 3}, {"share", "1", 4}};
  Rig rig(1, 4 * kGiB, settings);
  settings.shown[0].value = "priority";
  settings.shown[1].value = "30";
  settings.user_rules.rules[0].caps = {{"memory", "2GiB", 9}};
  settings.user_rules.rules[0].defaults = {{"priority", "low", 11}};
  const auto changes = rig.monitor.reconfigure(settings, rig.now);
  EXPECT_EQ(changes.now,
            (Lines{"group.students.caps.memory 4GiB -> 2GiB",
                   "group.students.defaults.priority unset -> low",
                   "group.students.caps.share 1 -> unset", "monitor.policy fair -> priority"}));
  EXPECT_EQ(changes.later, Lines{"history.days 90 -> 30"});
  const auto again = rig.monitor.reconfigure(settings, rig.now);
  EXPECT_EQ(again.now, Lines{});
  EXPECT_EQ(again.later, Lines{}) << "it was said";
  const json listed = rig.ask({{"op", "config"}})["settings"];
  EXPECT_EQ(listed[1]["value"], "90");
  EXPECT_EQ(listed[1]["next_start"], "30");
}

TEST(Reconfigure, UsersSeeTheRulesThatConcernThem) {
  Settings settings;
  settings.user_rules.file = "f.toml";
  settings.user_rules.rules = {rule_of(Scope::kUser, "alice", 1000),
                               rule_of(Scope::kUser, "bob", 1001)};
  settings.user_rules.rules[0].caps = {{"memory", "4GiB", 3}};
  settings.user_rules.rules[1].caps = {{"memory", "2GiB", 5}};
  Rig rig(1, 4 * kGiB, settings);
  EXPECT_EQ(rig.ask({{"op", "config"}}, 0)["settings"].size(), 2u);
  const json alices = rig.ask({{"op", "config"}}, 1000)["settings"];
  ASSERT_EQ(alices.size(), 1u);
  EXPECT_EQ(alices[0]["key"], "user.alice.caps.memory");
  EXPECT_EQ(alices[0]["from"], "f.toml:3");
}

TEST(Reconfigure, FewerJobsOfAUserAreRefusedByTheRule) {
  Settings settings;
  settings.shown = {{"monitor.jobs-per-user", "1", "f.toml:4", Counts::kAtReload}};
  Rig rig;
  rig.join({.name = "a"});
  rig.join({.name = "b"});
  settings.users.jobs = 1;
  rig.monitor.reconfigure(settings, rig.now);
  EXPECT_EQ(rig.monitor.registry().jobs().size(), 2u) << "both go on";
  const json refused = rig.ask({{"op", "create"}, {"card", {{"name", "c"}}}}, 1000);
  EXPECT_NE(refused["error"].get<std::string>().find("monitor.jobs-per-user, f.toml:4"),
            std::string::npos)
      << refused;
}

}  // namespace
}  // namespace switchyard::monitor::test
