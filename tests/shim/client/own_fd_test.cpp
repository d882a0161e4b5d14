#include "shim/own_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

namespace switchyard::shim {
namespace {

int a_socket() { return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0); }
int an_eventfd() { return ::eventfd(0, EFD_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// What the program does: it closes our number and opens its own file there.
void take_number(int number, int with) {
  ASSERT_EQ(::dup2(with, number), number);
  ::close(with);
}

ino_t inode(int fd) {
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  return info.st_ino;
}

std::uint64_t identity_of_eventfd(int fd) {
  std::uint64_t count = 0;
  EXPECT_EQ(::read(fd, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  return count;
}

TEST(OwnDescriptors, AFileThatWasAdoptedIsFound) {
  for (const int fd : {a_socket(), an_eventfd(), ::memfd_create("one", 0)}) {
    OwnFd own;
    EXPECT_FALSE(own.is_set());
    EXPECT_EQ(own.get(), -1);
    own.adopt(fd);
    EXPECT_TRUE(own.is_set());
    const int number = own.get();
    EXPECT_TRUE(is_open(number));
    EXPECT_EQ(::fcntl(number, F_GETFD), FD_CLOEXEC);
    own.close();
    EXPECT_FALSE(is_open(number));
    EXPECT_FALSE(own.is_set());
  }
}

// It may hold a lock of ours there.
TEST(OwnDescriptors, AThreadIsNotCancelledWhereItClosesAFile) {
  bool closed = false;
  std::thread cancelled([&] {
    ::pthread_cancel(::pthread_self());
    close_file(a_socket());
    closed = true;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  });
  cancelled.join();
  EXPECT_TRUE(closed);
}

TEST(OwnDescriptors, NumbersAreAboveThoseOfPrograms) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int low = a_socket();
  OwnFd own;
  own.adopt(low);
  EXPECT_GE(own.get(), static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, 1024)));
  EXPECT_FALSE(is_open(low));
  own.close();
}

TEST(OwnDescriptors, ANumberThatTheProgramHasTakenIsLeftAlone) {
  // Sockets, and eventfds: these share one inode.
  for (int (*make)() : {a_socket, an_eventfd}) {
    OwnFd own;
    own.adopt(make());
    const int number = own.get();
    take_number(number, make());
    EXPECT_EQ(own.get(), -1);
    EXPECT_TRUE(own.is_set());
    own.close();
    EXPECT_TRUE(is_open(number));
    ::close(number);
  }
}

TEST(OwnDescriptors, ANumberThatTheProgramHasClosedIsNoDescriptor) {
  OwnFd own;
  own.adopt(a_socket());
  ::close(own.get());
  EXPECT_EQ(own.get(), -1);
  own.close();
}

TEST(OwnDescriptors, TheNextFileComesUnderTheSameNumber) {
  OwnFd own;
  own.adopt(a_socket());
  const int number = own.get();
  const ino_t before = inode(number);
  own.adopt(a_socket());
  EXPECT_EQ(own.get(), number);
  EXPECT_NE(inode(number), before);
  EXPECT_EQ(::fcntl(number, F_GETFD), FD_CLOEXEC);
  own.close();
}

TEST(OwnDescriptors, TheNextFileDoesNotReplaceTheProgramsFile) {
  OwnFd own;
  own.adopt(an_eventfd());
  const int number = own.get();
  take_number(number, ::eventfd(42, EFD_CLOEXEC));
  own.adopt(an_eventfd());
  EXPECT_NE(own.get(), number);
  EXPECT_GE(own.get(), 0);
  EXPECT_EQ(identity_of_eventfd(number), 42U);
  ::close(number);
  own.close();
}

TEST(OwnDescriptors, AFileOfAnotherTypeIsNotOurs) {
  OwnFd own;
  own.adopt(an_eventfd());
  const int number = own.get();
  take_number(number, ::epoll_create1(0));
  EXPECT_EQ(own.get(), -1);
  own.close();
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

// An epoll has no id: one can't be told from another.
TEST(OwnDescriptors, WhatCannotBeToldApartIsUsedButNeverClosedOrReplaced) {
  OwnFd own;
  own.adopt(::epoll_create1(EPOLL_CLOEXEC));
  const int number = own.get();
  ASSERT_GE(number, 0);
  own.adopt(::epoll_create1(EPOLL_CLOEXEC));
  EXPECT_NE(own.get(), number);
  EXPECT_TRUE(is_open(number));
  const int second = own.get();
  own.close();
  EXPECT_TRUE(is_open(second));
  EXPECT_EQ(own.get(), -1);
  ::close(number);
  ::close(second);
}

// An eventfd is told by a file that has to be opened.
TEST(OwnDescriptors, AnEventfdIsUsedWhileNoDescriptorIsLeft) {
  OwnFd own;
  own.adopt(an_eventfd());
  const int number = own.get();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int found = own.get();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(found, number);
  own.close();
}

TEST(OwnDescriptors, WithoutRoomAboveTheNumberStays) {
  const int fd = a_socket();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int moved = move_up(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(moved, fd);
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

class RaisedLimits : public ::testing::Test {
 protected:
  RaisedLimits() { ::getrlimit(RLIMIT_NOFILE, &before_); }
  ~RaisedLimits() override { ::setrlimit(RLIMIT_NOFILE, &before_); }
  void set_soft(rlim_t soft) const {
    const rlimit limit{soft, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  static rlim_t soft() {
    rlimit limit{};
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    return limit.rlim_cur;
  }
  rlimit before_{};
};

TEST_F(RaisedLimits, AFileStaysOpenAboveTheLimitThatIsAsBefore) {
  set_soft(200);
  int fd = -1;
  {
    const RaisedLimit raised(400);
    EXPECT_EQ(raised.first(), 200);
    EXPECT_EQ(soft(), 400u);
    fd = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, raised.first());
  }
  EXPECT_EQ(soft(), 200u);
  EXPECT_EQ(fd, 200);
  EXPECT_TRUE(is_open(fd));
  ::close(fd);
}

TEST_F(RaisedLimits, ALimitThatTheProgramSetsMeanwhileStays) {
  set_soft(200);
  {
    const RaisedLimit raised(400);
    set_soft(300);
  }
  EXPECT_EQ(soft(), 300u);
}

TEST_F(RaisedLimits, ThereAreNoNumbersWhereTheLimitIsHighEnough) {
  set_soft(400);
  const RaisedLimit raised(400);
  EXPECT_EQ(raised.first(), 0);
  EXPECT_EQ(soft(), 400u);
}

}  // namespace
}  // namespace switchyard::shim
