// Channel groups and their slices, with a made-up resource manager behind driver_ioctl.
#include "shim/slices/groups.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "shim/client/client.h"
#include "shim/client/process.h"
#include "shim/client/service.h"
#include "shim/island/server.h"
#include "shim/slices/driver_ioctl.h"
#include "shim/slices/rm.h"

namespace {

// Lines that are not for everybody show, too.
const int kLogged = ::setenv("SWITCHYARD_LOG", "info", 1);

using Slices = std::vector<std::uint64_t>;

std::map<std::uint32_t, Slices> g_set;  // group → slices that the driver was asked for, in order
std::vector<std::uint32_t> g_order;     // groups, in the order of asking
std::function<void()> g_during;         // what happens while the driver is being asked
int g_pokes = 0;
bool g_serves = false;  // the process is an island's server
int g_told = 0;         // that a group was made, of such a process
std::uint32_t g_status = 0;

}  // namespace

extern "C" {
alignas(4096) unsigned char switchyard_page[switchyard::abi::kPageBytes];
}

namespace switchyard::shim {

void wake_monitor() {}
void service::poke() { ++g_pokes; }
bool island::serves() { return g_serves; }
void island::group_made() { ++g_told; }

int rm::driver_ioctl(int, unsigned long request, void* argument) {
  EXPECT_EQ(request, rm::kControlRequest);
  auto& control = *static_cast<rm::Control*>(argument);
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<void*>(control.params), sizeof(value));
  g_set[control.object].push_back(value);
  g_order.push_back(control.object);
  if (g_during) g_during();
  control.status = g_status;
  return 0;
}

namespace {

constexpr std::uint32_t kClient = 7, kDevice = 8;

class GroupsTest : public ::testing::Test {
 protected:
  GroupsTest() {
    groups::clear();
    std::memset(switchyard_page, 0, sizeof(switchyard_page));
    g_set.clear();
    g_order.clear();
    g_during = nullptr;
    g_pokes = g_told = 0;
    g_serves = false;
    g_status = 0;
    fd_ = ::open("/dev/null", O_RDWR);
    page().lanes[0].in_use.store(1);
  }
  ~GroupsTest() override { ::close(fd_); }

  // libcuda allocates a group, as the kernel answered it.
  void born(std::uint32_t object, bool compute, std::uint32_t parent = kDevice) {
    rm::GroupParams params{0, 0, 0, compute ? rm::kEngineCompute : 11};
    unsigned char raw[rm::kAllocBytes] = {};
    const rm::AllocHead head{kClient, parent, object, rm::kClassChannelGroup,
                             reinterpret_cast<std::uint64_t>(&params)};
    std::memcpy(raw, &head, sizeof(head));
    groups::observe(fd_, request(rm::kAllocNr, rm::kAllocBytes), raw, 0);
  }
  // A context on the GPU: its compute group is 1, its group for copies 2.
  void make_context(bool copies = true) {
    const groups::Making making(0);
    born(1, true);
    if (copies) born(2, false);
  }
  // libcuda sets a slice itself.
  void driver_sets(std::uint32_t object, std::uint64_t microseconds) {
    rm::Control control{};
    control.client = kClient;
    control.object = object;
    control.cmd = rm::kCmdSetTimeslice;
    control.params = reinterpret_cast<std::uint64_t>(&microseconds);
    groups::observe(fd_, rm::kControlRequest, &control, 0);
  }
  void freed(std::uint32_t object) {
    const rm::Free free{kClient, kDevice, object, 0};
    groups::observe(fd_, request(rm::kFreeNr, sizeof(free)), &free, 0);
  }
  void want(std::uint32_t compute, std::uint32_t copy) {
    lane().compute_slice_us.store(compute);
    lane().copy_slice_us.store(copy);
    lane().slice_seq.fetch_add(1);
    groups::apply_wanted();
  }
  static unsigned long request(unsigned nr, unsigned bytes) {
    return 3ul << 30 | static_cast<unsigned long>(bytes) << 16 | rm::kIoctlType << 8 | nr;
  }
  abi::Lane& lane() { return page().lanes[0]; }

  int fd_ = -1;
};

TEST_F(GroupsTest, AGroupBornWhileAContextIsMadeIsOnThatContextsGpu) {
  make_context();
  EXPECT_EQ(lane().compute_groups.load(), 1u);
  EXPECT_EQ(lane().copy_groups.load(), 1u);
  born(3, false);  // later, beside the others: known by its parent
  EXPECT_EQ(lane().copy_groups.load(), 2u);
  born(4, false, 99);  // of a device that nobody knows: not counted anywhere
  EXPECT_EQ(lane().copy_groups.load(), 2u);
}

TEST_F(GroupsTest, GroupsOfAnIslandsServerAreOnItsOnlyGpuAndLetItJoin) {
  born(1, true);
  EXPECT_EQ(lane().compute_groups.load(), 0u);
  EXPECT_EQ(g_told, 0);
  g_serves = true;
  born(2, true, 99);  // nobody told which context is being made
  born(3, false, 99);
  EXPECT_EQ(lane().compute_groups.load(), 1u);
  EXPECT_EQ(lane().copy_groups.load(), 1u);
  EXPECT_EQ(g_told, 2);
  want(20, 50);
  EXPECT_EQ(g_set[2], Slices{20});
}

TEST_F(GroupsTest, GroupsThatTheDriverBringsBackAreOnTheGpuThatTheyLeft) {
  make_context();
  groups::lose_all();
  EXPECT_EQ(lane().compute_groups.load(), 0u);
  groups::come_back(0);
  born(5, true, 98);
  born(6, false, 98);
  groups::are_back();
  EXPECT_EQ(lane().compute_groups.load(), 1u);
  EXPECT_EQ(lane().copy_groups.load(), 1u);
  want(20, 50);
  EXPECT_EQ(g_set[5], Slices{20});
  EXPECT_TRUE(g_set[1].empty()) << "it is gone";
  born(7, false, 97);
  EXPECT_EQ(lane().copy_groups.load(), 1u);
}

TEST_F(GroupsTest, ComputeAndCopyGroupsGetTheirOwnSliceAndThePageSaysSo) {
  make_context();
  want(20, 50);
  EXPECT_EQ(g_set[1], Slices{20});
  EXPECT_EQ(g_set[2], Slices{50});
  EXPECT_EQ(lane().compute_slice_applied_us.load(), 20u);
  EXPECT_EQ(lane().slice_applied_seq.load(), lane().slice_seq.load());
  EXPECT_EQ(lane().slice_status.load(), abi::kSliceAccepted);
}

TEST_F(GroupsTest, UnchangedSlicesAreNotSentAgain) {
  make_context(false);
  want(2048, 2048);  // what libcuda gave it at birth
  EXPECT_TRUE(g_set.empty());
  want(20, 50);
  want(20, 50);
  EXPECT_EQ(g_set[1], Slices{20});
}

TEST_F(GroupsTest, RaisesBeforeItLowers) {
  make_context();
  want(20, 50);
  g_order.clear();
  want(30, 40);
  EXPECT_EQ(g_order, (std::vector<std::uint32_t>{1, 2}));
  g_order.clear();
  want(20, 50);
  EXPECT_EQ(g_order, (std::vector<std::uint32_t>{2, 1}));
}

TEST_F(GroupsTest, TwoComputeGroupsOfOneProcessAreNeverShort) {
  const groups::Making making(0);
  born(1, true);
  born(2, true);
  want(20, 50);
  EXPECT_TRUE(g_set.empty());
  EXPECT_EQ(lane().compute_slice_applied_us.load(), abi::kDefaultSliceUs);
}

// On a real driver libcuda sets its own 2048 us a moment after the group is born. A slice that we
// gave it in between was overwritten, and the page went on saying 20.
TEST_F(GroupsTest, WhatLibcudaSetsAfterOursIsSetAgain) {
  make_context(false);
  want(20, 50);
  g_pokes = 0;
  driver_sets(1, 2048);
  EXPECT_EQ(g_pokes, 1);
  groups::apply_wanted();
  EXPECT_EQ(g_set[1], (Slices{20, 20}));
}

TEST_F(GroupsTest, WhatLibcudaSetsDuringOursIsSetAgain) {
  make_context(false);
  g_during = [this] {
    g_during = nullptr;
    driver_sets(1, 2048);
  };
  want(20, 50);
  groups::apply_wanted();
  EXPECT_EQ(g_set[1], (Slices{20, 20}));
}

TEST_F(GroupsTest, ARefusalIsPublishedAndWhatWasInForceStays) {
  make_context(false);
  g_status = 0x57;
  want(20, 50);
  EXPECT_EQ(lane().slice_status.load(), abi::kSliceRefused);
  EXPECT_EQ(lane().slice_error.load(), 0x57u);
  EXPECT_EQ(lane().compute_slice_applied_us.load(), 0u);
}

TEST_F(GroupsTest, AFreedGroupOrItsFreedClientIsForgotten) {
  make_context();
  freed(1);
  EXPECT_EQ(lane().compute_groups.load(), 0u);
  freed(kClient);
  EXPECT_EQ(lane().copy_groups.load(), 0u);
  want(20, 50);
  EXPECT_TRUE(g_set.empty());
  EXPECT_EQ(lane().slice_status.load(), abi::kSliceNoGroup);
}

// A descriptor's number may belong to another file by now.
TEST_F(GroupsTest, AnotherFileUnderTheSameNumberIsNotAsked) {
  make_context(false);
  const int other = ::open("/dev/zero", O_RDWR);
  ASSERT_EQ(::dup2(other, fd_), fd_);
  ::close(other);
  want(20, 50);
  EXPECT_TRUE(g_set.empty());
  EXPECT_EQ(lane().slice_status.load(), abi::kSliceRefused);
}

TEST_F(GroupsTest, WithoutAMonitorTheDriversSlicesComeBack) {
  make_context();
  want(20, 50);
  groups::restore_default();
  EXPECT_EQ(g_set[1].back(), abi::kDefaultSliceUs);
  EXPECT_EQ(g_set[2].back(), abi::kDefaultSliceUs);
}

// Drivers before 535, written down from the structs of their open kernel module.
class OldDriver : public GroupsTest {
 protected:
  using Words = std::array<std::uint32_t, 10>;
  static constexpr Words kOfARoot = {kClient, kClient, kClient, 0x41};
  Words of_a_group() {
    return {kClient, kDevice, 1, rm::kClassChannelGroup, low(&params_), high(&params_)};
  }
  // What the kernel answered a call of so many bytes.
  void answered(unsigned bytes, const Words& words) {
    const groups::Making making(0);
    groups::observe(fd_, request(rm::kAllocNr, bytes), words.data(), 0);
  }
  void expect_gates() {
    EXPECT_EQ(lane().compute_groups.load(), 0u);
    want(20, 50);
    EXPECT_TRUE(g_set.empty());
    EXPECT_EQ(lane().slice_status.load(), abi::kSliceNoGroup);
  }

 private:
  static std::uint32_t low(const void* at) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uint64_t>(at));
  }
  static std::uint32_t high(const void* at) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uint64_t>(at) >> 32);
  }
  rm::GroupParams params_{0, 0, 0, rm::kEngineCompute};
};

// NVOS64 of 525 and 530: 40 bytes, rights at 24, flags at 32, the status at 36.
TEST_F(OldDriver, ItsGroupsAreNotSeenAndOneLineSaysSo) {
  ::testing::internal::CaptureStderr();
  answered(rm::kAllocBytesOld, kOfARoot);
  answered(rm::kAllocBytesOld, of_a_group());
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string line = "the driver is older than 535: gates replace time slices";
  EXPECT_NE(said.find(line), std::string::npos) << said;
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
  expect_gates();
}

// Their NVOS21: 32 bytes as today's, the status at 24, and behind it what the caller left there.
TEST_F(OldDriver, AShortCallOfItIsNotReadAsOneOfToday) {
  answered(rm::kAllocBytesOld, kOfARoot);
  Words refused = of_a_group();
  refused[6] = 0x1a;
  answered(rm::kAllocBytesShort, refused);
  answered(rm::kAllocBytesShort, of_a_group());
  expect_gates();
}

TEST_F(GroupsTest, TodaysShortCallIsRead) {
  rm::GroupParams params{0, 0, 0, rm::kEngineCompute};
  const rm::AllocHead head{kClient, kDevice, 1, rm::kClassChannelGroup,
                           reinterpret_cast<std::uint64_t>(&params)};
  std::uint32_t words[8] = {};
  std::memcpy(words, &head, sizeof(head));
  words[6] = sizeof(params);
  const groups::Making making(0);
  words[7] = 0x1a;  // the status: refused
  groups::observe(fd_, request(rm::kAllocNr, rm::kAllocBytesShort), words, 0);
  EXPECT_EQ(lane().compute_groups.load(), 0u);
  words[7] = 0;
  groups::observe(fd_, request(rm::kAllocNr, rm::kAllocBytesShort), words, 0);
  EXPECT_EQ(lane().compute_groups.load(), 1u);
}

}  // namespace
}  // namespace switchyard::shim
