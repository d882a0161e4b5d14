// The sockets that a service manager passes, each case in a child whose descriptors are its own.
#include "monitor/platform/passed_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace switchyard::monitor {
namespace {

// Whether `check` holds in a child that has `fd` as the first passed one.
bool holds_with(int fd, const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool placed = fd == 3 ? ::fcntl(3, F_SETFD, 0) == 0 : ::dup2(fd, 3) == 3;
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "1", 1);
    ::setenv("LISTEN_FDNAMES", "switchyardd.socket", 1);
    ::_exit(placed && check() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Listener {
  Listener() {
    char folder[] = "/tmp/switchyard-passed-XXXXXX";
    path = std::string(::mkdtemp(folder)) + "/s";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    fd = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Listener() {
    ::unlink(path.c_str());
    ::rmdir(path.substr(0, path.rfind('/')).c_str());
  }
  std::string path;
  Fd fd;
};

TEST(PassedSockets, AreTakenAndNobodyElseHearsOfThem) {
  const Listener systemd;
  ASSERT_EQ(::listen(systemd.fd.get(), 1), 0);
  EXPECT_TRUE(holds_with(systemd.fd.get(), [&] {
    const auto passed = take_passed_sockets();
    return passed.size() == 1 && passed[0].get() == 3 && listens_at(3, systemd.path) &&
           ::fcntl(3, F_GETFD) == FD_CLOEXEC && (::fcntl(3, F_GETFL) & O_NONBLOCK) != 0 &&
           ::getenv("LISTEN_PID") == nullptr && ::getenv("LISTEN_FDS") == nullptr &&
           ::getenv("LISTEN_FDNAMES") == nullptr;
  }));
}

TEST(PassedSockets, OfAnotherProcessAreLetBe) {
  const Listener systemd;
  EXPECT_TRUE(holds_with(systemd.fd.get(), [] {
    ::setenv("LISTEN_PID", "1", 1);
    return take_passed_sockets().empty() && ::fcntl(3, F_GETFD) == 0 &&
           ::getenv("LISTEN_FDS") == nullptr;
  }));
}

TEST(PassedSockets, ThatAreNotThereAreNone) {
  const Listener systemd;
  EXPECT_TRUE(holds_with(systemd.fd.get(), [] {
    ::close(3);
    ::close(4);
    ::setenv("LISTEN_FDS", "2", 1);
    return take_passed_sockets().empty();
  }));
  EXPECT_TRUE(holds_with(systemd.fd.get(), [] {
    ::setenv("LISTEN_FDS", "many", 1);
    return take_passed_sockets().empty();
  }));
}

TEST(PassedSockets, ListenAtTheirOwnPathAlone) {
  const Listener systemd;
  EXPECT_FALSE(listens_at(systemd.fd.get(), systemd.path)) << "it does not listen yet";
  ASSERT_EQ(::listen(systemd.fd.get(), 1), 0);
  EXPECT_TRUE(listens_at(systemd.fd.get(), systemd.path));
  EXPECT_FALSE(listens_at(systemd.fd.get(), systemd.path + "x"));
  const Fd unbound(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_FALSE(listens_at(unbound.get(), ""));
  const Fd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_FALSE(listens_at(file.get(), "/dev/null"));
}

}  // namespace
}  // namespace switchyard::monitor
