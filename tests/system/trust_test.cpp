// Whom a job and the command line take for a monitor.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "switchyard/paths.h"
#include "users_scene.h"

namespace switchyard::system_tests {
namespace {

// A user without a monitor of root's, in whose runtime folder somebody else listens.
class Trust : public UsersScene {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
    if (::access(kSystemSocket, F_OK) == 0) GTEST_SKIP() << "root's monitor serves everybody here";
    UsersScene::SetUp();
  }
  void TearDown() override {
    if (listener_ >= 0) ::close(listener_);
    if (!IsSkipped()) Scene::TearDown();
  }

  // As `uid`: the kernel keeps who listens.
  void listen_as(uid_t uid) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    place().copy(address.sun_path, sizeof(address.sun_path) - 1);
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ASSERT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::chmod(place().c_str(), 0777), 0);
    ASSERT_EQ(::seteuid(uid), 0);
    ASSERT_EQ(::listen(listener_, 16), 0);
    ASSERT_EQ(::seteuid(0), 0);
  }
  // The words that clients have said to the listener.
  std::string heard() const {
    std::string all;
    for (int fd; (fd = ::accept(listener_, nullptr, nullptr)) >= 0; ::close(fd)) {
      char bytes[4096];
      const ssize_t got = ::recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got > 0) all.append(bytes, static_cast<std::size_t>(got));
    }
    return all;
  }
  Child::End library(const Changes& more = {}) {
    Changes changes{{"LD_PRELOAD", in_folder("lib/libswitchyard.so")}, {"SWITCHYARD_LOG", "warn"}};
    changes.insert(changes.end(), more.begin(), more.end());
    return as_user({in_folder("lib/job_loop"), "--count", "2"}, changes);
  }

 private:
  int listener_ = -1;
};

TEST_F(Trust, AStrangerWhoListensInTheUsersPlaceHearsNothingFromTheLibrary) {
  listen_as(kStranger);
  for (const Changes& named : {Changes{}, Changes{{"SWITCHYARD_SOCKET", place()}}}) {
    const auto end = library(named);
    EXPECT_EQ(end.out, "kernels 2\n") << end.err;
    EXPECT_NE(end.err.find(std::to_string(kStranger)), std::string::npos) << end.err;
    EXPECT_EQ(heard(), "");
  }
}

TEST_F(Trust, AStrangerWhoListensInTheUsersPlaceHearsNothingFromTheCommandLine) {
  listen_as(kStranger);
  const auto end = as_user({in_folder("lib/switchyard"), "policy"});
  EXPECT_EQ(end.status, 5) << end.err;
  EXPECT_NE(end.err.find(std::to_string(kStranger)), std::string::npos) << end.err;
  as_user({in_folder("lib/switchyard"), "run", "--", "true"});
  EXPECT_EQ(heard(), "");
}

TEST_F(Trust, AFolderOfSomebodyElseIsNotLookedInto) {
  listen_as(kUser);
  ASSERT_EQ(::chown(in_folder("victim/switchyard").c_str(), kStranger, kStranger), 0);
  const auto end = as_user({in_folder("lib/switchyard"), "policy"});
  EXPECT_EQ(end.status, 5) << end.err;
  EXPECT_NE(end.err.find(std::to_string(kStranger)), std::string::npos) << end.err;
  EXPECT_EQ(library().out, "kernels 2\n");
  EXPECT_EQ(heard(), "");
}

TEST_F(Trust, ASocketOfSomebodyElseThatIsNamedIsUsed) {
  listen_as(kStranger);
  // The same socket by a name that is not the user's own place.
  const std::string other = in_folder("victim/../victim/switchyard/monitor.sock");
  library({{"SWITCHYARD_SOCKET", other}});
  EXPECT_NE(heard(), "") << "a Hello was expected";
}

}  // namespace
}  // namespace switchyard::system_tests
