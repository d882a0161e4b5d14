// What /proc says of processes, also of those that make it long.
#include "monitor/platform/processes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "switchyard/fd.h"

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

TEST(Processes, OfOneWithEndlessMappingsOnlyTheBeginningIsRead) {
  EXPECT_FALSE(may_be_managed(::getpid()));
  const fs::path path =
      fs::temp_directory_path() / (std::string(200, 'm') + std::to_string(::getpid()));
  std::ofstream(path) << std::string(4096, 'x');
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fs::remove(path);
  // Some 2 MB of lines. Two of the same page never become one mapping.
  for (int i = 0; i < 8000; ++i) {
    ASSERT_NE(::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file.get(), 0), MAP_FAILED);
  }
  EXPECT_TRUE(may_be_managed(::getpid())) << "it can't be told";
}

// Forks a process with this number. False: that is not permitted, or the number is in use.
bool fork_as(pid_t number, pid_t& out) {
  struct {
    std::uint64_t flags = 0, pidfd = 0, child_tid = 0, parent_tid = 0, exit_signal = SIGCHLD;
    std::uint64_t stack = 0, stack_size = 0, tls = 0, set_tid = 0, set_tid_size = 1;
  } arguments;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&number);
  out = static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof(arguments)));
  if (out != 0) return out > 0;
  for (;;) ::pause();
}

// A child keeps the socket open, and the process that connected has ended.
TEST(Processes, APeerThatHasEndedIsNotTheOneThatHasItsNumberNow) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]);
  bool dead = true;
  EXPECT_TRUE(open_peer(ours.get(), dead) || !dead);
  EXPECT_FALSE(dead) << "the peer is this process";

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "switchyard-test-peer-" + std::to_string(::getpid());
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const Fd connected(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));  // it lives on with us
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(::connect(connected.get(), reinterpret_cast<sockaddr*>(&address), length));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const Fd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(peer_of(accepted.get())->pid, child);
  pid_t other = 0;
  if (!fork_as(child, other)) GTEST_SKIP() << "needs root, to give a process a number";
  EXPECT_EQ(other, child);
  const Fd by_number = open_process(child, dead);
  EXPECT_FALSE(dead) << "another process";
  if (!open_peer(ours.get(), dead)) {
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    GTEST_SKIP() << "this kernel tells no peer";
  }
  open_peer(accepted.get(), dead);
  EXPECT_TRUE(dead);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

}  // namespace
}  // namespace switchyard::monitor
