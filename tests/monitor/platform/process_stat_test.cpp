// The words of a stat file, behind a name that may hold anything.
#include "monitor/platform/process_stat.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "monitor/core/ancestry.h"
#include "monitor/platform/process_about.h"
#include "monitor/platform/processes.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {
namespace {

// A child that waits, under such a name.
class Named {
 public:
  explicit Named(const char* name) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    const Fd from(ready[0]);
    Fd to(ready[1]);
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_NAME, name);
      to.reset();
      for (;;) ::pause();
    }
    to.reset();
    char none = 0;
    EXPECT_EQ(::read(from.get(), &none, 1), 0);
  }
  ~Named() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;

  pid_t pid = 0;
};

class ProcessStat : public ::testing::TestWithParam<const char*> {};

TEST_P(ProcessStat, NoNameHidesWhatStandsBehindIt) {
  const Named child(GetParam());
  const char state = process_state(child.pid);
  EXPECT_TRUE(state == 'S' || state == 'R') << static_cast<int>(state);
  EXPECT_EQ(process_parent(child.pid), ::getpid());
  EXPECT_GE(process_started(child.pid), process_started(::getpid()));
}

INSTANTIATE_TEST_SUITE_P(Names, ProcessStat,
                         ::testing::Values("plain", "a b", ") Z 1", "a\n) T 1", "((", ""));

TEST(ProcessStat, OfNoProcessNoWord) {
  EXPECT_EQ(word_of_stat("/proc/0/stat", kStatState), "");
  EXPECT_EQ(word_of_stat("/proc/self/stat", 1000), "");
}

}  // namespace
}  // namespace switchyard::monitor
