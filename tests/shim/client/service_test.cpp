// The service thread: what makes it look, when a monitor is gone, and that nothing ends or spins
// it.
#include "shim/client/service.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

#include "shim/thread.h"
#include "tests/shim/client/client_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

// Bytes that this process has mapped.
rlim_t address_space() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  EXPECT_TRUE(file >> pages);
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

class Service : public ClientTest {
 protected:
  // The actions without a monitor: gates, slices and the mover.
  struct Seen {
    int opened = g_neighbours.opened;
    int restored = g_neighbours.restored;
    std::uint32_t pokes = mover_pokes();
  };
  static bool freed_since(const Seen& before) {
    return g_neighbours.opened > before.opened && g_neighbours.restored > before.restored &&
           mover_pokes() > before.pokes;
  }
};

TEST_F(Service, ADoorbellMeansALookAtThePage) {
  monitor();
  join_it();
  for (int round = 0; round < 3; ++round) {
    const int applied = g_neighbours.applied;
    const std::uint32_t pokes = mover_pokes();
    current().ring();
    EXPECT_TRUE(
        eventually([&] { return g_neighbours.applied > applied && mover_pokes() > pokes; }));
  }
}

// Without a doorbell the mover has nothing to do.
TEST_F(Service, APokeMeansALookAtTheSlices) {
  monitor();
  join_it();
  const auto poke_and_look = [] {
    const int applied = g_neighbours.applied;
    service::poke();
    EXPECT_TRUE(eventually([&] { return g_neighbours.applied > applied; }));
  };
  // Between two looks it hears what was rung when it joined.
  for (int round = 0; round < 2; ++round) poke_and_look();
  const std::uint32_t pokes = mover_pokes();
  for (int round = 0; round < 3; ++round) poke_and_look();
  EXPECT_EQ(mover_pokes(), pokes);
}

TEST_F(Service, AMoverThatCouldNotBeStartedIsTriedAgainAndAgain) {
  monitor();
  join_it();
  const int tried = g_neighbours.movers_tried;
  EXPECT_TRUE(eventually([&] { return g_neighbours.movers_tried > tried + 1; }));
}

TEST_F(Service, ADoorbellIsHeardOnce) {
  monitor();
  join_it();
  current().ring();
  const int applied = g_neighbours.applied;
  ASSERT_TRUE(eventually([&] { return g_neighbours.applied > applied + 1; }));
  const auto begin = std::chrono::steady_clock::now();
  const int looks = g_neighbours.looks;
  ASSERT_TRUE(eventually([&] { return g_neighbours.looks > looks + 1; }));
  // One look in half a second, where a doorbell that is never drained makes thousands.
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, std::chrono::milliseconds(100));
}

TEST_F(Service, AClosedSocketFreesTheJobAndIsMadeAnew) {
  monitor();
  join_it();
  const Seen before;
  current().hang_up();
  EXPECT_TRUE(eventually([&] { return freed_since(before); }));
  EXPECT_GT(g_neighbours.opened_at_restore, before.opened);
  EXPECT_TRUE(eventually([&] { return current().welcomed() == 2 && connected(); }));
  EXPECT_EQ(current().hello().flags, wire::kRejoin);
  // It asks the new monitor to look at its page.
  EXPECT_TRUE(eventually([&] { return current().woken(); }));
}

// The program may change its environment meanwhile: what was read there would be freed under us.
TEST_F(Service, ItFindsTheMonitorWithoutTheEnvironment) {
  monitor();
  join_it();
  const int welcomed = current().welcomed();
  ::setenv("SWITCHYARD_SOCKET", "/nowhere/at/all", 1);
  current().hang_up();
  EXPECT_TRUE(eventually([&] { return current().welcomed() > welcomed; }));
}

TEST_F(Service, ASilentMonitorFreesTheJobAndIsFoundAgain) {
  monitor();
  join_it();
  const Seen before;
  current().beats = false;
  EXPECT_TRUE(eventually([&] { return freed_since(before); }));
  current().beats = true;
  EXPECT_TRUE(eventually([&] { return current().welcomed() >= 2 && connected(); }));
}

TEST_F(Service, AMonitorThatBeatsIsKept) {
  monitor();
  join_it();
  const int looks = g_neighbours.looks;
  // Some three seconds: a monitor that is not heard is gone after two.
  EXPECT_TRUE(eventually([&] { return g_neighbours.looks > looks + 6; }));
  EXPECT_EQ(current().welcomed(), 1);
}

// A pause may be over.
TEST_F(Service, WithoutAMonitorItLooksAtThePausesAgainAndAgain) {
  monitor();
  join_it();
  no_monitor();
  ASSERT_TRUE(eventually([&] { return !connected(); }));
  const int opened = g_neighbours.opened;
  EXPECT_TRUE(eventually([&] { return g_neighbours.opened > opened + 3; }));
}

TEST_F(Service, ItLooksOftenWhileWorkStandsBeforeARetiredView) {
  monitor();
  join_it();
  g_neighbours.follows = true;
  service::poke();
  const auto begin = std::chrono::steady_clock::now();
  const int looks = g_neighbours.looks;
  EXPECT_TRUE(eventually([&] { return g_neighbours.looks > looks + 100; }));
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GT(took, std::chrono::seconds(1));  // but it does not spin
  g_neighbours.follows = false;
}

// poll() fails with EINVAL while RLIMIT_NOFILE is lower than the number of files.
TEST_F(Service, ItOutlivesAPollThatFails) {
  if (!fresh()) return;
  monitor();
  join_it();
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit two{2, limit.rlim_max};  // the thread waits for three files, the monitor for one
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &two), 0);
  service::poke();
  const int looks = g_neighbours.looks;
  EXPECT_TRUE(eventually([&] { return g_neighbours.looks > looks + 3; }));
  const std::uint32_t pokes = mover_pokes();
  current().ring();
  EXPECT_TRUE(eventually([&] { return mover_pokes() > pokes; }));
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(current().welcomed(), 1);
  current().hang_up();
  EXPECT_TRUE(eventually([&] { return current().welcomed() == 2; }));
}

// The C library takes the static thread-local data of the program's libraries out of it.
TEST_F(Service, AThreadHasAStackForMoreThanItself) {
  static std::atomic<std::size_t> bytes{0};
  const auto measure = [](void*) -> void* {
    pthread_attr_t attributes;
    std::size_t size = 0;
    if (::pthread_getattr_np(::pthread_self(), &attributes) == 0) {
      ::pthread_attr_getstacksize(&attributes, &size);
      ::pthread_attr_destroy(&attributes);
    }
    bytes = size;
    return nullptr;
  };
  ASSERT_TRUE(start_thread(measure));
  EXPECT_TRUE(eventually([] { return bytes != 0; }));
  EXPECT_GE(bytes, std::size_t{4} << 20);
}

// A limit of the address space leaves no room for the thread's stack.
TEST_F(Service, AThreadThatDidNotStartIsStartedLater) {
  if (!fresh()) return;
  ::unsetenv("SWITCHYARD_JOB");
  monitor();
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_AS, &limit), 0);
  // Less than a stack, but not nothing: a sanitizer maps its own record of a thread first, and ends
  // the process where that fails.
  const rlimit little{address_space() + (kStack - 4096), limit.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_AS, &little), 0);
  service::start();
  EXPECT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  ::usleep(50'000);
  EXPECT_EQ(g_neighbours.looks, 0);
  service::start();
  EXPECT_TRUE(eventually([] { return g_neighbours.looks > 0; }));
}

TEST_F(Service, ARequestStartsAThreadThatIsMissing) {
  if (!fresh()) return;
  join_and_look();
  wire::Charged answer{};
  EXPECT_TRUE(request(wire::kRefresh, 0, 0, answer));
  EXPECT_EQ(current().welcomed(), 1);
}

TEST_F(Service, AForkedChildHasAThreadOfItsOwn) {
  join_and_look();
  const int status = in_child([&] {
    g_neighbours.looks = 0;
    EXPECT_TRUE(join() || !connected());
    service::start();
    EXPECT_TRUE(eventually([] { return g_neighbours.looks > 0; }));
    return HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace switchyard::shim
