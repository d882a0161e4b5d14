// Descriptors of a caller that are closed, and those that stay.
#include "tools/run/close_from.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace switchyard::tools {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// Of the descriptors 20 to 25, all of which are open before: those that stay, as bits.
int left(int first, int kept, int kept_too) {
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, 19);
    for (int fd = 20; fd <= 25; ++fd) ::dup2(null, fd);
    close_from(first, kept, kept_too);
    int bits = is_open(19) ? 0 : 128;
    for (int fd = 20; fd <= 25; ++fd) bits |= is_open(fd) ? 1 << (fd - 20) : 0;
    ::_exit(bits);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(CloseFrom, AllGoButTheKeptOnes) {
  EXPECT_EQ(left(22, -1, -1), 0b000011);
  EXPECT_EQ(left(20, 22, 24), 0b010100);
  EXPECT_EQ(left(20, 24, 22), 0b010100) << "in any order";
  EXPECT_EQ(left(20, 20, 21), 0b000011) << "side by side";
  EXPECT_EQ(left(22, 20, 25), 0b100011) << "one is below the first";
  EXPECT_EQ(left(20, 23, 23), 0b001000) << "twice the same";
}

}  // namespace
}  // namespace switchyard::tools
