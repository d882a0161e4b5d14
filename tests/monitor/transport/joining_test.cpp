// Joining, leaving, and the life of jobs.
#include <gtest/gtest.h>

#include "tests/monitor/log_lines.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

TEST(Joining, ABareProcessIsAJobOfItsOwn) {
  Rig rig;
  const Joined a = rig.join({});
  const Joined b = rig.join({});
  EXPECT_NE(a.client->job, b.client->job);
  EXPECT_EQ(a.shim.page().head.magic, abi::kMagic);
  EXPECT_STRNE(a.shim.card().job, "") << "the page says what a restarted monitor must learn";
  EXPECT_STREQ(a.shim.card().name, a.shim.card().job);
}

TEST(Joining, ProcessesWithTheSameJobShareIt) {
  Rig rig;
  EXPECT_EQ(rig.join({.job = "j1"}).client->job, rig.join({.job = "j1"}).client->job);
}

TEST(Joining, TheFirstProcessSetsTheKnobsOfItsJob) {
  Rig rig;
  rig.join({.job = "j1", .priority = "high"});
  const Joined second = rig.join({.job = "j1", .priority = "low"});
  EXPECT_STREQ(second.shim.card().priority, "high");
}

TEST(Joining, WhoAsksForOtherSettingsThanItsJobHasIsToldThatTheyAreIgnored) {
  Rig rig;
  const LogLines log;
  rig.join({.job = "j1", .share = "2", .limit = "none"});
  EXPECT_TRUE(rig.join({.job = "j1", .share = "3", .guard = "5%"}).client->other_settings);
  EXPECT_EQ(log.count("asks for share 3, guard 5%, but job 'j1' was made without"), 1u);
  EXPECT_TRUE(rig.join({.job = "j1", .priority = "high"}).client->other_settings);
  EXPECT_FALSE(rig.join({.job = "j1", .share = "2.0", .limit = "100%"}).client->other_settings)
      << "the same values";
  EXPECT_FALSE(rig.join({.job = "j1", .name = "other", .share = "2"}).client->other_settings);
  EXPECT_FALSE(rig.join({.job = "j1", .priority = "normal", .share = "1", .limit = "none"})
                   .client->other_settings)
      << "for a variable that is not set the library sends the default";
  ASSERT_EQ(rig.ask({{"op", "set"}, {"target", "j1"}, {"share", "4"}})["ok"], true);
  EXPECT_FALSE(rig.join({.job = "j1", .share = "2"}).client->other_settings) << "as it began";
  EXPECT_EQ(log.count("asks for"), 1u) << "once for each job";
}

TEST(Joining, SettingsAreNotComparedWithThoseOfAJobThatThisMonitorFound) {
  Rig rig;
  const Ask changed_by_set{.job = "j1", .share = "4"};
  rig.join(changed_by_set, 1000, 1, wire::kRejoin);
  const Ask begun_with{.job = "j1", .share = "2"};
  EXPECT_FALSE(rig.join(begun_with).client->other_settings);
  Rig next;
  next.join(begun_with);
  EXPECT_FALSE(next.join(changed_by_set, 1000, 1, wire::kRejoin).client->other_settings);
}

TEST(Joining, AProcessOfACreatedJobHasItsSettingsInItsEnvironment) {
  Rig rig;
  std::string why;
  ASSERT_NE(rig.monitor.create(card_of({.job = "j1", .memory = "1GiB", .limit = "none"}), 1000, 0,
                               {}, rig.now, why),
            nullptr)
      << why;
  EXPECT_FALSE(rig.join({.job = "j1", .memory = "1GiB", .limit = "none"}).client->other_settings);
  EXPECT_TRUE(rig.join({.job = "j1", .memory = "2GiB"}).client->other_settings);
}

TEST(Joining, AJobBelongsToAUserAndWhoElseSaysItsIdGetsAJobOfItsOwn) {
  Rig rig;
  const Joined mine = rig.join({.job = "j1"}, 1000);
  for (const uid_t other : {1001, 0}) {
    const Joined theirs = rig.join({.job = "j1"}, other);
    EXPECT_NE(theirs.client->job, mine.client->job);
    EXPECT_STRNE(theirs.shim.card().job, "j1");
  }
  EXPECT_EQ(rig.join({.job = "j1"}, 1000).client->job, mine.client->job);
}

// Ids stand in `ps` for everybody, and a fresh monitor knows no job yet.
TEST(Joining, AnIdThatAnotherUserSaidFirstCostsTheOwnerNothing) {
  Rig rig;
  rig.gpus.uses[0] = {{4000, kGiB}, {4001, kGiB}};
  rig.now += seconds(1);
  rig.join({.job = "j1"}, 1001);
  wire::Hello hello =
      hello_of({.job = "j1", .name = "j1", .memory = "2GiB", .limit = "30%"}, 1, wire::kRejoin);
  hello.used_bytes[0] = kGiB;
  hello.paused = 1;
  const Joined first = rig.join_as({4000, 1000}, hello);
  const Joined second = rig.join_as({4001, 1000}, hello);
  const Job* job = rig.monitor.registry().find(first.client->job);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->uid, 1000u);
  EXPECT_EQ(second.client->job, job->key) << "the processes of one job stay together";
  EXPECT_EQ(job->knobs.limit, 0.3);
  EXPECT_TRUE(job->pause->on);
  EXPECT_EQ(first.lane().quota_bytes, 2 * kGiB);
  EXPECT_EQ(rig.account().charged(job->key), 2 * kGiB);
  EXPECT_STREQ(first.shim.card().job, job->id.c_str());
  EXPECT_EQ(rig.join({.job = "j1"}, 1000).client->job, job->key) << "and its later ones come to it";
}

TEST(Joining, ATextThatMakesNoSenseIsRefusedWithItsForms) {
  Rig rig;
  EXPECT_NE(rig.refusal({.priority = "urgent"}).find("high, normal or low"), std::string::npos);
  EXPECT_NE(rig.refusal({.share = "-1"}).find("'-1'"), std::string::npos);
  EXPECT_NE(rig.refusal({.memory = "lots"}).find("GiB"), std::string::npos);
  EXPECT_NE(rig.refusal({.job = "../x"}).find("letters"), std::string::npos);
  EXPECT_TRUE(rig.monitor.registry().jobs().empty()) << "a refused process leaves nothing behind";
  EXPECT_TRUE(rig.monitor.registry().clients().empty());
}

// It asks again every two seconds.
TEST(Joining, AJobThatIsRefusedMemoryLeavesNoTrace) {
  Rig rig;
  rig.pass(seconds(1));
  history::Rows rows;
  rig.monitor.ledger().records_to([&](history::Rows more) { rows.add(std::move(more), 100); },
                                  [] { return 490'000 * 3600; });
  const Joined other = rig.runs({.job = "other", .memory = "3GiB"});
  const std::uint64_t newest = rig.monitor.journal().rare().newest();
  const auto names = rig.monitor.journal().names().size();
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(rig.refusal({.job = "j", .memory = "2GiB"}), "");
    const json made = rig.ask({{"op", "create"}, {"pid", 0}, {"card", {{"memory", "2GiB"}}}});
    EXPECT_EQ(made["ok"], false);
    rig.pass(seconds(2));
  }
  EXPECT_EQ(rig.monitor.registry().jobs().size(), 1u);
  EXPECT_EQ(rig.monitor.journal().names().size(), names);
  EXPECT_EQ(rows.jobs.size(), 1u);
  std::vector<HistoryEvent> events;
  rig.monitor.journal().read(newest, events, 100);
  for (const HistoryEvent& event : events) {
    EXPECT_NE(event.kind, EventKind::kJobBegins);
    EXPECT_NE(event.kind, EventKind::kJobEnds);
  }
}

TEST(Joining, ANameInUseGetsANumber) {
  Rig rig;
  rig.join({.name = "train"});
  EXPECT_STREQ(rig.join({.name = "train"}).shim.card().name, "train-2");
  EXPECT_STREQ(rig.join({.name = "train"}).shim.card().name, "train-3");
}

TEST(Joining, AJobLivesAsLongAsAClient) {
  Rig rig;
  const Joined a = rig.join({.job = "j1"});
  const Joined b = rig.join({.job = "j1"});
  rig.monitor.left(a.id);
  EXPECT_EQ(rig.monitor.registry().jobs().size(), 1u);
  rig.monitor.left(b.id);
  EXPECT_TRUE(rig.monitor.registry().jobs().empty());
}

TEST(Joining, ACreatedJobLivesAsLongAsItsCreatorOrAClient) {
  Rig rig;
  std::string why;
  const Job* job = rig.monitor.create(card_of({.name = "x"}), 1000, 77, {}, rig.now, why);
  ASSERT_NE(job, nullptr) << why;
  const JobKey key = job->key;
  const Joined a = rig.join({.job = job->id});
  EXPECT_EQ(a.client->job, key);
  rig.monitor.left(a.id);
  EXPECT_NE(rig.monitor.registry().find(key), nullptr) << "its processes come and go";
  const Joined b = rig.join({.job = job->id});
  rig.monitor.creator_died(key);
  EXPECT_NE(rig.monitor.registry().find(key), nullptr);
  rig.monitor.left(b.id);
  EXPECT_EQ(rig.monitor.registry().find(key), nullptr);
}

TEST(Joining, ACreatedJobThatNobodyJoinedGoesWithItsCreator) {
  Rig rig;
  std::string why;
  const Job* job = rig.monitor.create(card_of({.memory = "3GiB"}), 1000, 77, {}, rig.now, why);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(rig.account().free(), kGiB);
  rig.monitor.creator_died(job->key);
  EXPECT_TRUE(rig.monitor.registry().jobs().empty());
  EXPECT_EQ(rig.account().free(), 4 * kGiB);
}

TEST(Joining, ARestartedMonitorRebuildsTheJobFromWhatItsClientSays) {
  Rig old;
  const Joined before = old.join({.job = "j1", .name = "train", .memory = "2GiB"});
  ASSERT_TRUE(old.allocate(before, kGiB));
  old.ask({{"op", "set"}, {"target", "train"}, {"priority", "low"}, {"share", "3"}});

  Rig fresh;
  wire::Hello hello = hello_of({}, 1, wire::kRejoin);
  write_card_text(before.shim.card(), hello.card);
  hello.used_bytes[0] = kGiB;
  fresh.gpus.uses[0][4000] = kGiB;
  fresh.now += seconds(1);
  const Joined after = fresh.join_as({4000, 1000}, hello);
  const Job* job = fresh.monitor.registry().find_target("train");
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(job->id, "j1");
  EXPECT_EQ(job->knobs.priority, Priority::kLow);
  EXPECT_EQ(job->knobs.share.weight, 3);
  EXPECT_EQ(fresh.account().holding(after.id)->used(), kGiB) << "granted by force";
  EXPECT_EQ(fresh.account().charged(job->key), kGiB);
}

TEST(Joining, WhatWasSetBeforeARestartHoldsAlsoWhereANewProcessComesFirst) {
  Rig rig;
  const Ask started{.job = "j", .name = "x", .priority = "normal"};
  const Joined fresh = rig.join(started);
  const Ask set{.job = "j", .name = "x", .priority = "low", .memory = "2GiB"};
  const Joined old = rig.join(set, 1000, 1, wire::kRejoin);
  EXPECT_EQ(fresh.client->job, old.client->job);
  EXPECT_EQ(rig.job()["priority"], "low");
  EXPECT_EQ(fresh.lane().quota_bytes, 2 * kGiB);
  EXPECT_STREQ(fresh.shim.card().priority, "low");
  EXPECT_FALSE(old.client->other_settings);
  // Another process that comes again does not undo a later `set`.
  rig.ask({{"op", "set"}, {"target", "x"}, {"priority", "high"}});
  rig.join(set, 1000, 1, wire::kRejoin);
  EXPECT_EQ(rig.job()["priority"], "high");
}

TEST(Joining, WhatARestartedMonitorLearnsOfAMemberHoldsForItsIsland) {
  Rig rig;
  const auto member = [&](const char* job, const char* priority, std::uint32_t flags = 0) {
    wire::Hello hello = hello_of({.job = job, .name = job}, 1, flags);
    JobCard card = card_of({.job = job, .name = job, .priority = priority});
    set_text(card.co_run, "x");
    write_card_text(card, hello.card);
    return rig.join_as({rig.next_pid++, 1000}, hello);
  };
  const Joined a = member("a", "low"), b = member("b", "low");
  const Joined old = member("a", "normal", wire::kRejoin);
  EXPECT_EQ(rig.job(0)["priority"], "normal");
  EXPECT_EQ(rig.job(1)["priority"], "normal");
}

TEST(Joining, AProcessOfThisMonitorThatComesAgainBringsNoOldSettings) {
  Rig rig;
  const Ask started{.job = "j", .name = "x", .priority = "low"};
  const Joined a = rig.join(started), b = rig.join({.job = "j", .priority = "high"});
  const wire::Hello again =
      hello_of({.job = "j", .name = "x", .priority = "high"}, 1, wire::kRejoin);
  rig.join_as(b.client->peer, again);
  EXPECT_EQ(rig.job()["priority"], "low");
}

// It is newer than the pages of the older processes.
TEST(Joining, ASettingSinceTheNewProcessCameOutlivesTheOlderOnes) {
  Rig rig;
  const Joined fresh = rig.join({.job = "j1", .name = "x", .priority = "normal"});
  ASSERT_EQ(rig.ask({{"op", "set"}, {"target", "x"}, {"priority", "high"}})["ok"], true);
  rig.join({.job = "j1", .name = "x", .priority = "low"}, 1000, 1, wire::kRejoin);
  EXPECT_EQ(rig.job()["priority"], "high");
  EXPECT_STREQ(fresh.shim.card().priority, "high");
}

TEST(Joining, ARejoinIsTakenEvenWhereItsQuotaNoLongerFits) {
  Rig rig;
  rig.join({.memory = "3GiB"});
  wire::Hello hello = hello_of({.memory = "3GiB"}, 1, wire::kRejoin);
  hello.used_bytes[0] = 2 * kGiB;
  rig.gpus.uses[0][4000] = 2 * kGiB;
  rig.now += seconds(1);
  const Joined again = rig.join_as({4000, 1000}, hello);
  EXPECT_EQ(again.lane().quota_bytes, 3 * kGiB);
  EXPECT_EQ(rig.account().overdrawn(), kGiB);
}

TEST(Joining, ARejoinCanNotClaimMoreThanNvmlSeesOfItsProcess) {
  Rig rig;
  rig.gpus.uses[0] = {{3999, kGiB}, {4000, kGiB}};
  rig.gpus.unlisted = 10 * kMiB;
  rig.now += seconds(1);
  rig.join_as({3999, 1000}, hello_of({}, 1));
  wire::Hello hello = hello_of({}, 1, wire::kRejoin);
  hello.used_bytes[0] = ~0ull;
  const Joined again = rig.join_as({4000, 1000}, hello);
  EXPECT_EQ(rig.account().holding(again.id)->used(), kGiB + 10 * kMiB);
  EXPECT_EQ(again.lane().available_bytes, rig.account().available(again.id));
  const Joined none = rig.join_as({4001, 1001}, hello);
  EXPECT_LE(rig.account().holding(none.id)->used(), 10 * kMiB) << "it has nothing there";
}

// As after a restart: until the others have joined, theirs could be anybody's.
TEST(Joining, WhatTheFirstToRejoinClaimsOfTheOthersIsTakenFromItOnceTheyAreThere) {
  Rig rig;
  rig.gpus.uses[0] = {{4000, 2 * kGiB}};
  rig.now += seconds(1);
  wire::Hello hello = hello_of({}, 1, wire::kRejoin);
  hello.used_bytes[0] = ~0ull;
  const Joined liar = rig.join_as({4001, 1001}, hello);
  hello.used_bytes[0] = 2 * kGiB;
  const Joined honest = rig.join_as({4000, 1000}, hello);
  for (int i = 0; i < 7; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(liar.id)->used(), 0u);
  EXPECT_EQ(rig.account().holding(honest.id)->used(), 2 * kGiB);
  EXPECT_EQ(rig.account().free(), 2 * kGiB);
}

TEST(Joining, MemoryThatAJobClaimsToHaveSwappedOutMustBeSaidToBeAway) {
  Rig rig;
  wire::Hello hello = hello_of({.swappable = "yes"}, 1, wire::kRejoin);
  hello.used_bytes[0] = 3 * kGiB;
  rig.gpus.uses[0] = {{4000, kMiB}, {4001, kMiB}};
  const Joined away = rig.join_as({4000, 1000}, hello);
  away.shim.swappable(3 * kGiB);
  away.shim.be_absent();
  const Joined liar = rig.join_as({4001, 1001}, hello);
  for (int i = 0; i < 7; ++i) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(liar.id)->used(), kMiB);
  EXPECT_EQ(rig.account().holding(away.id)->used(), 3 * kGiB) << "or it comes back without room";
}

TEST(Joining, AnObserverSeesTheQuotaAndIsChargedNothing) {
  Rig rig;
  const Joined worker = rig.join({.job = "j1", .memory = "2GiB"});
  ASSERT_TRUE(rig.allocate(worker, kGiB));
  const Joined observer = rig.join({.job = "j1"}, 1000, 1, wire::kObserver);
  rig.pass(seconds(1));
  EXPECT_EQ(observer.lane().quota_bytes, 2 * kGiB);
  EXPECT_EQ(observer.lane().others_used_bytes, kGiB);
  EXPECT_EQ(observer.lane().available_bytes, kGiB);
  EXPECT_EQ(rig.charge(observer, kMiB).granted_bytes, 0u);
  EXPECT_EQ(rig.account().holding(observer.id), nullptr);
}

TEST(Joining, AnObserverThatComesFirstLeavesThePromiseOfACreatedJobAlone) {
  Rig rig;
  std::string why;
  const Job* job = rig.monitor.create(card_of({.memory = "3GiB"}), 1000, 77, {}, rig.now, why);
  ASSERT_NE(job, nullptr) << why;
  const Joined observer = rig.join({.job = job->id}, 1000, 1, wire::kObserver);
  EXPECT_EQ(rig.account().reserved(), 3 * kGiB);
  EXPECT_EQ(observer.lane().quota_bytes, 3 * kGiB);
}

TEST(Joining, AnObserverIsNotRefusedForAQuotaThatDoesNotFit) {
  Rig rig;
  rig.join({.memory = "3GiB"});
  EXPECT_EQ(rig.join({.memory = "2GiB"}, 1000, 1, wire::kObserver).lane().quota_bytes, 2 * kGiB);
}

TEST(Joining, AGpuThatIsNotGovernedHasALaneWithoutAQuota) {
  Rig rig(1);
  const Joined both = rig.join({.memory = "1GiB"}, 1000, 2);
  EXPECT_EQ(both.lane(0).quota_bytes, kGiB);
  EXPECT_EQ(both.lane(1).quota_bytes, 0u);
  const wire::Charged charged = rig.charge(both, 100 * kGiB, 1);
  EXPECT_EQ(charged.verdict, wire::kGranted);
  EXPECT_GE(both.lane(1).credit_bytes, 100 * kGiB);
}

TEST(Joining, AGpuNamedTwiceIsGovernedOnce) {
  Rig rig;
  wire::Hello hello = hello_of({}, 2);
  std::copy(std::begin(hello.uuid[0]), std::end(hello.uuid[0]), hello.uuid[1]);
  EXPECT_EQ(rig.join_as({4000, 1000}, hello).client->lanes.size(), 1u);
}

TEST(Joining, AChargeOnALaneThatIsNotThereIsRefused) {
  Rig rig;
  const Joined a = rig.join({});
  EXPECT_NE(rig.charge(a, kMiB, 1).verdict, wire::kGranted);
  EXPECT_NE(rig.charge(a, kMiB, 0xffffffff).verdict, wire::kGranted);
  EXPECT_NE(rig.monitor.charge(999, {0, 0, 1}, rig.now).verdict, wire::kGranted);
}

TEST(Joining, RootCapsWhatUsersGet) {
  Settings settings;
  settings.caps.priority = Priority::kNormal;
  settings.caps.may_be_high = {1007};
  settings.caps.share = 2;
  settings.caps.memory_bytes = kGiB;
  Rig rig(1, 4 * kGiB, settings);
  const Joined user = rig.join({.priority = "high", .share = "50"}, 1000);
  EXPECT_STREQ(user.shim.card().priority, "normal");
  EXPECT_STREQ(user.shim.card().share, "2");
  EXPECT_EQ(user.lane().quota_bytes, kGiB);
  EXPECT_STREQ(rig.join({.priority = "high"}, 1007).shim.card().priority, "high");
  EXPECT_STREQ(rig.join({.priority = "high"}, 0).shim.card().priority, "high");
}

TEST(Joining, ACapOfMemoryHoldsForWhoeverAsksForNone) {
  Settings settings;
  settings.caps.memory_bytes = kGiB;
  Rig rig(1, 4 * kGiB, settings);
  std::string why;
  const Job* made = rig.monitor.create(card_of({.name = "made"}), 1000, 77, {}, rig.now, why);
  ASSERT_NE(made, nullptr) << why;
  wire::Hello rejoins = hello_of({.name = "again"}, 1, wire::kRejoin);
  for (const Joined& each : {rig.join({.job = made->id}), rig.join({.name = "bare"}),
                             rig.join_as({4000, 1000}, rejoins)}) {
    EXPECT_EQ(each.lane().quota_bytes, kGiB);
    EXPECT_TRUE(rig.allocate(each, kGiB - 2 * kMiB));
    EXPECT_FALSE(rig.allocate(each, 4 * kMiB));
    rig.release(each, kGiB - 2 * kMiB);
  }
  EXPECT_EQ(rig.account().reserved(), 0u) << "nobody asked for a promise";
  const Joined root = rig.join({}, 0);
  EXPECT_EQ(root.lane().quota_bytes, 0u);
  EXPECT_TRUE(rig.allocate(root, 3 * kGiB));
}

TEST(Joining, SetMemoryNoneLeavesTheCap) {
  Settings settings;
  settings.caps.memory_bytes = kGiB;
  Rig rig(1, 4 * kGiB, settings);
  const Joined a = rig.join({.name = "a", .memory = "512MiB"});
  EXPECT_EQ(a.lane().quota_bytes, kGiB / 2);
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "a"}, {"memory", "none"}}, 1000)["ok"], true);
  EXPECT_EQ(a.lane().quota_bytes, kGiB);
  EXPECT_FALSE(rig.allocate(a, kGiB + 2 * kMiB));
  EXPECT_EQ(rig.account().reserved(), 0u);
}

TEST(Joining, TheMonitorIsDoneSomeTimeAfterItsLastJob) {
  Rig rig;
  EXPECT_FALSE(rig.monitor.done(rig.now + seconds(30))) << "it waits for the first one";
  EXPECT_TRUE(rig.monitor.done(rig.now + seconds(61)));
  const Joined a = rig.join({});
  rig.pass(seconds(1000));
  EXPECT_FALSE(rig.monitor.done(rig.now));
  rig.monitor.left(a.id);
  EXPECT_FALSE(rig.monitor.done(rig.now + seconds(4)));
  EXPECT_TRUE(rig.monitor.done(rig.now + seconds(5)));
}

TEST(Joining, APersistentMonitorIsNeverDone) {
  Settings settings;
  settings.persist = true;
  Rig rig(1, kGiB, settings);
  EXPECT_FALSE(rig.monitor.done(rig.now + seconds(100'000)));
}

TEST(Joining, TheHeartbeatGrows) {
  Rig rig;
  const Joined a = rig.join({});
  const std::uint64_t before = a.shim.page().head.heartbeat;
  rig.pass(std::chrono::milliseconds(200));
  EXPECT_GT(a.shim.page().head.heartbeat, before);
}

TEST(Registry, NamesAndIdsShareOneSpace) {
  Rig rig;
  rig.join({.job = "abc"});
  std::string why;
  EXPECT_EQ(rig.monitor.create(card_of({.name = "abc"}), 1, 1, {}, rig.now, why), nullptr);
  EXPECT_NE(why.find("in use"), std::string::npos);
  EXPECT_NE(rig.monitor.registry().find_target("abc"), nullptr);
}

TEST(Registry, ALongNameKeepsItsLengthWhenItGetsANumber) {
  Rig rig;
  const std::string name(63, 'n');
  rig.join({.name = name});
  EXPECT_EQ(rig.monitor.registry().free_name(name), std::string(61, 'n') + "-2");
}

}  // namespace
}  // namespace switchyard::monitor::test
