// Memory that clients share: the room, and its frames on the wire.
#include "monitor/core/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <random>

#include "switchyard/handover.h"
#include "tests/monitor/running.h"
#include "tests/monitor/transport/wire_client.h"

namespace switchyard::monitor::test {
namespace {

constexpr uid_t kMe = 1000, kOther = 1001;
constexpr wire::Key kKey{{1, 2}}, kSecond{{3, 4}};

Fd memory() { return Fd(::memfd_create("memory", MFD_CLOEXEC)); }
std::vector<Fd> memories(std::size_t count) {
  std::vector<Fd> all;
  while (all.size() < count) all.push_back(memory());
  return all;
}
ino_t inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

wire::ShareVerdict share(SharedMemory& room, ClientId client, const wire::Key& key,
                         std::uint32_t first, std::uint32_t total, std::size_t count) {
  std::vector<Fd> descriptors = memories(count);
  return room.share(client, kMe, {key, first, total}, descriptors);
}
wire::Shared open(const SharedMemory& room, const wire::Key& key, std::uint32_t first = 0,
                  uid_t uid = kMe) {
  std::vector<int> descriptors;
  const wire::Shared shared = room.open(uid, {key, first, 0}, descriptors);
  EXPECT_EQ(descriptors.size(), shared.count);
  return shared;
}

TEST(SharedMemory, IsOpenedOnceAllOfItHasCome) {
  SharedMemory room(1000);
  EXPECT_EQ(open(room, kKey).verdict, wire::kNoSuchShare);
  EXPECT_EQ(share(room, 1, kKey, 0, 100, 64), wire::kTaken);
  EXPECT_EQ(open(room, kKey).verdict, wire::kNoSuchShare) << "the rest is still to come";
  EXPECT_EQ(share(room, 1, kKey, 64, 100, 36), wire::kTaken);
  const wire::Shared first = open(room, kKey);
  EXPECT_EQ(first.verdict, wire::kTaken);
  EXPECT_EQ(first.total, 100u);
  EXPECT_EQ(first.count, wire::kMostDescriptors);
  EXPECT_EQ(open(room, kKey, 64).count, 36u);
  EXPECT_EQ(open(room, kKey, 100).verdict, wire::kNoSuchShare);
  EXPECT_EQ(open(room, kSecond).verdict, wire::kNoSuchShare);
}

TEST(SharedMemory, IsForItsOwnUserAlone) {
  SharedMemory room(1000);
  ASSERT_EQ(share(room, 1, kKey, 0, 1, 1), wire::kTaken);
  EXPECT_EQ(open(room, kKey, 0, kOther).verdict, wire::kNoSuchShare);
  EXPECT_EQ(open(room, kKey, 0, 0).verdict, wire::kNoSuchShare);
}

// Keys of agreements follow from ids of communicators, which all users can list.
TEST(SharedMemory, AKeyThatAnotherUserHasTakenIsFreeForMe) {
  SharedMemory room(1000);
  std::vector<Fd> squats = memories(1);
  ASSERT_EQ(room.share(2, kOther, {kKey, 0, 1}, squats), wire::kTaken);
  EXPECT_EQ(open(room, kKey).verdict, wire::kNoSuchShare);
  EXPECT_EQ(share(room, 1, kKey, 0, 2, 2), wire::kTaken);
  EXPECT_EQ(open(room, kKey).total, 2u);
  EXPECT_EQ(open(room, kKey, 0, kOther).total, 1u);
  EXPECT_EQ(room.end(2, kOther, kKey), wire::kTaken);
  EXPECT_EQ(open(room, kKey).total, 2u);
}

TEST(SharedMemory, AnotherClientCanNeitherReplaceNorEndIt) {
  SharedMemory room(1000);
  ASSERT_EQ(share(room, 1, kKey, 0, 2, 2), wire::kTaken);
  EXPECT_EQ(share(room, 2, kKey, 0, 1, 1), wire::kBadShare);
  EXPECT_EQ(room.end(2, kMe, kKey), wire::kNoSuchShare);
  EXPECT_EQ(open(room, kKey).total, 2u);
}

TEST(SharedMemory, WhatIsHandedOverIsKeptUntilItsTakerHasAllOfIt) {
  SharedMemory room(1000);
  const wire::Key handed = handover::key_of(9);
  for (const wire::Key& key : {kKey, handed}) {
    ASSERT_EQ(share(room, 1, key, 0, 100, 64), wire::kTaken);
    ASSERT_EQ(share(room, 1, key, 64, 100, 36), wire::kTaken);
    for (const std::uint32_t first : {0u, 64u}) {
      std::vector<int> sent;
      const wire::Share asked{key, first, 0};
      const wire::Shared answer = room.open(kMe, asked, sent);
      ASSERT_EQ(answer.verdict, wire::kTaken);
      room.sent(kMe, asked, answer);
    }
  }
  EXPECT_EQ(open(room, kKey).total, 100u);
  EXPECT_EQ(open(room, handed).verdict, wire::kNoSuchShare);
  EXPECT_EQ(room.descriptors(), 100u);
}

TEST(SharedMemory, NothingIsKeptBeyondItsEndAndItsClient) {
  SharedMemory room(1000);
  std::vector<Fd> descriptors = memories(2);
  const int raw = descriptors[0].get();
  ASSERT_EQ(room.share(1, kMe, {kKey, 0, 2}, descriptors), wire::kTaken);
  ASSERT_EQ(share(room, 1, kSecond, 0, 5, 3), wire::kTaken);  // not all of it
  ASSERT_EQ(share(room, 2, {{5, 6}}, 0, 1, 1), wire::kTaken);
  EXPECT_EQ(room.descriptors(), 8u);
  EXPECT_TRUE(is_open(raw));
  EXPECT_EQ(room.end(1, kMe, kKey), wire::kTaken);
  EXPECT_FALSE(is_open(raw));
  EXPECT_EQ(open(room, kKey).verdict, wire::kNoSuchShare);
  room.left(1);
  EXPECT_EQ(room.descriptors(), 1u);
  room.left(2);
  EXPECT_EQ(room.descriptors(), 0u);
}

TEST(SharedMemory, LeavesRoomForEveryUserAndMoreForRoot) {
  SharedMemory room(16);
  const auto promise = [&](ClientId client, uid_t uid, std::uint32_t total) {
    std::vector<Fd> one = memories(1);
    return room.share(client, uid, {{{client, uid}}, 0, total}, one);
  };
  EXPECT_EQ(promise(1, kMe, 4), wire::kTaken);
  EXPECT_EQ(promise(2, kMe, 4), wire::kTaken);
  EXPECT_EQ(promise(3, kMe, 1), wire::kNoRoomToShare) << "another client is no other user";
  EXPECT_EQ(promise(4, kOther, 4), wire::kTaken);
  EXPECT_EQ(promise(5, 1002, 1), wire::kNoRoomToShare) << "a quarter is root's";
  EXPECT_EQ(promise(6, 0, 4), wire::kTaken);
  room.left(1);
  EXPECT_EQ(promise(5, 1002, 1), wire::kTaken);
}

TEST(SharedMemory, IsBoundedForOneAndForAll) {
  SharedMemory room(10, kMe);
  EXPECT_EQ(share(room, 1, kKey, 0, 6, 1), wire::kNoRoomToShare) << "one has half at most";
  EXPECT_EQ(share(room, 1, kKey, 0, 0xffffffff, 1), wire::kNoRoomToShare);
  EXPECT_EQ(share(room, 1, kKey, 0, 4, 1), wire::kTaken);
  EXPECT_EQ(share(room, 1, kSecond, 0, 2, 1), wire::kNoRoomToShare);
  EXPECT_EQ(share(room, 2, {{5, 1}}, 0, 5, 1), wire::kTaken);
  EXPECT_EQ(share(room, 3, {{5, 2}}, 0, 2, 1), wire::kNoRoomToShare);
  EXPECT_EQ(share(room, 3, {{5, 2}}, 0, 1, 1), wire::kTaken);
  room.left(1);
  EXPECT_EQ(share(room, 3, {{5, 3}}, 0, 4, 1), wire::kTaken);
}

TEST(SharedMemory, WhatAClientEndsItHasRoomForAgain) {
  SharedMemory room(10, kMe);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(share(room, 1, kKey, 0, 4, 1), wire::kTaken) << i;
    room.end(1, kMe, kKey);
  }
}

TEST(SharedMemory, WhatMakesNoSenseEndsTheShare) {
  SharedMemory room(1000);
  EXPECT_EQ(share(room, 1, kKey, 0, 0, 1), wire::kBadShare);
  EXPECT_EQ(share(room, 1, kKey, 1, 2, 1), wire::kBadShare) << "the first has not come";
  EXPECT_EQ(share(room, 1, kKey, 0, 1, 2), wire::kBadShare) << "more than it has";
  EXPECT_EQ(share(room, 1, kKey, 0, 1, 0), wire::kNoRoomToShare) << "they were lost on the way";
  for (const wire::Share& next : {wire::Share{kKey, 1, 4}, {kKey, 2, 3}, {kKey, 3, 3}}) {
    EXPECT_EQ(share(room, 1, kKey, 0, 3, 1), wire::kTaken) << "begun anew";
    EXPECT_EQ(share(room, 1, kKey, next.first, next.total, 1), wire::kBadShare);
  }
  EXPECT_EQ(room.descriptors(), 0u);
}

TEST(SharedMemory, WhatIsNoMemoryIsRefused) {
  SharedMemory room(1000);
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const Fd ends[] = {Fd(pipe[0]), Fd(pipe[1])};
  EXPECT_FALSE(is_memory(ends[0].get()));
  EXPECT_FALSE(is_memory(Fd(::open("/proc/self/maps", O_RDONLY | O_CLOEXEC)).get()));
  EXPECT_TRUE(is_memory(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)).get()));
  EXPECT_TRUE(is_memory(memory().get()));
  std::vector<Fd> descriptors = memories(2);
  descriptors.emplace_back(::dup(ends[0].get()));
  EXPECT_EQ(room.share(1, kMe, {kKey, 0, 3}, descriptors), wire::kBadShare);
  EXPECT_EQ(descriptors.size(), 3u) << "the caller's to close";
  EXPECT_EQ(room.descriptors(), 0u);
}

// --- on the wire ---

TEST(SharedMemoryOnTheWire, DescriptorsTravelThereAndBack) {
  Running monitor;
  WireClient maker(monitor.socket()), opener(monitor.socket());
  ASSERT_TRUE(maker.join(hello_of({.name = "a"})));
  ASSERT_TRUE(opener.join(hello_of({.name = "b"})));
  const std::vector<Fd> memory = memories(70);
  std::vector<int> descriptors;
  for (const Fd& each : memory) descriptors.push_back(each.get());
  const std::vector<int> begin(descriptors.begin(), descriptors.begin() + 64);
  const std::vector<int> rest(descriptors.begin() + 64, descriptors.end());
  ASSERT_EQ(maker.share(wire::kShare, {kKey, 0, 70}, begin)->verdict, wire::kTaken);
  ASSERT_EQ(maker.share(wire::kShare, {kKey, 64, 70}, rest)->verdict, wire::kTaken);
  std::size_t came = 0;
  while (came < memory.size()) {
    const auto part = opener.share(wire::kOpenShared, {kKey, static_cast<std::uint32_t>(came), 0});
    ASSERT_TRUE(part && part->count == opener.fds().size() && part->count != 0);
    for (const Fd& each : opener.fds()) {
      EXPECT_EQ(inode_of(each.get()), inode_of(memory[came++].get()));
    }
  }
  EXPECT_EQ(maker.share(wire::kEndShare, {kKey, 0, 0})->verdict, wire::kTaken);
  EXPECT_EQ(opener.share(wire::kOpenShared, {kKey, 0, 0})->verdict, wire::kNoSuchShare);
  EXPECT_EQ(opener.charge(kMiB)->verdict, wire::kGranted) << "the connection goes on";
}

TEST(SharedMemoryOnTheWire, WhatAClientSharedGoesWithIt) {
  Running monitor;
  auto maker = std::make_unique<WireClient>(monitor.socket());
  WireClient opener(monitor.socket());
  ASSERT_TRUE(maker->join(hello_of({.name = "a"})));
  ASSERT_TRUE(opener.join(hello_of({.name = "b"})));
  const Fd piece = memory();
  ASSERT_EQ(maker->share(wire::kShare, {kKey, 0, 1}, {piece.get()})->verdict, wire::kTaken);
  EXPECT_EQ(opener.share(wire::kOpenShared, {kKey, 0, 0})->count, 1u);
  maker.reset();
  EXPECT_TRUE(eventually([&] {
    return opener.share(wire::kOpenShared, {kKey, 0, 0})->verdict == wire::kNoSuchShare;
  }));
}

TEST(SharedMemoryOnTheWire, DescriptorsOutOfPlaceCloseTheConnection) {
  Running monitor;
  const Fd piece = memory();
  const auto sent = [&](const std::string& bytes) {
    WireClient client(monitor.socket());
    EXPECT_TRUE(client.join(hello_of({})));
    client.send(bytes, {piece.get()});
    return client.is_closed();
  };
  EXPECT_TRUE(sent(make_frame(wire::kCharge, 1, wire::Charge{})));
  EXPECT_TRUE(sent(make_frame(wire::kOpenShared, 1, wire::Share{})));
  EXPECT_TRUE(sent(make_frame(wire::kShare, 1, wire::Charge{})));
  // In the middle of a frame.
  WireClient client(monitor.socket());
  ASSERT_TRUE(client.join(hello_of({})));
  const std::string frame = make_frame(wire::kShare, 1, wire::Share{kKey, 0, 2});
  client.send(frame.substr(0, 5), {piece.get()});
  ::usleep(50'000);
  client.send(frame.substr(5), {piece.get()});
  EXPECT_TRUE(client.is_closed());
  // Before Hello nobody takes any.
  WireClient nobody(monitor.socket());
  nobody.send(make_frame(wire::kJson, 1, std::string_view(R"({"op":"version"})")), {piece.get()});
  EXPECT_TRUE(nobody.receive());
  WireClient early(monitor.socket());
  early.send(make_frame(wire::kShare, 1, wire::Share{kKey, 0, 1}), {piece.get()});
  EXPECT_TRUE(early.is_closed());
}

TEST(SharedMemoryOnTheWire, MoreThanAFrameMayBringAreNoneAtAll) {
  Running monitor;
  WireClient client(monitor.socket());
  ASSERT_TRUE(client.join(hello_of({})));
  const Fd piece = memory();
  const std::vector<int> many(wire::kMostDescriptors + 1, piece.get());
  const auto total = static_cast<std::uint32_t>(many.size());
  EXPECT_EQ(client.share(wire::kShare, {kKey, 0, total}, many)->verdict, wire::kNoRoomToShare);
  EXPECT_EQ(client.share(wire::kOpenShared, {kKey, 0, 0})->verdict, wire::kNoSuchShare);
}

TEST(SharedMemoryOnTheWire, RandomSharesDoNotHurtTheMonitor) {
  Running monitor;
  WireClient other(monitor.socket());
  ASSERT_TRUE(other.join(hello_of({.name = "other"})));
  const Fd piece = memory();
  ASSERT_EQ(other.share(wire::kShare, {kSecond, 0, 1}, {piece.get()})->verdict, wire::kTaken);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    WireClient client(monitor.socket());
    client.join(hello_of({}));
    for (int i = 0; i < 8; ++i) {
      const auto kind = static_cast<std::uint32_t>(wire::kShare + random() % 3);
      const wire::Share asked{{{1, random() % 2}},
                              static_cast<std::uint32_t>(random() % 3),
                              static_cast<std::uint32_t>(random() % 4)};
      const std::vector<int> along(random() % 4, piece.get());
      const std::string bytes = make_frame(kind, 1, asked);
      if (!(along.empty() ? client.send(bytes) : client.send(bytes, along))) break;
    }
  }
  EXPECT_EQ(other.share(wire::kOpenShared, {kSecond, 0, 0})->count, 1u);
}

}  // namespace
}  // namespace switchyard::monitor::test
