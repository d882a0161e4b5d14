// The program's own descriptors, and its forks: nothing of the program's is closed, replaced or
// read.
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "shim/reset.h"
#include "tests/shim/client/client_world.h"

namespace switchyard::shim {
namespace {

using namespace testing;

struct Programs : ClientTest {
  // The library may have come back before the program has closed the last of its numbers, which are
  // then those of its new connection. So it comes back once or twice.
  bool is_back() { return current().welcomed() >= 2 && connected(); }
};

std::vector<int> all_descriptors() {
  std::vector<int> open;
  for (int fd = 3; fd < 4096; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) open.push_back(fd);
  }
  return open;
}

// The library's: those that came while the process joined. The monitor of the test has its own.
std::vector<int> library_descriptors() {
  std::vector<int> found;
  for (const int fd : all_descriptors()) {
    if (fd >= 256) found.push_back(fd);
  }
  return found;
}

// The program closes the numbers and opens its own eventfds there, with a count.
void take_over(const std::vector<int>& numbers) {
  for (const int number : numbers) {
    const int mine = ::eventfd(9, EFD_NONBLOCK);
    ASSERT_EQ(::dup2(mine, number), number);
    ::close(mine);
  }
}

void expect_untouched(const std::vector<int>& numbers) {
  for (const int number : numbers) {
    std::uint64_t count = 0;
    EXPECT_EQ(::read(number, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count))) << number;
    EXPECT_EQ(count, 9U) << number;
  }
}

TEST_F(Programs, NumbersOfTheLibraryAreHighAndClosedOnExec) {
  join_and_look();
  const std::vector<int> numbers = library_descriptors();
  EXPECT_EQ(numbers.size(), 4U) << "each is one that the program lacks";
  for (const int number : numbers) EXPECT_EQ(::fcntl(number, F_GETFD), FD_CLOEXEC);
}

TEST_F(Programs, FilesUnderTheLibrarysNumbersAreLeftAlone) {
  if (!fresh()) return;
  join_and_look();
  const std::vector<int> numbers = library_descriptors();
  take_over(numbers);
  // All that the library does with its descriptors.
  service::poke();
  wake_monitor();
  wire::Charged answer{};
  EXPECT_FALSE(request(wire::kRefresh, 0, 0, answer));
  EXPECT_TRUE(eventually([&] { return is_back(); }));
  EXPECT_TRUE(eventually([&] { return request(wire::kRefresh, 0, 0, answer); }));
  service::poke();
  wake_monitor();
  lose_monitor("the test says so");
  expect_untouched(numbers);
}

TEST_F(Programs, AThreadWhoseDescriptorsWereClosedDoesNotSpin) {
  if (!fresh()) return;
  join_and_look();
  for (const int number : library_descriptors()) ::close(number);
  EXPECT_TRUE(eventually([&] { return is_back(); }));
  const auto begin = std::chrono::steady_clock::now();
  const int looks = g_neighbours.looks;
  ::usleep(300'000);
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  EXPECT_LT(g_neighbours.looks - looks, 20 + took.count() / 20);
  // And it hears again.
  const int applied = g_neighbours.applied;
  EXPECT_TRUE(eventually([&] {
    service::poke();
    return g_neighbours.applied > applied;
  }));
}

TEST_F(Programs, AClosedPokeAloneIsMadeAnew) {
  if (!fresh()) return;
  join_and_look();
  const std::vector<int> numbers = library_descriptors();
  for (const int number : numbers) {
    int peer_type = 0;
    socklen_t bytes = sizeof(peer_type);
    sockaddr_storage name{};
    socklen_t name_bytes = sizeof(name);
    // Connected to itself, and nonblocking.
    if (::getsockopt(number, SOL_SOCKET, SO_TYPE, &peer_type, &bytes) == 0 &&
        ::getpeername(number, reinterpret_cast<sockaddr*>(&name), &name_bytes) == 0 &&
        (::fcntl(number, F_GETFL) & O_NONBLOCK) != 0) {
      ::close(number);
      break;
    }
  }
  EXPECT_EQ(library_descriptors().size(), numbers.size() - 1);
  EXPECT_TRUE(eventually([&] { return library_descriptors().size() == numbers.size(); }));
  EXPECT_EQ(current().welcomed(), 1);
}

TEST_F(Programs, AForkedChildHasNoneOfTheParentsDescriptors) {
  join_and_look();
  const int status = in_child([&] {
    EXPECT_TRUE(library_descriptors().empty());
    EXPECT_EQ(process().joined, 0U);
    EXPECT_EQ(page().head.magic, 0U);
    EXPECT_FALSE(monitor_fds().lost);
    return HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(status, 0);
  wire::Charged answer{};
  EXPECT_TRUE(request(wire::kRefresh, 0, 0, answer));
}

TEST_F(Programs, AForkedChildResetsEachModuleOnceAndInOrder) {
  // The world's three, and those of the page, the settings, the connection and the service thread.
  EXPECT_EQ(count_resets(), 7U);
  join_and_look();
  g_forgotten.clear();
  for (const bool without_handlers : {false, true}) {
    EXPECT_EQ(in_child(
                  [&] {
                    if (without_handlers) begin_process();
                    EXPECT_EQ(g_forgotten, "pcs");
                    return HasFailure() ? 1 : 0;
                  },
                  without_handlers),
              0);
  }
  EXPECT_EQ(g_forgotten, "");
}

// By the bare system call, as `_Fork` and clone do it: no handler runs.
TEST_F(Programs, AChildWithoutForkHandlersLosesNoFileOfItsOwn) {
  join_and_look();
  const std::vector<int> numbers = library_descriptors();
  const int status = in_child(
      [&] {
        take_over(numbers);
        begin_process();
        EXPECT_EQ(process().joined, 0U);
        EXPECT_EQ(page().head.magic, 0U);
        expect_untouched(numbers);
        return HasFailure() ? 1 : 0;
      },
      true);
  EXPECT_EQ(status, 0);
}

TEST_F(Programs, AChildWithoutForkHandlersClosesTheParentsDescriptors) {
  join_and_look();
  const int status = in_child(
      [&] {
        begin_process();
        return library_descriptors().empty() ? 0 : 1;
      },
      true);
  EXPECT_EQ(status, 0);
}

// Another thread of the parent may begin the process just at the fork.
TEST_F(Programs, AChildIsNotHeldByAThreadThatBeganTheProcess) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "tsan can't see that a new mapping makes the child's mutex anew";
#endif
  begin_process();
  std::atomic<int> step{0};
  std::thread holder([&] {
    ::pthread_mutex_lock(&process().begin);
    step = 1;
    while (step == 1) std::this_thread::yield();
    ::pthread_mutex_unlock(&process().begin);
  });
  while (step == 0) std::this_thread::yield();
  for (const bool without_handlers : {false, true}) {
    EXPECT_EQ(in_child(
                  [] {
                    begin_process();
                    return process().alive == 1 ? 0 : 1;
                  },
                  without_handlers),
              0);
  }
  step = 2;
  holder.join();
}

// Makes madvise(MADV_WIPEONFORK) fail, as gVisor and old kernels do, before anything else happens.
struct RefusesToWipe {
  RefusesToWipe() {
    if (!is_fresh()) return;
    constexpr unsigned kWipeOnFork = 18;
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kWipeOnFork, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{sizeof(program) / sizeof(program[0]), program};
    EXPECT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    EXPECT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
  }
};
class WithoutWiping : private RefusesToWipe, public ClientTest {};

TEST_F(WithoutWiping, AForkedChildIsNotTakenForItsParent) {
  if (!fresh()) return;
  join_and_look();
  process().used_bytes[0] = 10;
  for (const bool without_handlers : {false, true}) {
    EXPECT_EQ(in_child(
                  [&] {
                    if (!without_handlers && process().alive != 0) return 1;
                    begin_process();
                    if (process().joined != 0 || process().uses_cuda != 0) return 2;
                    if (page().head.magic != 0 || process().used_bytes[0] != 0) return 3;
                    return library_descriptors().empty() && process().alive == 1 ? 0 : 4;
                  },
                  without_handlers),
              0);
  }
  EXPECT_EQ(process().joined, 1U);
  EXPECT_EQ(current().welcomed(), 1);
}

}  // namespace
}  // namespace switchyard::shim
