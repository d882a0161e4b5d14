// Quotas, credit and waiting, on fake GPUs with fake clients.
#include "monitor/residency/memory_broker.h"

#include <gtest/gtest.h>

#include <random>

#include "switchyard/status.h"
#include "tests/monitor/rig.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::test {
namespace {

TEST(Memory, ACreditIsGrantedInChunks) {
  Rig rig;
  const Joined a = rig.join({.memory = "2GiB"});
  const wire::Charged charged = rig.charge(a, 10 * kMiB);
  EXPECT_EQ(charged.verdict, wire::kGranted);
  EXPECT_EQ(charged.granted_bytes, 512 * kMiB);
  EXPECT_EQ(a.lane().credit_bytes, 512 * kMiB);
  EXPECT_EQ(charged.available_bytes, 2 * kGiB - 512 * kMiB);
  EXPECT_EQ(a.lane().available_bytes, charged.available_bytes);
}

TEST(Memory, CreditThatIsThereAlreadyCostsNothing) {
  Rig rig;
  const Joined a = rig.join({.memory = "2GiB"});
  rig.charge(a, 10 * kMiB);
  EXPECT_EQ(rig.charge(a, 10 * kMiB).granted_bytes, 0u);
}

TEST(Memory, ExactlyTheQuotaCanBeUsed) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB"});
  EXPECT_TRUE(rig.allocate(a, 1000 * kMiB));
  EXPECT_TRUE(rig.allocate(a, 24 * kMiB - 5));
  EXPECT_TRUE(rig.allocate(a, 5)) << "also the last odd bytes";
  EXPECT_FALSE(rig.allocate(a, 1));
  EXPECT_EQ(rig.charge(a, 1).verdict, wire::kOverQuota);
}

TEST(Memory, APartIsOfEachGpu) {
  Rig rig(2);
  rig.gpus.memories[1].total_bytes = 2 * kGiB;
  rig.pass(std::chrono::seconds(2));
  const Joined a = rig.join({.memory = "25%"}, 1000, 2);
  EXPECT_TRUE(rig.allocate(a, kGiB));
  EXPECT_EQ(rig.charge(a, 1).verdict, wire::kOverQuota);
  EXPECT_EQ(rig.charge(a, 513 * kMiB, 1).verdict, wire::kOverQuota);
  EXPECT_EQ(rig.charge(a, 512 * kMiB, 1).verdict, wire::kGranted);
}

TEST(Memory, APartIsOfWhatTheMonitorMayGive) {
  Settings settings;
  settings.capacity = 2 * kGiB;
  Rig rig(1, 4 * kGiB, settings);
  const Joined a = rig.join({.memory = "50%"});
  const Joined b = rig.join({.memory = "50%"});
  for (const Joined* each : {&a, &b}) {
    EXPECT_TRUE(rig.allocate(*each, kGiB));
    EXPECT_EQ(rig.charge(*each, 1).verdict, wire::kOverQuota);
  }
}

TEST(Memory, APartOfMemoryThatNobodyKnowsIsNoQuota) {
  Rig rig(1, 0);
  const Joined a = rig.join({.memory = "50%"});
  EXPECT_EQ(rig.monitor.gpus().gives(0), 0u);
  EXPECT_TRUE(rig.allocate(a, kGiB));
}

TEST(Memory, SiblingsShareOneQuota) {
  Rig rig;
  const Joined a = rig.join({.job = "j", .memory = "1GiB"});
  const Joined b = rig.join({.job = "j"});
  EXPECT_TRUE(rig.allocate(a, 700 * kMiB));
  EXPECT_FALSE(rig.allocate(b, 400 * kMiB));
  EXPECT_TRUE(rig.allocate(b, 324 * kMiB));
  EXPECT_EQ(b.lane().others_used_bytes, 700 * kMiB);
}

TEST(Memory, IdleCreditOfASiblingIsTakenBackBeforeARefusal) {
  Rig rig;
  const Joined a = rig.join({.job = "j", .memory = "1GiB"});
  const Joined b = rig.join({.job = "j"});
  ASSERT_TRUE(rig.allocate(a, 100 * kMiB));
  EXPECT_GT(a.lane().credit_bytes, 0u);
  EXPECT_TRUE(rig.allocate(b, 924 * kMiB));
  EXPECT_EQ(a.lane().credit_bytes, 0u);
}

TEST(Memory, WithoutAQuotaEverybodySharesWhatIsNotReserved) {
  Rig rig;  // 4 GiB
  rig.join({.memory = "1GiB"});
  const Joined b = rig.join({});
  const Joined c = rig.join({});
  EXPECT_EQ(b.lane().quota_bytes, 0u);
  EXPECT_TRUE(rig.allocate(b, 2 * kGiB));
  EXPECT_TRUE(rig.allocate(c, kGiB)) << "b's idle credit is taken back";
  EXPECT_EQ(rig.charge(c, kMiB).verdict, wire::kGpuFull);
}

TEST(Memory, AQuotaIsHonouredPerGpu) {
  Rig rig(2);
  const Joined a = rig.join({.memory = "1GiB"}, 1000, 2);
  EXPECT_EQ(rig.charge(a, kGiB, 0).verdict, wire::kGranted);
  EXPECT_EQ(rig.charge(a, kGiB, 1).verdict, wire::kGranted);
  EXPECT_EQ(rig.charge(a, kGiB + 1, 1).verdict, wire::kOverQuota);
}

TEST(Memory, AQuotaIsPromisedOnTheGpusThatTheJobSees) {
  Rig rig(2);
  rig.join({.memory = "3GiB"});  // sees GPU 0 alone
  EXPECT_EQ(rig.account(0).reserved(), 3 * kGiB);
  EXPECT_EQ(rig.account(1).reserved(), 0u);
}

TEST(Memory, WhereItIsNotPromisedAQuotaIsACeiling) {
  Rig rig(2);
  rig.join({.memory = "3GiB"});
  const Joined b = rig.join({.memory = "2GiB"}, 1000, 2);
  EXPECT_EQ(rig.charge(b, 2 * kGiB, 1).verdict, wire::kGranted);
  EXPECT_EQ(rig.charge(b, kGiB, 0).verdict, wire::kGranted) << "what is free, below the ceiling";
  EXPECT_EQ(rig.charge(b, 2 * kGiB, 0).verdict, wire::kOverQuota);
}

TEST(Memory, AQuotaThatFitsNowhereIsRefusedNamingTheHolders) {
  Rig rig;
  rig.join({.name = "big", .memory = "3GiB"});
  const std::string why = rig.refusal({.memory = "2GiB"});
  EXPECT_NE(why.find("job 'big'"), std::string::npos) << why;
  EXPECT_NE(why.find("3.00 GiB"), std::string::npos) << why;
  EXPECT_NE(why.find("1.00 GiB are left"), std::string::npos) << why;
}

TEST(Memory, AQuotaLargerThanTheGpuIsRefusedWithoutTellingToEndNobody) {
  Rig rig;
  const std::string why = rig.refusal({.memory = "100GiB"});
  EXPECT_NE(why.find("the job asks for 100.00 GiB on GPU 0,"), std::string::npos) << why;
  EXPECT_EQ(why.find("or end one of these"), std::string::npos) << why;
}

TEST(Memory, IdleCreditDoesNotStandInTheWayOfAQuota) {
  Rig rig;
  const Joined a = rig.join({});
  ASSERT_TRUE(rig.allocate(a, 10 * kMiB));
  EXPECT_GT(a.lane().credit_bytes, 200 * kMiB);
  rig.join({.memory = "4086MiB"});
  EXPECT_EQ(a.lane().credit_bytes, 0u);
}

TEST(Memory, DeathGivesEverythingBack) {
  Rig rig;
  const Joined a = rig.join({.job = "j", .memory = "1GiB"});
  const Joined b = rig.join({.job = "j"});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  EXPECT_FALSE(rig.allocate(b, kMiB));
  rig.dies(a);
  EXPECT_TRUE(rig.allocate(b, kGiB));
}

TEST(Memory, ASetQuotaIsInThePageAtOnce) {
  Rig rig;
  const Joined a = rig.join({.name = "x", .memory = "2GiB"});
  ASSERT_TRUE(rig.allocate(a, 600 * kMiB));
  EXPECT_TRUE(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "1GiB"}})["ok"]);
  EXPECT_EQ(a.lane().quota_bytes, kGiB);
  EXPECT_STREQ(a.shim.card().memory, "1GiB");
  EXPECT_TRUE(rig.allocate(a, 424 * kMiB));
  EXPECT_FALSE(rig.allocate(a, 2 * kMiB));
}

TEST(Memory, BelowItsUseAQuotaRefusesNewAllocationsOnly) {
  Rig rig;
  const Joined a = rig.join({.name = "x", .memory = "2GiB"});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  EXPECT_TRUE(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "512MiB"}})["ok"]);
  EXPECT_EQ(a.lane().credit_bytes, 0u);
  EXPECT_FALSE(rig.allocate(a, kMiB));
  rig.release(a, 600 * kMiB);
  EXPECT_TRUE(rig.allocate(a, 80 * kMiB)) << "below again";
}

TEST(Memory, ALowerQuotaTakesNoMoreIdleCreditThanIsTooMuch) {
  Rig rig;
  const Joined a = rig.join({.job = "j", .name = "x", .memory = "2GiB"});
  const Joined b = rig.join({.job = "j"});
  for (const Joined* each : {&a, &b}) ASSERT_TRUE(rig.allocate(*each, 100 * kMiB));
  const auto credit = [&] { return a.lane().credit_bytes + b.lane().credit_bytes; };
  const std::uint64_t before = credit();
  ASSERT_GT(a.lane().credit_bytes, 4 * kMiB);
  ASSERT_GT(b.lane().credit_bytes, 4 * kMiB);
  const std::uint64_t quota = 200 * kMiB + before - 4 * kMiB;
  ASSERT_TRUE(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", std::to_string(quota)}})["ok"]);
  EXPECT_EQ(credit(), before - 4 * kMiB);
}

TEST(Memory, RaisingAQuotaBeyondWhatIsLeftIsRefused) {
  Rig rig;
  rig.join({.name = "x", .memory = "2GiB"});
  rig.join({.name = "y", .memory = "1GiB"});
  const auto reply = rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "3500MiB"}});
  EXPECT_EQ(reply["code"], kRefusedByPolicy);
  EXPECT_NE(reply["error"].get<std::string>().find("job 'y'"), std::string::npos);
  EXPECT_TRUE(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "3GiB"}})["ok"]);
}

TEST(Memory, AQuotaCanBeTakenAway) {
  Rig rig;
  const Joined a = rig.join({.name = "x", .memory = "1GiB"});
  EXPECT_TRUE(rig.ask({{"op", "set"}, {"target", "x"}, {"memory", "none"}})["ok"]);
  EXPECT_EQ(a.lane().quota_bytes, 0u);
  EXPECT_TRUE(rig.allocate(a, 2 * kGiB));
}

TEST(Memory, ACeilingOfRootsIsNoPromiseAlsoWhenTheJobHasComeBack) {
  Settings settings = with_host_pool(8 * kGiB);
  settings.caps.memory_bytes = 2 * kGiB;
  Rig rig(1, 4 * kGiB, settings);
  const Joined a = rig.runs({.name = "a", .swappable = "yes"});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  EXPECT_EQ(rig.charge(a, 2 * kGiB).verdict, wire::kOverQuota);
  a.shim.swappable(kGiB);
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().reserved(), 0u);
  rig.tell("swap-out", "a");
  a.shim.be_absent();
  rig.listed(a) = 0;
  rig.pass(seconds(1));
  rig.tell("swap-in", "a");
  a.shim.be_resident();
  rig.listed(a) = kGiB;
  rig.pass(seconds(1));
  ASSERT_EQ(rig.job()["residency"], "resident");
  EXPECT_EQ(rig.account().reserved(), 0u);
}

TEST(Memory, ACeilingOfRootsBecomesNoQuotaBeyondWhatIsLeft) {
  Settings settings;
  settings.caps.memory_bytes = 3 * kGiB;
  Rig rig(1, 4 * kGiB, settings);
  rig.join({.name = "a"});
  rig.join({.memory = "2GiB"});
  EXPECT_EQ(rig.ask({{"op", "set"}, {"target", "a"}, {"memory", "3GiB"}})["ok"], false);
}

TEST(Memory, AnOverdrawnGpuTakesNoCreditOutOfAPromise) {
  Rig rig;  // 4 GiB
  const Joined promised = rig.join({.memory = "2GiB"});
  const Joined other = rig.join({});
  ASSERT_TRUE(rig.allocate(promised, 10 * kMiB));
  ASSERT_TRUE(rig.allocate(other, 10 * kMiB));
  const std::uint64_t idle = promised.lane().credit_bytes;
  ASSERT_GT(idle, 0u);
  ASSERT_GT(other.lane().credit_bytes, 0u);
  rig.gpus.uses[0][77] = 3 * kGiB;  // a process that is nobody's
  rig.pass(seconds(1));
  ASSERT_GT(rig.account().overdrawn(), 0u);
  EXPECT_EQ(promised.lane().credit_bytes, idle);
  EXPECT_EQ(other.lane().credit_bytes, 0u);
}

TEST(MemoryWaiting, AJobThatWaitsIsToldToWaitUntilThereIsMemory) {
  Rig rig;
  const Joined holder = rig.join({});
  ASSERT_TRUE(rig.allocate(holder, 4 * kGiB));
  const Joined waiter = rig.join({.name = "w", .on_oom = "wait"});
  EXPECT_EQ(rig.charge(waiter, kGiB).verdict, wire::kWait);
  EXPECT_EQ(rig.ask({{"op", "ps"}})["jobs"][1]["state"], "waiting");
  EXPECT_EQ(rig.ask({{"op", "ps"}})["jobs"][1]["state_reason"], "memory");
  rig.now += milliseconds(100);
  EXPECT_EQ(rig.charge(waiter, kGiB).verdict, wire::kWait);
  rig.release(holder, 2 * kGiB);
  EXPECT_EQ(rig.charge(waiter, kGiB).verdict, wire::kGranted);
}

TEST(MemoryWaiting, WhoFoundItInItsOwnMemoryWaitsNoMore) {
  Rig rig;
  const Joined holder = rig.join({});
  ASSERT_TRUE(rig.allocate(holder, 4 * kGiB));
  const Joined waiter = rig.runs({.name = "w", .on_oom = "wait"});
  EXPECT_EQ(rig.charge(waiter, kGiB).verdict, wire::kWait);
  rig.pass(milliseconds(500));
  EXPECT_EQ(rig.job(1)["state_reason"], "memory");
  rig.pass(seconds(1));  // it trims a pool, say, and tells nobody
  EXPECT_NE(rig.job(1)["state_reason"], "memory");
}

// How often it is told to wait, asking every 100 ms.
int waits_for_a_gib(Rig& rig, const Joined& waiter) {
  int waits = 0;
  while (rig.charge(waiter, kGiB).verdict == wire::kWait && waits < 100) {
    ++waits;
    rig.now += milliseconds(100);
  }
  return waits;
}

TEST(MemoryWaiting, TheTimeOutEndsTheWait) {
  Rig rig;
  const Joined holder = rig.join({});
  ASSERT_TRUE(rig.allocate(holder, 4 * kGiB));
  const Joined waiter = rig.join({.on_oom = "wait", .oom_timeout = "1s"});
  EXPECT_EQ(waits_for_a_gib(rig, waiter), 10);
}

// Two jobs that wait for memory instead of failing, and have all that there is.
struct BothWait : Rig {
  Joined a = join({.on_oom = "wait"});
  Joined b = join({.on_oom = "wait"});
  BothWait() { EXPECT_TRUE(allocate(a, 2 * kGiB) && allocate(b, 2 * kGiB)); }
};

TEST(MemoryWaiting, WhenEveryHolderWaitsItIsRefusedAtOnce) {
  BothWait rig;
  EXPECT_EQ(rig.charge(rig.a, kGiB).verdict, wire::kWait) << "b may still free";
  EXPECT_EQ(rig.charge(rig.b, kGiB).verdict, wire::kWaitsInVain) << "now nobody would";
}

TEST(MemoryWaiting, AForeignProcessMayStillFree) {
  Rig rig;
  const Joined waiter = rig.join({.on_oom = "wait", .oom_timeout = "1s"});
  rig.gpus.uses[0][77] = 3 * kGiB;
  rig.pass(seconds(1));
  ASSERT_TRUE(rig.allocate(waiter, kGiB / 2));
  EXPECT_EQ(waits_for_a_gib(rig, waiter), 10) << "until its time-out";
  EXPECT_EQ(rig.charge(waiter, kGiB).verdict, wire::kWait);
  rig.gpus.uses[0].erase(77);
  rig.pass(seconds(1));
  EXPECT_EQ(rig.charge(waiter, kGiB).verdict, wire::kGranted);
}

TEST(MemoryWaiting, AHolderThatGaveUpWaitingDoesNotCountAsWaiting) {
  BothWait rig;
  rig.charge(rig.a, kGiB);
  rig.now += seconds(5);
  EXPECT_EQ(rig.charge(rig.b, kGiB).verdict, wire::kWait);
}

TEST(MemoryWaiting, AJobThatFillsItsOwnQuotaAloneWaitsInVain) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB", .on_oom = "wait"});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  EXPECT_EQ(rig.charge(a, kMiB).verdict, wire::kWaitsInVain);
}

TEST(MemoryWaiting, ASiblingThatDoesNotWaitMayStillFree) {
  Rig rig;
  const Joined a = rig.join({.job = "j", .memory = "1GiB", .on_oom = "wait"});
  const Joined b = rig.join({.job = "j"});
  ASSERT_TRUE(rig.allocate(b, kGiB));
  EXPECT_EQ(rig.charge(a, kMiB).verdict, wire::kWait);
}

TEST(MemoryHostile, APageThatLiesAboutItsCreditGetsNothingFromIt) {
  Rig rig;
  const Joined liar = rig.join({.memory = "1GiB"});
  const Joined other = rig.join({.memory = "3GiB"});
  rig.charge(liar, kMiB);
  liar.lane().credit_bytes = ~0ull;
  rig.pass(seconds(1));
  rig.charge(liar, ~0ull);
  rig.pass(seconds(1));
  EXPECT_LE(rig.account().charged(liar.client->job), kGiB);
  EXPECT_TRUE(rig.allocate(other, 3 * kGiB)) << "another job's promise is untouched";
}

TEST(MemoryHostile, RandomWordsInThePageBreakNothing) {
  for (std::uint64_t seed = 1; seed <= test_support::seeds(20); ++seed) {
    std::mt19937_64 random(seed);
    Rig rig;
    const Joined honest = rig.join({.memory = "1GiB"});
    const Joined hostile = rig.join({.name = "h", .memory = "1GiB"});
    auto* words = reinterpret_cast<std::uint64_t*>(&hostile.shim.page());
    for (int step = 0; step < 300; ++step) {
      for (int i = 0; i < 50; ++i) words[random() % (abi::kPageBytes / 8)] = random();
      rig.charge(hostile, random() >> (random() % 64));
      rig.monitor.refresh(hostile.id, {static_cast<std::uint32_t>(random()), 0, random()}, rig.now);
      if (step % 50 == 0) rig.ask({{"op", "set"}, {"target", "h"}, {"share", "2"}});
      rig.pass(milliseconds(100));
      ASSERT_LE(rig.account().charged(hostile.client->job), kGiB) << "seed " << seed;
    }
    EXPECT_TRUE(rig.allocate(honest, kGiB));
    rig.ask({{"op", "ps"}});
    rig.ask({{"op", "status"}});
  }
}

TEST(Memory, AThousandRandomAllocationsEndAtZero) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    Rig rig;
    std::vector<Joined> clients;
    for (int i = 0; i < 2; ++i) clients.push_back(rig.join({.job = "j", .memory = "1GiB"}));
    for (int i = 0; i < 2; ++i) clients.push_back(rig.join({}));
    std::vector<std::pair<std::size_t, std::uint64_t>> live;
    for (int step = 0; step < 1000; ++step) {
      if (random() % 2 == 0 || live.empty()) {
        const std::size_t who = random() % clients.size();
        const std::uint64_t bytes = 1 + random() % (200 * kMiB);
        if (rig.allocate(clients[who], bytes)) live.emplace_back(who, bytes);
      } else {
        const std::size_t at = random() % live.size();
        rig.release(clients[live[at].first], live[at].second);
        live.erase(live.begin() + static_cast<long>(at));
      }
      if (random() % 20 == 0) rig.pass(milliseconds(300));
      std::uint64_t used = 0;
      for (const auto& [who, bytes] : live) used += who < 2 ? bytes : 0;
      ASSERT_LE(used, kGiB);
    }
    for (const auto& [who, bytes] : live) rig.release(clients[who], bytes);
    rig.pass(seconds(1));
    rig.pass(seconds(1));
    for (const Joined& each : clients) {
      EXPECT_EQ(rig.account().holding(each.id)->used(), 0u) << "seed " << seed;
      EXPECT_EQ(rig.account().holding(each.id)->overhead, 0u);
      rig.monitor.died(each.id);
    }
    EXPECT_EQ(rig.account().free(), 4 * kGiB);
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
