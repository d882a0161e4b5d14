// Requests: one bounded round trip each, and no answer is believed that is not the right one.
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <thread>

#include "shim/clock.h"
#include "tests/shim/client/client_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

using Requests = ClientTest;

TEST_F(Requests, ARequestBringsItsAnswer) {
  monitor();
  join_it();
  wire::Charged answer{};
  ASSERT_TRUE(request(wire::kCharge, 1, 4096, answer));
  EXPECT_EQ(answer.verdict, wire::kGranted);
  EXPECT_EQ(answer.granted_bytes, 4096U);
  EXPECT_EQ(answer.available_bytes, 5U);
  ASSERT_EQ(current().charges().size(), 1U);
  EXPECT_EQ(current().charges()[0].lane, 1U);
  EXPECT_EQ(current().charges()[0].bytes, 4096U);
}

TEST_F(Requests, AThreadThatIsCancelledLeavesTheConnectionToTheOthers) {
  monitor();
  join_it();
  bool answered = false;
  std::thread cancelled([&] {
    ::pthread_cancel(::pthread_self());
    wire::Charged answer{};
    answered = request(wire::kCharge, 0, 4096, answer);
    wake_monitor();
    sleep_ns(1);
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);  // std::thread knows nothing of it
  });
  cancelled.join();
  ASSERT_TRUE(answered) << "it ended with the connection's lock";
  wire::Charged answer{};
  EXPECT_TRUE(request(wire::kCharge, 0, 4096, answer));
}

TEST_F(Requests, AWrongAnswerIsNotTakenAndTheConnectionIsMadeAnew) {
  FakeMonitor::Manner id, kind, length;
  id.id = 1;
  kind.kind = 1;
  length.length = ~7u;  // shorter by 8 bytes: a longer one is that of a later monitor
  monitor();
  join_it();
  int connections = 1;
  for (const FakeMonitor::Manner& manner : {id, kind, length}) {
    SCOPED_TRACE(connections);
    ASSERT_TRUE(eventually([&] { return current().welcomed() == connections && connected(); }));
    current().set(manner);
    const std::uint32_t before = sharing_monitor();
    wire::Charged answer{};
    EXPECT_FALSE(request(wire::kCharge, 0, 1, answer));
    EXPECT_EQ(answer.granted_bytes, 0U);
    current().set({});
    ASSERT_TRUE(eventually([&] { return current().welcomed() == connections + 1; }));
    EXPECT_TRUE(eventually([&] { return sharing_monitor() > before; }));
    ++connections;
  }
  wire::Charged answer{};
  EXPECT_TRUE(eventually([&] { return request(wire::kCharge, 0, 1, answer); }));
}

TEST_F(Requests, AMonitorThatDoesNotAnswerIsWaitedForOnlyOnce) {
  FakeMonitor::Manner deaf;
  deaf.answers = false;
  monitor(deaf);
  join_it();
  wire::Charged answer{};
  EXPECT_FALSE(request(wire::kCharge, 0, 1, answer));
  EXPECT_TRUE(eventually([&] { return current().welcomed() == 2; }));
}

TEST_F(Requests, EachConnectionHasANumberIfTheMonitorSharesMemory) {
  monitor();
  join_it();
  const std::uint32_t first = sharing_monitor();
  EXPECT_NE(first, 0U);
  FakeMonitor::Manner alone;
  alone.features = 0;
  monitor(alone);
  ASSERT_TRUE(eventually([&] { return current().has_client() && connected(); }));
  EXPECT_EQ(sharing_monitor(), 0U);
  monitor();
  ASSERT_TRUE(eventually([&] { return sharing_monitor() != 0; }));
  EXPECT_NE(sharing_monitor(), first);
  lose_monitor("the test says so");
  EXPECT_EQ(process().joined, 0U);
  EXPECT_EQ(sharing_monitor(), 0U);
}

TEST_F(Requests, DescriptorsGoAlongAndOthersComeBack) {
  monitor({.shared_descriptors = 3});
  join_it();
  // The monitor is a thread of this process: for a moment it has what it sends, too.
  ASSERT_TRUE(eventually([&] { return current().has_client(); }));
  const int before = open_descriptors();
  Descriptors both;
  both.add(::eventfd(0, 0));
  both.add(::eventfd(0, 0));
  wire::Shared answer{};
  ASSERT_TRUE(share(wire::kShare, {{1, 2}, 0, 2}, both, answer));
  EXPECT_EQ(current().came_along(), 2U);
  EXPECT_EQ(answer.count, 3U);
  EXPECT_EQ(both.count, 3U);
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before + 3; }));
  both.close();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(Requests, NoDescriptorIsLeftAfterAFailure) {
  if (!fresh()) return;
  monitor({.id = 1, .shared_descriptors = 3});
  join_it();
  const int before = open_descriptors();
  Descriptors both;
  both.add(::eventfd(0, 0));
  wire::Shared answer{};
  EXPECT_FALSE(share(wire::kShare, {{1, 2}, 0, 1}, both, answer));
  EXPECT_EQ(both.count, 0U);
  no_monitor();
  lose_monitor("the test says so");
  both.add(::eventfd(0, 0));
  EXPECT_FALSE(share(wire::kShare, {{1, 2}, 0, 1}, both, answer));
  EXPECT_EQ(both.count, 0U);
  EXPECT_LT(open_descriptors(), before);
}

TEST_F(Requests, AWakeReachesTheMonitor) {
  monitor();
  join_it();
  EXPECT_TRUE(eventually([&] {
    wake_monitor();
    return current().woken();
  }));
}

}  // namespace
}  // namespace switchyard::shim
