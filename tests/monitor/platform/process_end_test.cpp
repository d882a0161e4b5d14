// How a process has ended: of one that its parent has not asked about, and of one that is gone.
#include "monitor/platform/process_end.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>

#include "monitor/platform/processes.h"

namespace switchyard::monitor {
namespace {

struct Ended {
  explicit Ended(const std::function<void()>& ends) : pid(::fork()) {
    if (pid == 0) {
      ends();
      ::_exit(0);
    }
    bool dead = false;
    pidfd = open_process(pid, dead);
    pollfd entry{pidfd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&entry, 1, -1), 1);
  }
  ~Ended() { ::waitpid(pid, nullptr, 0); }
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;
  std::optional<int> status() const { return wait_status_of(pidfd.get(), pid); }

  pid_t pid;
  Fd pidfd;
};

bool kernel_remembers() {
  utsname about{};
  int major = 0, minor = 0;
  ::uname(&about);
  std::sscanf(about.release, "%d.%d", &major, &minor);
  return major > 6 || (major == 6 && minor >= 15);
}

TEST(ProcessEnd, IsKnownBeforeItsParentHasAsked) {
  const Ended zero([] {}), seven([] { ::_exit(7); }), killed([] { ::raise(SIGKILL); });
  EXPECT_EQ(zero.status(), 0);
  EXPECT_EQ(end_of(*seven.status()).code, 7);
  EXPECT_FALSE(end_of(*seven.status()).signal);
  EXPECT_EQ(end_of(*killed.status()).signal, SIGKILL);
  EXPECT_FALSE(end_of(*killed.status()).code);
}

TEST(ProcessEnd, OfOneThatIsGoneIsThatOfItsHandleOrUnknown) {
  const Ended seven([] { ::_exit(7); });
  int asked = 0;
  ASSERT_EQ(::waitpid(seven.pid, &asked, 0), seven.pid);
  EXPECT_EQ(seven.status(), kernel_remembers() ? std::optional(asked) : std::nullopt);
}

TEST(ProcessEnd, OfWhoLivesOrHasNoHandleIsUnknown) {
  bool dead = false;
  const Fd own = open_process(::getpid(), dead);
  EXPECT_FALSE(wait_status_of(own.get(), ::getpid()));
  const Ended seven([] { ::_exit(7); });
  EXPECT_FALSE(wait_status_of(-1, seven.pid));
}

// The number is another process's by now: the status is not that one's.
TEST(ProcessEnd, IsNotThatOfAnotherProcessWithTheNumber) {
  const Ended seven([] { ::_exit(7); }), other([] { ::_exit(3); });
  int asked = 0;
  ASSERT_EQ(::waitpid(seven.pid, &asked, 0), seven.pid);
  EXPECT_EQ(wait_status_of(seven.pidfd.get(), other.pid),
            kernel_remembers() ? std::optional(asked) : std::nullopt);
}

TEST(ProcessEnd, OfAProcessThatMayNotBeTracedIsNoZero) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user takes root";
  const Ended roots([] {});
  const Ended nobody([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    ::_exit(roots.status() ? 1 : 0);
  });
  EXPECT_EQ(end_of(*nobody.status()).code, 0);
}

TEST(ProcessEnd, IsStoredAsText) {
  EXPECT_EQ(end_text(7 << 8), "exit code 7");
  EXPECT_EQ(end_text(SIGKILL), "signal 9");
  EXPECT_EQ(end_of_text("exit code 7").code, 7);
  EXPECT_EQ(end_of_text("signal 9").signal, 9);
  for (const char* text : {"", "ended", "exit code", "signal x"}) {
    EXPECT_FALSE(end_of_text(text).code || end_of_text(text).signal) << text;
  }
}

}  // namespace
}  // namespace switchyard::monitor
