// What NVML says: overhead, foreign processes, capacity.
#include "monitor/accounting/nvml_sampler.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

void measure(Rig& rig) {
  rig.now += seconds(1);
  rig.monitor.sampler().measure_all(rig.now);
}

// A process that is no client of the monitor.
void foreign_process_uses(Rig& rig, std::uint64_t bytes) {
  rig.gpus.uses[0][1] = bytes;
  measure(rig);
}

TEST(NvmlSampler, ContextsAreChargedToTheJob) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB"});
  rig.listed(a) = 500 * kMiB;  // a context, nothing allocated
  a.shim.open_context();
  rig.now += std::chrono::milliseconds(50);
  rig.monitor.refresh(a.id, {0, 0, 0}, rig.now);
  EXPECT_EQ(a.lane().others_used_bytes, 500 * kMiB);
  EXPECT_EQ(a.lane().available_bytes, 524 * kMiB);
  EXPECT_TRUE(rig.allocate(a, 524 * kMiB));
  EXPECT_FALSE(rig.allocate(a, 2 * kMiB));
}

TEST(NvmlSampler, OverheadThatGrowsLaterTakesBackIdleCredit) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB"});
  ASSERT_TRUE(rig.allocate(a, 700 * kMiB));
  ASSERT_EQ(rig.charge(a, 300 * kMiB).verdict, wire::kGranted);
  rig.listed(a) += 100 * kMiB;
  rig.pass(seconds(1));
  EXPECT_LE(a.lane().credit_bytes, 224 * kMiB);
  EXPECT_LE(rig.account().charged(a.client->job), kGiB);
}

TEST(NvmlSampler, WhereJobsTakeTurnsAPartIsKeptForOverhead) {
  Rig rig;
  const Joined plain = rig.join({.swappable = "yes"});
  rig.monitor.sampler().measure(0, rig.now);
  EXPECT_EQ(rig.account().capacity(), 4 * kGiB);
  const Joined turns = rig.join({.oversubscribe = "yes"});
  rig.monitor.sampler().measure(0, rig.now);
  EXPECT_EQ(rig.account().capacity(), 4 * kGiB - 64 * kMiB);
  rig.monitor.left(turns.id);
  rig.monitor.sampler().measure(0, rig.now);
  EXPECT_EQ(rig.account().capacity(), 4 * kGiB);
}

TEST(NvmlSampler, ACapacityThatLeavesEnoughIsNotLoweredForOverhead) {
  Settings settings;
  settings.capacity = 3 * kGiB;
  Rig rig(1, 4 * kGiB, settings);
  const Joined turns = rig.join({.oversubscribe = "yes"});
  rig.monitor.sampler().measure(0, rig.now);
  EXPECT_EQ(rig.account().capacity(), 3 * kGiB);
}

TEST(NvmlSampler, NvmlIsReadAgainBeforeARefusalButNotTooOften) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB"});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  rig.now += seconds(1);
  const int before = rig.gpus.readings;
  for (int i = 0; i < 100; ++i) rig.charge(a, kMiB);
  EXPECT_EQ(rig.gpus.readings, before + 1);
  rig.now += milliseconds(50);
  rig.charge(a, kMiB);
  EXPECT_EQ(rig.gpus.readings, before + 2);
}

TEST(NvmlSampler, WhereNvmlNamesNobodyWhatIsUsedIsDividedAmongTheClients) {
  Rig rig;
  rig.gpus.lists_processes = false;
  rig.gpus.unlisted = 300 * kMiB;  // somebody else's, there before us
  rig.monitor.sampler().measure(0, rig.now);
  rig.monitor.sampler().measure(0, rig.now);
  const Joined a = rig.join({.memory = "1GiB"});
  a.shim.open_context();
  rig.listed(a) = 60 * kMiB;
  rig.now += std::chrono::milliseconds(50);
  rig.monitor.refresh(a.id, {0, 0, 0}, rig.now);
  EXPECT_EQ(a.lane().others_used_bytes, 60 * kMiB);
  EXPECT_EQ(rig.account().outside(), 300 * kMiB);
}

TEST(NvmlSampler, AClientThatRefreshesAllTheTimeIsMeasuredOnceAndByTheNextTick) {
  Rig rig;
  std::vector<Joined> all;
  for (int i = 0; i < 20; ++i) all.push_back(rig.join({}));
  const int before = rig.gpus.readings;
  for (int round = 0; round < 49; ++round) {
    for (const Joined& each : all) rig.monitor.refresh(each.id, {0, 0, 0}, rig.now);
    rig.now += std::chrono::milliseconds(1);
  }
  EXPECT_EQ(rig.gpus.readings, before + 20) << "each client's first context counts at once";
  rig.monitor.tick(rig.now);
  EXPECT_EQ(rig.gpus.readings, before + 21) << "what came meanwhile";
}

// Memory that a client made and exported, of which another one has a part.
struct Shared {
  explicit Shared(Rig& rig, const Ask& importer = {}, uid_t uid = 1000)
      : maker(rig.join({})), other(rig.join(importer, uid)) {
    EXPECT_TRUE(rig.allocate(maker, 3 * kGiB));
    stays(maker, Stays::kIpcExported) = 2 * kGiB;
    stays(other, Stays::kIpcImported) = 2 * kGiB;
    rig.listed(other) = 100 * kMiB;  // its context
    measure(rig);
  }
  static abi::Word64& stays(const Joined& who, Stays why) {
    return who.shim.page().memories[0].stays_bytes[static_cast<unsigned>(why)];
  }
  // Its maker ends, and NVML calls what the other one has nobody's.
  void maker_ends(Rig& rig) const {
    rig.gpus.uses[0].erase(maker.client->peer.pid);
    rig.gpus.unlisted += 2 * kGiB;
    rig.monitor.left(maker.id);
  }
  Joined maker, other;
};

TEST(NvmlSampler, TheRoomOfMemoryThatOutlivesItsMakerIsNobodysForAMoment) {
  Rig rig;
  const Shared shared(rig);
  const Joined third = rig.join({});
  shared.maker_ends(rig);
  // 4 GiB less what is taken still and a context.
  EXPECT_FALSE(rig.allocate(third, 2 * kGiB));
  rig.pass(milliseconds(50));
  EXPECT_FALSE(rig.allocate(third, 2 * kGiB));
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_FALSE(rig.allocate(third, 2 * kGiB));
  EXPECT_TRUE(rig.allocate(third, kGiB));
  rig.release(third, kGiB);
  rig.gpus.unlisted = 0;  // the other one has let it go
  Shared::stays(shared.other, Stays::kIpcImported) = 0;
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_TRUE(rig.allocate(third, 3 * kGiB));
}

TEST(NvmlSampler, MemoryThatOutlivesItsMakerIsChargedToWhoHasIt) {
  Rig rig(1, 8 * kGiB);
  const Shared shared(rig, {.memory = "3GiB"});
  ASSERT_TRUE(rig.account().charged(shared.other.client->job) <= 100 * kMiB);
  shared.maker_ends(rig);
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().charged(shared.other.client->job), 2 * kGiB + 100 * kMiB);
  EXPECT_EQ(rig.account().outside(), 0u);
  EXPECT_FALSE(rig.allocate(shared.other, kGiB)) << "its quota has it";
  EXPECT_TRUE(rig.allocate(shared.other, 512 * kMiB));
  rig.gpus.unlisted = 0;
  Shared::stays(shared.other, Stays::kIpcImported) = 0;
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_TRUE(rig.allocate(shared.other, kGiB));
}

// All that claim to have it are one user's.
TEST(NvmlSampler, MemoryThatOutlivesItsMakerIsChargedOnce) {
  Rig rig(1, 8 * kGiB);
  const Shared shared(rig);
  const Joined third = rig.join({});
  Shared::stays(third, Stays::kIpcImported) = 2 * kGiB;
  rig.listed(third) = 100 * kMiB;
  shared.maker_ends(rig);
  rig.pass(seconds(1));
  EXPECT_EQ(
      rig.account().charged(shared.other.client->job) + rig.account().charged(third.client->job),
      2 * kGiB + 200 * kMiB);
}

// A process closes its connection first; the driver needs a while to end it.
TEST(NvmlSampler, AMakerThatNvmlListsForAWhileStillLeavesItsMemoryToWhoHasIt) {
  Rig rig(1, 8 * kGiB);
  const Shared shared(rig, {.memory = "3GiB"});
  const pid_t maker = shared.maker.client->peer.pid;
  rig.monitor.left(shared.maker.id);
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().charged(shared.other.client->job), 100 * kMiB);
  rig.gpus.uses[0].erase(maker);
  rig.gpus.unlisted += 2 * kGiB;
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().charged(shared.other.client->job), 2 * kGiB + 100 * kMiB);
  EXPECT_EQ(rig.account().outside(), 0u);
}

TEST(NvmlSampler, ARiseLongAfterAMakerLeftIsSomebodyElses) {
  Rig rig(1, 8 * kGiB);
  const Shared shared(rig, {.memory = "3GiB"});
  rig.gpus.uses[0].erase(shared.maker.client->peer.pid);
  rig.monitor.left(shared.maker.id);  // and the driver freed all of it
  for (int i = 0; i < 12; ++i) rig.pass(seconds(1));
  rig.gpus.unlisted += 2 * kGiB;
  rig.pass(seconds(1));
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().charged(shared.other.client->job), 100 * kMiB);
  EXPECT_EQ(rig.account().outside(), 2 * kGiB);
}

TEST(NvmlSampler, AClientThatNvmlDoesNotListYetMakesNobodyForgetWhoIsCharged) {
  Rig rig(1, 8 * kGiB);
  const Shared shared(rig, {.memory = "3GiB"});
  shared.maker_ends(rig);
  rig.pass(seconds(1));
  const Joined third = rig.join({});
  third.shim.open_context();
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().charged(shared.other.client->job), 2 * kGiB + 100 * kMiB);
  EXPECT_LE(rig.account().charged(third.client->job), 0u);
  rig.listed(third) = 60 * kMiB;
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().charged(shared.other.client->job), 2 * kGiB + 100 * kMiB);
}

TEST(NvmlSampler, NobodyIsChargedForWhatAnotherUserLeavesBehind) {
  Rig rig(1, 8 * kGiB);
  const Shared shared(rig, {.memory = "3GiB"}, 1001);
  shared.maker_ends(rig);
  rig.pass(seconds(1));
  EXPECT_LE(rig.account().charged(shared.other.client->job), 100 * kMiB);
  EXPECT_EQ(rig.account().outside(), 2 * kGiB);
}

// A child that has inherited a descriptor keeps what its maker frees.
TEST(NvmlSampler, WhatIsFreedAndUsedStillIsNobodysRoomEither) {
  Rig rig;
  const Shared shared(rig);
  const Joined third = rig.join({});
  rig.release(shared.maker, 2 * kGiB);
  Shared::stays(shared.maker, Stays::kIpcExported) = 0;
  Shared::stays(shared.other, Stays::kIpcImported) = 0;
  rig.gpus.unlisted += 2 * kGiB;
  rig.pass(seconds(1));
  EXPECT_FALSE(rig.allocate(third, 2 * kGiB));
}

TEST(NvmlSampler, WhatTwoUsersMayHaveLeftBehindIsNoMoreThanThereIs) {
  Rig rig(1, 16 * kGiB);
  std::vector<Joined> makers, others;
  for (const uid_t uid : {1000, 1001}) {
    makers.push_back(rig.join({}, uid));
    others.push_back(rig.join({}, uid));
    ASSERT_TRUE(rig.allocate(makers.back(), 2 * kGiB));
    Shared::stays(makers.back(), Stays::kIpcExported) = 2 * kGiB;
    Shared::stays(others.back(), Stays::kIpcImported) = 2 * kGiB;
  }
  measure(rig);
  for (const Joined& maker : makers) {
    rig.gpus.uses[0].erase(maker.client->peer.pid);
    rig.monitor.left(maker.id);
  }
  rig.gpus.unlisted = 2 * kGiB;  // of one of them
  rig.pass(seconds(1));
  std::uint64_t charged = 0;
  for (const Joined& other : others) charged += rig.account().charged(other.client->job);
  EXPECT_EQ(charged, 2 * kGiB);
  EXPECT_EQ(rig.account().outside(), 0u);
}

TEST(NvmlSampler, AMakerThatClaimsToShareMoreThanItHasLeavesNoMoreBehind) {
  Rig rig;
  const Joined a = rig.join({});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  Shared::stays(a, Stays::kIpcExported) = 4 * kGiB;
  measure(rig);
  rig.dies(a);
  EXPECT_EQ(rig.account().outside(), kGiB);
}

TEST(NvmlSampler, ProcessesThatHaveNoNumberHereAreEachMeasured) {
  Rig rig;
  rig.gpus.lists_processes = false;
  measure(rig);
  const Joined a = rig.join_as({0, 1000}, hello_of({}));
  const Joined b = rig.join_as({0, 1000}, hello_of({}));
  for (const Joined* each : {&a, &b}) ASSERT_TRUE(rig.allocate(*each, kGiB));
  rig.listed(a) += 200 * kMiB;  // their contexts
  for (int look = 0; look < 3; ++look) measure(rig);
  for (const Joined* each : {&a, &b}) {
    EXPECT_EQ(rig.account().holding(each->id)->overhead, 100 * kMiB);
  }
  rig.gpus.load = {{{0, 0.5}}};
  rig.monitor.sampler().measure_loads();
  EXPECT_LT(a.client->lanes.at(0).load, 0) << "a sample of the number 0 is nobody's";
}

// In some sandboxes NVML names processes by numbers that mean nothing here.
TEST(NvmlSampler, AsManyStrangersAsClientsWithoutANameAreTheClients) {
  Rig rig;
  const Joined a = rig.join({});
  a.shim.open_context();
  rig.gpus.uses[0][3'900'001] = kGiB;
  measure(rig);
  EXPECT_FALSE(rig.monitor.gpus()[0].foreign);
  rig.gpus.uses[0][3'900'002] = kGiB;
  measure(rig);
  EXPECT_TRUE(rig.monitor.gpus()[0].foreign) << "one of them is none";
}

TEST(NvmlSampler, AnNvmlThatFailsChangesNothing) {
  Rig rig;
  const Joined a = rig.join({.memory = "1GiB"});
  rig.gpus.fails = true;
  EXPECT_TRUE(rig.allocate(a, 600 * kMiB));
  EXPECT_TRUE(rig.allocate(a, 400 * kMiB));
  EXPECT_FALSE(rig.allocate(a, 100 * kMiB));
}

TEST(NvmlSampler, AProcessWithoutASampleDidNotRunAndWithoutAnAnswerNothingIsKnown) {
  Rig rig;
  const Joined a = rig.join({});
  const auto load = [&] {
    rig.monitor.sampler().measure_loads();
    return a.client->lanes.at(0).load;
  };
  rig.gpus.load = {{{a.client->peer.pid, 0.5}}};
  EXPECT_EQ(load(), 0.5);
  rig.gpus.load = std::nullopt;
  EXPECT_EQ(load(), 0.5);
  // It has ended, or did nothing, since the last time.
  rig.gpus.load = std::vector<ProcessLoad>{};
  EXPECT_EQ(load(), 0.0);
}

TEST(NvmlSampler, OutsideProcessesLessenTheCapacity) {
  Rig rig;
  foreign_process_uses(rig, kGiB);
  const Joined a = rig.join({});
  EXPECT_TRUE(rig.allocate(a, 3 * kGiB));
  EXPECT_FALSE(rig.allocate(a, 2 * kMiB));
}

// Under another monitor only what computes has slices.
TEST(NvmlSampler, AProcessThatOnlyDrawsIsNoForeignWork) {
  Rig rig;
  constexpr pid_t kNobodys = 3'999'999;
  rig.gpus.uses[0][kNobodys] = kGiB;
  rig.gpus.draws = {kNobodys};
  measure(rig);
  measure(rig);
  EXPECT_FALSE(rig.monitor.gpus()[0].foreign);
  rig.gpus.draws.clear();
  measure(rig);
  EXPECT_TRUE(rig.monitor.gpus()[0].foreign);
}

// The bytes that this thread has read so far, by the kernel's count.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/thread-self/io");
  std::string name;
  std::uint64_t bytes = 0;
  file >> name >> bytes;
  EXPECT_EQ(name, "rchar:");
  return bytes;
}

// A reader may wait for the process, and the loop must not.
TEST(NvmlSampler, TheMappingsOfAStrangerAreNotReadOnTheLoop) {
  constexpr std::size_t kLines = 50'000, kPage = 4096;  // the kernel allows 65,530
  auto* const begin = static_cast<char*>(::mmap(
      nullptr, kLines * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  ASSERT_NE(begin, MAP_FAILED);
  for (std::size_t i = 0; i < kLines / 2; ++i) {
    ASSERT_EQ(::mprotect(begin + 2 * i * kPage, kPage, PROT_READ), 0);
  }
  Rig rig;
  rig.gpus.uses[0][::getpid()] = kGiB;
  const std::uint64_t before = bytes_read();
  for (int i = 0; i < 10; ++i) measure(rig);
  EXPECT_LT(bytes_read() - before, 64u << 10) << "they have several megabytes";
  EXPECT_TRUE(rig.monitor.gpus()[0].foreign) << "it can't be told, by the beginning";
  ::munmap(begin, kLines * kPage);
  // A small process without the library. The other thread tells it in its own time.
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    ::execl("/bin/sleep", "sleep", "1000", nullptr);
    ::_exit(127);
  }
  rig.gpus.uses[0] = {{sleeper, kGiB}};
  for (int i = 0; i < 20'000 && rig.monitor.gpus()[0].foreign; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
    measure(rig);
  }
  EXPECT_FALSE(rig.monitor.gpus()[0].foreign);
  ::kill(sleeper, SIGKILL);
  ::waitpid(sleeper, nullptr, 0);
}

TEST(NvmlSampler, ALoweredCapacityIsGivenOutWhole) {
  Settings settings;
  settings.capacity = 2 * kGiB;
  Rig rig(1, 4 * kGiB, settings);
  foreign_process_uses(rig, kGiB);  // beyond the lowered capacity
  const Joined a = rig.join({});
  EXPECT_TRUE(rig.allocate(a, 2 * kGiB));
  EXPECT_FALSE(rig.allocate(a, 2 * kMiB));
}

TEST(NvmlSampler, TheDriversReserveIsNobodys) {
  Rig rig;
  rig.gpus.memories[0].reserved_bytes = 500 * kMiB;
  measure(rig);
  EXPECT_EQ(rig.account().free(), 4 * kGiB - 500 * kMiB);
}

TEST(NvmlSampler, MemoryOfAProcessThatLeftAliveIsOutside) {
  Rig rig;
  const Joined a = rig.join({});
  const Joined b = rig.join({});
  ASSERT_TRUE(rig.allocate(a, 3 * kGiB));
  rig.monitor.left(a.id);  // its socket closed, its memory is still there
  rig.now += seconds(1);
  EXPECT_FALSE(rig.allocate(b, 2 * kGiB));
  EXPECT_EQ(rig.account().outside(), 3 * kGiB);
}

TEST(NvmlSampler, OverheadIsWhatIsBeyondTheMemoryOnTheDevice) {
  Rig rig;
  const Joined a = rig.join({.name = "a", .swappable = "yes"});
  ASSERT_TRUE(rig.allocate(a, 2 * kGiB));
  a.shim.swappable(2 * kGiB);
  rig.ask({{"op", "swap-out"}, {"target", "a"}});
  rig.pass(milliseconds(1));
  ASSERT_TRUE(a.shim.told_to_leave());
  a.shim.residency().resident_bytes = kGiB;
  rig.listed(a) = kGiB + 300 * kMiB;
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(a.id)->overhead, 300 * kMiB);
  a.shim.residency().resident_bytes = 0;  // it says so, NVML doesn't
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(a.id)->overhead, kGiB + 300 * kMiB);
}

TEST(NvmlSampler, AllocationsDuringTheReadingAreNoOverhead) {
  Rig rig;
  const Joined a = rig.join({});
  ASSERT_TRUE(rig.allocate(a, kGiB));
  rig.pass(seconds(1));
  rig.gpus.while_asked = [&] { rig.allocate(a, kGiB); };
  rig.monitor.sampler().measure(0, rig.now);
  EXPECT_EQ(rig.account().holding(a.id)->overhead, 0u);
}

// As NVML counts memory with an open descriptor once its maker has released it.
TEST(NvmlSampler, MemoryOfAClientThatNvmlCallsNobodysLessensNothing) {
  Rig rig;
  const Joined a = rig.join({});
  ASSERT_TRUE(rig.allocate(a, 3 * kGiB));
  rig.listed(a) = kGiB;
  rig.gpus.unlisted = 2 * kGiB + 100 * kMiB;
  for (int look = 0; look < 3; ++look) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().outside(), 100 * kMiB) << "what is nobody's indeed";
  EXPECT_TRUE(rig.allocate(a, 800 * kMiB));
}

TEST(NvmlSampler, OverheadStaysWhenItIsHiddenByMemoryThatIsNobodys) {
  Rig rig;
  const Joined a = rig.join({});
  ASSERT_TRUE(rig.allocate(a, 3 * kGiB));
  rig.listed(a) += 300 * kMiB;
  for (int look = 0; look < 3; ++look) rig.pass(seconds(1));
  ASSERT_EQ(rig.account().holding(a.id)->overhead, 300 * kMiB);
  rig.listed(a) -= 2 * kGiB;
  rig.gpus.unlisted = 2 * kGiB;
  for (int look = 0; look < 3; ++look) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(a.id)->overhead, 300 * kMiB);
  EXPECT_EQ(rig.account().outside(), 0u);
  // And ends with what there is.
  rig.listed(a) -= 300 * kMiB;
  for (int look = 0; look < 3; ++look) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(a.id)->overhead, 0u);
}

TEST(NvmlSampler, WhatMayComeToAClientIsNotItsOverheadYet) {
  Rig rig;
  const Joined a = rig.join({.swappable = "yes"});
  ASSERT_TRUE(rig.allocate(a, 2 * kGiB));
  a.shim.swappable(2 * kGiB);
  rig.listed(a) += 300 * kMiB;
  for (int look = 0; look < 3; ++look) rig.pass(seconds(1));
  ASSERT_EQ(rig.account().holding(a.id)->overhead, 300 * kMiB);
  a.shim.residency().resident_bytes = kGiB;  // as it comes back, and made more than has come
  for (int look = 0; look < 3; ++look) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(a.id)->overhead, 300 * kMiB);
  rig.listed(a) += 100 * kMiB;
  rig.pass(seconds(1));
  EXPECT_EQ(rig.account().holding(a.id)->overhead, 400 * kMiB) << "more than may come";
}

// It has said what it uses, and not yet that it has a context.
TEST(NvmlSampler, WhereNvmlNamesNobodyWhoRejoinsIsNotForeign) {
  Rig rig(1, 140 * kGiB);
  rig.gpus.lists_processes = false;
  rig.gpus.uses[0][rig.next_pid] = 100 * kGiB;
  rig.monitor.sampler().measure_all(rig.now);
  auto hello = hello_of({}, 1, wire::kRejoin);
  hello.used_bytes[0] = 99 * kGiB;
  rig.now += seconds(1);
  const Joined a = rig.join_as({rig.next_pid++, 1000}, hello);
  a.shim.open_context();
  for (int look = 0; look < 4; ++look) rig.pass(seconds(1));
  EXPECT_EQ(rig.account().outside(), 0u);
  EXPECT_EQ(rig.account().holding(a.id)->overhead, kGiB);
}

TEST(NvmlSampler, HowHardAGpuWorksIsKnownOnlyWhileNvmlTellsIt) {
  Rig rig;
  rig.gpus.conditions = GpuCondition{0.5, 60, std::nullopt};
  rig.monitor.sampler().measure_loads();
  EXPECT_EQ(rig.monitor.gpus()[0].condition, (GpuCondition{0.5, 60, std::nullopt}));
  rig.gpus.conditions.reset();
  rig.monitor.sampler().measure_loads();
  EXPECT_EQ(rig.monitor.gpus()[0].condition, GpuCondition{});
}

}  // namespace
}  // namespace switchyard::monitor::test
