// Joining: what Hello says, which answers are believed, and what is carried into the next page.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cstring>

#include "tests/shim/client/client_world.h"
#include "tests/support/card.h"

namespace switchyard::shim {
namespace {

using namespace testing;

using Joining = ClientTest;

bool is_uuid(const std::uint8_t (&uuid)[16], int byte) {
  for (const std::uint8_t each : uuid) {
    if (each != byte) return false;
  }
  return true;
}

TEST_F(Joining, TheFirstHelloTellsTheCardTheGpusAndNoUse) {
  if (!fresh()) return;  // a later one tells where the process has moved to
  ::setenv("SWITCHYARD_NAME", "a name", 1);
  ::unsetenv("SWITCHYARD_PRIORITY");
  process().used_bytes[0] = 5;
  monitor();
  join_it();
  const wire::Hello hello = current().hello();
  EXPECT_EQ(hello.layout_version, abi::kLayoutVersion);
  EXPECT_EQ(hello.flags, 0U);
  EXPECT_EQ(hello.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_STREQ(card_in(hello.card).name, "a name");
  EXPECT_STREQ(card_in(hello.card).priority, "")
      << "nobody asked for one: the monitor has the default";
  EXPECT_STREQ(hello.process, "shim_client_tes");  // the kernel's 15 bytes, without the newline
  ASSERT_EQ(hello.lane_count, 2U);
  EXPECT_TRUE(is_uuid(hello.uuid[0], 0xA0));
  EXPECT_TRUE(is_uuid(hello.uuid[1], 0xA1));
  EXPECT_EQ(hello.used_bytes[0], 0U);
  EXPECT_EQ(hello.paused, 0U);
  EXPECT_TRUE(g_neighbours.frozen);
  EXPECT_EQ(g_neighbours.chosen_swappable, 2);
  process().used_bytes[0] = 0;
}

// Before CUDA 11.4.
TEST_F(Joining, ADriverThatTellsNoUuidsLeavesTheProcessUnmanaged) {
  if (!fresh()) return;  // the GPUs are asked for once
  g_driver.cuDeviceGetUuid_v2 = nullptr;
  monitor();
  EXPECT_FALSE(join());
  EXPECT_FALSE(rejoin()) << "nor does the service thread";
  EXPECT_FALSE(current().has_client());
}

// A client without one of its GPUs would be refused all memory there.
TEST_F(Joining, ADriverThatTellsNotAllUuidsLeavesTheProcessUnmanaged) {
  if (!fresh()) return;
  static auto* get_uuid = g_driver.cuDeviceGetUuid_v2;
  g_driver.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) {
    return device == 1 ? CUDA_ERROR_DEVICE_UNAVAILABLE : get_uuid(uuid, device);
  };
  monitor();
  EXPECT_FALSE(join());
  EXPECT_FALSE(rejoin());
  EXPECT_FALSE(current().has_client());
}

TEST_F(Joining, ThePageIsTheMonitors) {
  monitor();
  join_it();
  EXPECT_EQ(page().head.magic, abi::kMagic);
  EXPECT_EQ(process().joined, 1U);
  current().page().lanes[1].quota_bytes = 99;
  EXPECT_EQ(page().lanes[1].quota_bytes, 99U);
  for (int lane : {0, 1}) EXPECT_EQ(current().page().lanes[lane].in_use, 1U);
  EXPECT_EQ(current().page().lanes[2].in_use, 0U);
  EXPECT_TRUE(is_uuid(current().page().lanes[1].uuid, 0xA1));
  EXPECT_EQ(current().page().lanes[0].under_mps, 0U);
  EXPECT_EQ(current().page().lanes[1].under_mps, 1U);
  EXPECT_GT(g_neighbours.views, 0);
  EXPECT_GT(g_neighbours.stays_told, 0);
}

TEST_F(Joining, AnotherCuInitUnderTheNextMonitorChoosesNothingAnew) {
  monitor();
  join_it();
  no_monitor();
  lose_monitor("the test ended it");
  monitor();
  g_neighbours.chosen_swappable = 0;
  EXPECT_TRUE(join());
  EXPECT_TRUE(current().has_client());
  EXPECT_EQ(g_neighbours.chosen_swappable, 0);
}

TEST_F(Joining, WhoHasMovedSaysSoInThePageAndToTheNextMonitor) {
  monitor();
  join_it();
  std::uint8_t uuid[3][16];
  for (int gpu = 0; gpu < 3; ++gpu) ::memset(uuid[gpu], 0xA0 + gpu, sizeof(uuid[gpu]));
  page().lanes[1].places = 1;
  page().lanes[1].shall_be_on = 3;
  exchange_gpus(uuid[1], uuid[2]);
  EXPECT_TRUE(is_uuid(current().page().lanes[0].uuid, 0xA0));
  EXPECT_TRUE(is_uuid(current().page().lanes[1].uuid, 0xA2)) << "it does not see the third GPU";
  EXPECT_EQ(page().lanes[0].places, 0U);
  EXPECT_EQ(page().lanes[1].places, 2U);
  EXPECT_EQ(page().lanes[1].in_use, 1U);
  EXPECT_EQ(page().lanes[2].in_use, 0U);
  exchange_gpus(uuid[2], uuid[0]);
  EXPECT_TRUE(is_uuid(page().lanes[0].uuid, 0xA2));
  EXPECT_TRUE(is_uuid(page().lanes[1].uuid, 0xA0));
  EXPECT_TRUE(current().has_client()) << "who ordered it knows";
  no_monitor();
  lose_monitor("the test ended it");
  monitor();
  ASSERT_TRUE(rejoin());
  EXPECT_TRUE(is_uuid(current().hello().uuid[0], 0xA2));
  EXPECT_TRUE(is_uuid(page().lanes[1].uuid, 0xA0));
  EXPECT_EQ(page().lanes[1].places, 3U) << "it can be moved under the next monitor, too";
  // Ordered by the one before, and done only now.
  exchange_gpus(uuid[2], uuid[0]);
  EXPECT_TRUE(eventually([this] { return !current().has_client(); })) << "it was told the old ones";
}

TEST_F(Joining, ASecondCallJoinsOnlyOnce) {
  monitor();
  join_it();
  EXPECT_TRUE(join());
  EXPECT_EQ(current().welcomed(), 1);
}

TEST_F(Joining, MoreGpusThanLanesAreLeftOut) {
  if (!fresh()) return;
  g_gpus = 20;
  monitor();
  join_it();
  EXPECT_EQ(current().hello().lane_count, abi::kMaxGpus);
  EXPECT_EQ(g_neighbours.chosen_swappable, 20) << "some are without a lane";
}

TEST_F(Joining, WithoutAMonitorTheProcessRunsUnmanaged) {
  EXPECT_FALSE(join());
  EXPECT_EQ(process().joined, 0U);
  EXPECT_EQ(sharing_monitor(), 0U);
  wire::Charged answer{};
  EXPECT_FALSE(request(wire::kCharge, 0, 1, answer));
  wake_monitor();
}

TEST_F(Joining, AWelcomeThatMakesNoSenseIsNotBelieved) {
  FakeMonitor::Manner refuses, layout, bytes, file, open, few, many, moved, beyond;
  refuses.refusal = "the quota is too large";
  layout.layout_version += 1;
  bytes.page_bytes /= 2;
  file.file_bytes += 4096;
  open.sealed = false;
  few.descriptors = 2;
  many.descriptors = 4;
  moved.spoil_directory = [](abi::Section& section) { section.offset += 64; };
  beyond.spoil_directory = [](abi::Section& section) {
    section = {abi::SectionId{77}, 4096, 8, ~0u};
  };
  if (!fresh()) return;
  int which = 0;
  for (const FakeMonitor::Manner& manner :
       {refuses, layout, bytes, file, open, few, many, moved, beyond}) {
    SCOPED_TRACE(which++);
    monitor(manner);
    const int before = open_descriptors();
    EXPECT_FALSE(join());
    EXPECT_EQ(process().joined, 0U);
    EXPECT_EQ(page().head.magic, 0U);
    EXPECT_FALSE(connected());
    no_monitor();
    EXPECT_LE(open_descriptors(), before);
  }
}

// Cut, the one would be another job's id and the other no limit.
TEST_F(Joining, AValueThatTheCardCannotHoldIsNotCut) {
  if (!fresh()) return;
  monitor();
  for (const auto& [name, text] : {std::pair("SWITCHYARD_JOB", std::string(64, 'a')),
                                   std::pair("SWITCHYARD_LIMIT", std::string("1.00000%"))}) {
    ::setenv(name, text.c_str(), 1);
    EXPECT_FALSE(join()) << name;
    EXPECT_FALSE(observe()) << name;
    ::unsetenv(name);
  }
  EXPECT_EQ(current().welcomed(), 0);
  ::setenv("SWITCHYARD_JOB", std::string(63, 'a').c_str(), 1);
  join_it();
  EXPECT_EQ(card_in(current().hello().card).job, std::string(63, 'a'));
}

TEST_F(Joining, ASectionThatItDoesNotKnowIsSkippedAndOneThatIsAbsentIsKnown) {
  FakeMonitor::Manner later;
  later.spoil_directory = [](abi::Section& section) { section = {abi::SectionId{77}, 4096, 8, 3}; };
  monitor(later);
  join_it();
  EXPECT_FALSE(is_served(abi::kSections[3].id));
  EXPECT_TRUE(is_served(abi::kSections[4].id));
}

// Which the next monitor may know.
TEST_F(Joining, SettingsThatItDoesNotKnowComeAlong) {
  monitor();
  join_it();
  constexpr char kText[] = "job=j7\0later=a b\0name=x\0more=c\0";
  std::memcpy(current().page().card.text, kText, sizeof(kText));
  monitor();
  ASSERT_TRUE(eventually([&] { return current().has_client() && connected(); }));
  const JobCard card = card_in(current().hello().card);
  EXPECT_STREQ(card.job, "j7");
  EXPECT_STREQ(card.name, "x");
  EXPECT_EQ(std::memcmp(card.unknown, "later=a b\0more=c\0", sizeof("later=a b\0more=c\0")), 0);
}

// A monitor that was killed in the middle of a `set`. The next one refuses no text of ours.
TEST_F(Joining, ACardThatWasHalfWrittenIsNotSaidAgain) {
  ::setenv("SWITCHYARD_NAME", "a name", 1);
  monitor();
  join_it();
  // A program may change it while the service thread joins again, which must not look then.
  ::setenv("SWITCHYARD_NAME", "another name", 1);
  std::memset(current().page().card.text, 'x', sizeof(CardText));
  monitor();
  ASSERT_TRUE(eventually([&] { return current().has_client() && connected(); }));
  EXPECT_STREQ(card_in(current().hello().card).name, "a name");
}

TEST_F(Joining, WhatWasCountedComesAlongIntoTheNextPage) {
  monitor();
  join_it();
  abi::Lane& lane = page().lanes[0];
  lane.launches = 1;
  lane.graph_launches = 2;
  lane.copies = 3;
  lane.link_bytes = 30;
  lane.device_bytes = 31;
  lane.contexts = 4;
  lane.compute_groups = 5;
  lane.copy_groups = 6;
  lane.refusals = 7;
  lane.peak_bytes = 8;
  lane.slice_calls = 9;
  process().used_bytes[0] = 10;
  write_card(current().page(), &JobCard::name, "set later");
  g_neighbours.paused = true;
  monitor();
  ASSERT_TRUE(eventually([&] { return current().has_client() && connected(); }));
  const wire::Hello hello = current().hello();
  EXPECT_EQ(hello.flags, wire::kRejoin);
  EXPECT_STREQ(card_in(hello.card).name, "set later");
  EXPECT_EQ(hello.used_bytes[0], 10U);
  EXPECT_EQ(hello.paused, 1U);
  EXPECT_EQ(hello.pause_until_ns, 77U);
  EXPECT_EQ(g_neighbours.told_bytes, 10U);
  const abi::Lane& next = current().page().lanes[0];
  EXPECT_EQ(next.launches, 1U);
  EXPECT_EQ(next.graph_launches, 2U);
  EXPECT_EQ(next.copies, 3U);
  EXPECT_EQ(next.link_bytes, 30U);
  EXPECT_EQ(next.device_bytes, 31U);
  EXPECT_EQ(next.contexts, 4U);
  EXPECT_EQ(next.compute_groups, 5U);
  EXPECT_EQ(next.copy_groups, 6U);
  EXPECT_EQ(next.refusals, 7U);
  EXPECT_EQ(next.peak_bytes, 8U);
  EXPECT_EQ(next.slice_calls, 9U);
  EXPECT_GT(g_neighbours.pauses_carried, 1);
  EXPECT_GT(g_neighbours.residencies_carried, 1);
  EXPECT_GT(g_neighbours.communicators_carried, 1);
  EXPECT_GT(g_neighbours.communicators_told, 1);
  EXPECT_GT(g_neighbours.norms_carried, 1);
  g_neighbours.paused = false;
  process().used_bytes[0] = 0;
}

// Libraries call cuInit again whenever they like.
TEST_F(Joining, CuInitWhileTheMonitorIsAwayForgetsNoUse) {
  if (!fresh()) return;
  monitor();
  join_it();
  process().used_bytes[1] = 10;
  no_monitor();
  lose_monitor("the test says so");
  monitor();
  EXPECT_TRUE(join());
  EXPECT_EQ(current().hello().flags, wire::kRejoin);
  EXPECT_EQ(current().hello().used_bytes[1], 10U);
}

TEST_F(Joining, AnObserverIsChargedNothingAndHasNoThread) {
  if (!fresh()) return;
  g_neighbours.nvml_gpus = 3;
  monitor();
  EXPECT_TRUE(observe());
  EXPECT_TRUE(observing());
  EXPECT_TRUE(observe());
  EXPECT_EQ(current().welcomed(), 1);
  EXPECT_EQ(current().hello().flags, wire::kObserver);
  EXPECT_EQ(current().hello().lane_count, 3U);
  EXPECT_TRUE(is_uuid(current().hello().uuid[2], 0xB0));
  EXPECT_EQ(g_neighbours.looks, 0);
  wire::Charged answer{};
  EXPECT_TRUE(request(wire::kRefresh, 0, 0, answer));
  ::usleep(50'000);
  EXPECT_EQ(g_neighbours.looks, 0);
}

TEST_F(Joining, AnObserverThatTurnsToCudaBecomesAClient) {
  if (!fresh()) return;
  monitor();
  EXPECT_TRUE(observe());
  EXPECT_TRUE(join());
  EXPECT_FALSE(observing());
  EXPECT_TRUE(eventually([&] { return current().welcomed() == 2; }));
  EXPECT_EQ(current().hello().flags, 0U);
  EXPECT_EQ(current().hello().lane_count, 2U);
  EXPECT_FALSE(observe() && observing());
}

TEST_F(Joining, AnObserverThatTurnsToCudaWhileTheMonitorIsAwayIsNoObserverLater) {
  if (!fresh()) return;
  ::setenv("SWITCHYARD_JOB", "started by run", 1);
  monitor();
  EXPECT_TRUE(observe());
  no_monitor();
  EXPECT_FALSE(join());
  monitor();
  // The monitor has its client before the client has read the Welcome.
  EXPECT_TRUE(eventually([&] { return current().has_client() && connected(); }));
  EXPECT_EQ(current().hello().flags & wire::kObserver, 0U);
  EXPECT_EQ(current().hello().lane_count, 2U);
  EXPECT_FALSE(observing());
}

TEST_F(Joining, AProcessThatUsesCudaDoesNotObserve) {
  process().uses_cuda = 1;
  monitor();
  EXPECT_TRUE(!observe() || !observing());
}

TEST_F(Joining, AJobOfRunLooksForItsMonitorUntilThereIsOne) {
  if (!fresh()) return;
  ::setenv("SWITCHYARD_JOB", "started by run", 1);
  EXPECT_FALSE(join());
  monitor();
  EXPECT_TRUE(eventually([&] { return current().has_client(); }));
  EXPECT_EQ(current().hello().flags, 0U);
}

TEST_F(Joining, AProcessOfNoJobDoesNotLookForAMonitorLater) {
  if (!fresh()) return;
  ::unsetenv("SWITCHYARD_JOB");
  EXPECT_FALSE(join());
  ::usleep(50'000);
  EXPECT_EQ(g_neighbours.looks, 0);
}

TEST_F(Joining, ADisabledLibraryJoinsNothing) {
  if (!fresh()) return;
  ::setenv("SWITCHYARD_DISABLE", "1", 1);
  monitor();
  EXPECT_FALSE(join());
  EXPECT_FALSE(observe());
  EXPECT_EQ(current().welcomed(), 0);
}

}  // namespace
}  // namespace switchyard::shim
