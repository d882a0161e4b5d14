// What systemd hears, on a socket with a path and on an abstract one.
#include "monitor/platform/service_manager.h"

#include <gtest/gtest.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

#include "switchyard/fd.h"

namespace switchyard::monitor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Systemd : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    name_ = GetParam() + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (name_[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size() +
                                               (name_[0] == '@' ? 0 : 1));
    socket_ = Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ASSERT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
    ::unlink(name_.c_str());
  }
  std::string heard() const {
    char text[256];
    const ssize_t got = ::recv(socket_.get(), text, sizeof(text), 0);
    return got > 0 ? std::string(text, static_cast<std::size_t>(got)) : "";
  }

 private:
  std::string name_;
  Fd socket_;
};

TEST_P(Systemd, HearsThatTheMonitorServesAndLives) {
  ::setenv("WATCHDOG_USEC", "2000000", 1);
  ::setenv("WATCHDOG_PID", std::to_string(::getpid()).c_str(), 1);
  ServiceManager manager;
  manager.ready();
  EXPECT_EQ(heard(), "READY=1");
  manager.lives(seconds(100));
  EXPECT_EQ(heard(), "WATCHDOG=1");
  manager.lives(seconds(100) + milliseconds(999));
  EXPECT_EQ(heard(), "") << "twice in the time that it has";
  manager.lives(seconds(101));
  EXPECT_EQ(heard(), "WATCHDOG=1");
}

TEST_P(Systemd, HearsNoLifeOfAnotherProcessOrWithoutAWatchdog) {
  {
    ServiceManager manager;
    manager.lives(seconds(100));
    EXPECT_EQ(heard(), "");
  }
  ::setenv("WATCHDOG_USEC", "2000000", 1);
  ::setenv("WATCHDOG_PID", "1", 1);
  ServiceManager manager;
  manager.lives(seconds(100));
  EXPECT_EQ(heard(), "");
}

INSTANTIATE_TEST_SUITE_P(Sockets, Systemd,
                         ::testing::Values("/tmp/switchyard-notify-", "@switchyard-notify-"),
                         [](const auto& info) {
                           return info.param[0] == '@' ? "abstract" : "path";
                         });

}  // namespace
}  // namespace switchyard::monitor
