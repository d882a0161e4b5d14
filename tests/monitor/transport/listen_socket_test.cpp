// The monitor's directory, socket, and claims.
#include "monitor/transport/listen_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/monitor/transport/wire_client.h"

namespace switchyard::monitor {
namespace {

namespace fs = std::filesystem;

struct PlaceTest : testing::Test {
  PlaceTest() {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    base = ::mkdtemp(name);
  }
  ~PlaceTest() override { fs::remove_all(base); }
  std::string refused(const std::string& socket) {
    ListenSocket place;
    EXPECT_FALSE(place.open(socket, why, taken));
    return why;
  }
  std::string base, why;
  bool taken = false;
};

TEST_F(PlaceTest, MakesItsDirectoryAndSocket) {
  ListenSocket place;
  ASSERT_TRUE(place.open(base + "/new/monitor.sock", why, taken)) << why;
  EXPECT_TRUE(fs::is_socket(base + "/new/monitor.sock"));
  const auto mode = fs::status(base + "/new").permissions();
  EXPECT_EQ(mode & fs::perms::others_write, fs::perms::none);
}

// Root's monitor serves every user, and a user's own that user alone.
TEST_F(PlaceTest, ASocketIsForThoseWhomItsMonitorServes) {
  const auto rights_of = [&](const std::string& name) {
    ListenSocket place;
    EXPECT_TRUE(place.open(base + name, why, taken)) << why;
    return static_cast<unsigned>(fs::status(base + name).permissions());
  };
  if (::geteuid() == 0) {
    EXPECT_EQ(rights_of("/roots/m.sock"), 0666u);
    EXPECT_EQ(static_cast<unsigned>(fs::status(base + "/roots").permissions()), 0755u);
    ASSERT_EQ(::chown(base.c_str(), 47112, 47112), 0);
    ASSERT_EQ(::seteuid(47112), 0);
  }
  EXPECT_EQ(rights_of("/own/m.sock"), 0600u);
  EXPECT_EQ(static_cast<unsigned>(fs::status(base + "/own").permissions()), 0700u);
  EXPECT_EQ(::seteuid(::getuid()), 0);
}

TEST_F(PlaceTest, OpeningLeavesTheRightsOfLaterFilesAlone) {
  const mode_t before = ::umask(0027);
  ListenSocket place;
  EXPECT_TRUE(place.open(base + "/monitor.sock", why, taken)) << why;
  EXPECT_EQ(::umask(before), mode_t{0027});
}

TEST_F(PlaceTest, APathMayHave107Bytes) {
  const auto path_of = [&](std::size_t bytes) {
    return base + "/" + std::string(bytes - base.size() - 1, 'x');
  };
  ListenSocket place;
  EXPECT_TRUE(place.open(path_of(107), why, taken)) << why;
  EXPECT_NE(refused(path_of(108)).find("at most 107 bytes"), std::string::npos) << why;
}

TEST_F(PlaceTest, APlaceThatCannotBeIsNotTaken) {
  taken = true;
  EXPECT_FALSE(refused("relative.sock").empty());
  EXPECT_FALSE(taken) << "nobody is there to be used";
}

// The folder of rules 3 and 4 of paths.h. A user who may write there could take the socket's place.
TEST_F(PlaceTest, AUsersOwnFolderThatOthersMayUseOrALinkIsRefused) {
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(base.c_str(), 47112, 47112), 0);
    ASSERT_EQ(::seteuid(47112), 0);
  }
  ::setenv("XDG_RUNTIME_DIR", base.c_str(), 1);
  const std::string folder = base + "/switchyard";
  fs::create_directory(folder);
  for (const mode_t mode : {0701, 0710, 0755}) {
    ::chmod(folder.c_str(), mode);
    EXPECT_NE(refused(folder + "/monitor.sock").find("only you can use"), std::string::npos)
        << mode << why;
  }
  fs::remove(folder);
  fs::create_directory(base + "/elsewhere");
  ::chmod((base + "/elsewhere").c_str(), 0700);
  fs::create_directory_symlink(base + "/elsewhere", folder);
  EXPECT_NE(refused(folder + "/monitor.sock").find("is not a directory"), std::string::npos) << why;
  fs::remove(folder);
  ListenSocket place;
  EXPECT_TRUE(place.open(folder + "/monitor.sock", why, taken)) << why;
  ::unsetenv("XDG_RUNTIME_DIR");
  EXPECT_EQ(::seteuid(::getuid()), 0);
}

TEST_F(PlaceTest, TheSocketGoesWithTheMonitor) {
  {
    ListenSocket place;
    ASSERT_TRUE(place.open(base + "/monitor.sock", why, taken)) << why;
  }
  EXPECT_FALSE(fs::exists(base + "/monitor.sock"));
}

TEST_F(PlaceTest, ALeftOverSocketIsReplaced) {
  {
    ListenSocket place;
    ASSERT_TRUE(place.open(base + "/monitor.sock", why, taken));
    fs::copy(base + "/monitor.sock.lock", base + "/copy");
    fs::create_symlink("nowhere", base + "/kept");
  }
  // As a killed monitor leaves it.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (base + "/monitor.sock").copy(address.sun_path, sizeof(address.sun_path) - 1);
  const Fd left(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(left.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ListenSocket place;
  EXPECT_TRUE(place.open(base + "/monitor.sock", why, taken)) << why;
  EXPECT_TRUE(fs::is_socket(base + "/monitor.sock"));
}

// As systemd has it.
Fd listener_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd.get(), 1), 0);
  return fd;
}

std::vector<Fd> one(Fd fd) {
  std::vector<Fd> out;
  out.push_back(std::move(fd));
  return out;
}

TEST_F(PlaceTest, ASocketThatWasPassedIsTakenAndStays) {
  const Fd systemd = listener_at(base + "/monitor.sock");
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat((base + "/monitor.sock").c_str(), &before), 0);
  {
    ListenSocket place;
    auto passed = one(Fd(::fcntl(systemd.get(), F_DUPFD_CLOEXEC, 3)));
    ASSERT_TRUE(place.open(base + "/monitor.sock", why, taken, std::move(passed))) << why;
    EXPECT_TRUE(place.was_passed());
    ListenSocket second;
    EXPECT_FALSE(second.open(base + "/monitor.sock", why, taken));
    EXPECT_TRUE(taken);
  }
  ASSERT_EQ(::stat((base + "/monitor.sock").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(PlaceTest, ToItsPeersAPassedSocketIsOurs) {
  const std::string path = base + "/monitor.sock";
  const Fd systemd = listener_at(path);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::listen(systemd.get(), 4));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto peer_of_a_client = [&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const Fd client(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    EXPECT_EQ(::getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes), 0);
    return peer.pid;
  };
  EXPECT_EQ(peer_of_a_client(), child);
  ListenSocket place;
  auto passed = one(Fd(::fcntl(systemd.get(), F_DUPFD_CLOEXEC, 3)));
  ASSERT_TRUE(place.open(path, why, taken, std::move(passed))) << why;
  EXPECT_EQ(peer_of_a_client(), ::getpid());
}

TEST_F(PlaceTest, APassedSocketOfAnotherPlaceIsRefused) {
  ListenSocket place;
  EXPECT_FALSE(place.open(base + "/monitor.sock", why, taken, one(listener_at(base + "/other"))));
  EXPECT_NE(why.find("no socket that listens on " + base + "/monitor.sock"), std::string::npos);
  EXPECT_TRUE(fs::exists(base + "/other"));
}

TEST_F(PlaceTest, OfSeveralPassedSocketsTheOneOfThePlaceIsTaken) {
  std::vector<Fd> passed;
  for (const char* name : {"/other", "/monitor.sock", "/third"}) {
    passed.push_back(listener_at(base + name));
  }
  const int wanted = passed[1].get();
  ListenSocket place;
  ASSERT_TRUE(place.open(base + "/monitor.sock", why, taken, std::move(passed))) << why;
  EXPECT_EQ(Fd(place.release_listener()).get(), wanted);
}

TEST_F(PlaceTest, ASocketThatSystemdListensOnIsNotReplaced) {
  const Fd systemd = listener_at(base + "/monitor.sock");
  EXPECT_NE(refused(base + "/monitor.sock").find("listens on"), std::string::npos) << why;
  EXPECT_TRUE(taken);
  EXPECT_TRUE(fs::is_socket(base + "/monitor.sock"));
}

TEST_F(PlaceTest, AFileThatIsNoSocketIsLetBe) {
  const std::string file = base + "/model.pt";
  std::ofstream(file) << "precious";
  EXPECT_NE(refused(file).find("is no socket"), std::string::npos) << why;
  std::string contents;
  std::ifstream(file) >> contents;
  EXPECT_EQ(contents, "precious");
}

TEST_F(PlaceTest, ASecondMonitorIsToldThatThePlaceIsTaken) {
  ListenSocket first;
  ASSERT_TRUE(first.open(base + "/monitor.sock", why, taken));
  ListenSocket second;
  EXPECT_FALSE(second.open(base + "/monitor.sock", why, taken));
  EXPECT_TRUE(taken);
  EXPECT_TRUE(fs::is_socket(base + "/monitor.sock")) << "the first one keeps its socket";
}

TEST_F(PlaceTest, ADirectoryThatOthersMayChangeIsRefused) {
  fs::create_directory(base + "/open");
  ::chmod((base + "/open").c_str(), 0777);
  EXPECT_NE(refused(base + "/open/monitor.sock").find("changed by others"), std::string::npos);
  ::chmod((base + "/open").c_str(), 01777);
  ListenSocket place;
  EXPECT_TRUE(place.open(base + "/open/monitor.sock", why, taken)) << "like /tmp itself: " << why;
}

TEST_F(PlaceTest, AFileInTheWayIsRefused) {
  std::ofstream(base + "/file") << "x";
  EXPECT_NE(refused(base + "/file/monitor.sock").find("not a directory"), std::string::npos);
}

TEST_F(PlaceTest, APathThatCanNotBeASocketIsRefused) {
  EXPECT_FALSE(refused("relative.sock").empty());
  EXPECT_FALSE(refused("").empty());
  EXPECT_FALSE(refused(base + "/" + std::string(120, 'x')).empty());
  EXPECT_FALSE(refused(base + "/not/there/monitor.sock").empty());
}

TEST_F(PlaceTest, ALockFileThatIsALinkIsNotFollowed) {
  std::ofstream(base + "/precious") << "x";
  fs::create_symlink(base + "/precious", base + "/monitor.sock.lock");
  EXPECT_FALSE(refused(base + "/monitor.sock").empty());
}

// Only where root names a place below another user's folder.
TEST_F(PlaceTest, AFolderThatAnotherUserCanExchangeIsRefusedBeforeAnythingIsMadeThere) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  constexpr uid_t kOther = 47112;
  fs::create_directory(base + "/roots");
  fs::create_directory(base + "/theirs");
  fs::create_directory(base + "/theirs/roots");
  ASSERT_EQ(::chown((base + "/theirs").c_str(), kOther, kOther), 0);
  fs::create_symlink(base + "/roots", base + "/theirs/link");
  fs::create_symlink(base + "/roots", base + "/link");
  ASSERT_EQ(::lchown((base + "/link").c_str(), kOther, kOther), 0);
  for (const char* folder : {"/theirs", "/theirs/roots", "/theirs/link", "/theirs/new", "/link"}) {
    EXPECT_NE(refused(base + folder + "/monitor.sock").find("can be changed by others"),
              std::string::npos)
        << folder << ": " << why;
    EXPECT_NE(why.find(std::to_string(kOther)), std::string::npos) << why;
  }
  EXPECT_TRUE(fs::is_empty(base + "/roots"));
  EXPECT_FALSE(fs::exists(base + "/theirs/new"));
  // A link of root's is what root chose.
  fs::create_symlink(base + "/roots", base + "/own");
  ListenSocket place;
  EXPECT_TRUE(place.open(base + "/own/monitor.sock", why, taken)) << why;
}

TEST_F(PlaceTest, AFifoInTheLocksPlaceIsRefusedAndStopsNobody) {
  ASSERT_EQ(::mkfifo((base + "/monitor.sock.lock").c_str(), 0666), 0);
  EXPECT_NE(refused(base + "/monitor.sock").find("is no file of yours"), std::string::npos) << why;
}

// The holder's answer to the next one that claims the GPU, as the server gives it.
void answer_claim(const Fd& claim, std::string_view text) {
  pollfd poll_for{claim.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&poll_for, 1, test::kPatienceMs), 1);
  const Fd caller(::accept(claim.get(), nullptr, nullptr));
  ASSERT_GT(::send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
}

int exit_code_of(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

std::string unique_uuid() { return "GPU-test-" + std::to_string(::getpid()); }

TEST(Claims, TheSecondClaimNamesTheFirst) {
  std::string why;
  const std::string uuid = unique_uuid();
  const auto first = claim_gpus({uuid}, why);
  ASSERT_EQ(first.size(), 1u) << why;
  const pid_t child = ::fork();
  if (child == 0) {
    std::string child_why;
    const bool refused = claim_gpus({"GPU-other-" + uuid, uuid}, child_why).empty();
    const bool named = child_why.find("pid " + std::to_string(::getppid())) != std::string::npos &&
                       child_why.find("socket /here") != std::string::npos;
    ::_exit(refused && named ? 0 : 1);
  }
  answer_claim(first[0], "socket /here");
  EXPECT_EQ(exit_code_of(child), 0);
}

TEST(Claims, WhatAHolderAnswersReachesNoTerminal) {
  std::string why;
  const std::string uuid = unique_uuid();
  const auto first = claim_gpus({uuid}, why);
  ASSERT_EQ(first.size(), 1u) << why;
  const pid_t child = ::fork();
  if (child == 0) {
    std::string said;
    claim_gpus({uuid}, said);
    ::_exit(said.find("a?[31mb~?") != std::string::npos ? 0 : 1);
  }
  answer_claim(first[0], "a\x1b[31mb~\x7f");
  EXPECT_EQ(exit_code_of(child), 0);
}

TEST(Claims, AClaimEndsWithItsHolder) {
  std::string why;
  ASSERT_EQ(claim_gpus({unique_uuid()}, why).size(), 1u);
  EXPECT_EQ(claim_gpus({unique_uuid()}, why).size(), 1u) << why;
}

// Any user can take the name of a GPU.
TEST(Claims, AnotherUsersClaimDoesNotKeepRootsMonitorFromStarting) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  std::string why;
  const std::string uuid = unique_uuid();
  ASSERT_EQ(::seteuid(47112), 0);  // the kernel keeps who listens
  const auto squatted = claim_gpus({uuid}, why);
  EXPECT_EQ(::seteuid(0), 0);
  ASSERT_EQ(squatted.size(), 1u) << why;
  const auto both = claim_gpus({uuid, uuid + "-free"}, why);
  ASSERT_EQ(both.size(), 2u) << why;
  EXPECT_FALSE(both[0]) << "the name is the other user's";
  EXPECT_TRUE(both[1]);
  ASSERT_EQ(::seteuid(47111), 0);
  EXPECT_TRUE(claim_gpus({uuid}, why).empty());
  EXPECT_EQ(::seteuid(0), 0);
  EXPECT_NE(why.find("switchyardd --system"), std::string::npos) << why;
  EXPECT_NE(why.find("47112"), std::string::npos) << why;
}

TEST(Claims, RootsClaimIsWhatAUserIsToldToUse) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  std::string why;
  const std::string uuid = unique_uuid();
  const auto roots = claim_gpus({uuid}, why);
  ASSERT_EQ(::seteuid(47111), 0);
  EXPECT_TRUE(claim_gpus({uuid}, why).empty());
  EXPECT_EQ(::seteuid(0), 0);
  EXPECT_NE(why.find("use that one"), std::string::npos) << why;
}

// With as many waiting as its holder lets wait, nobody can ask who that is.
TEST(Claims, OneThatCannotBeAskedDoesNotKeepRootsMonitorFromStarting) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  const std::string uuid = unique_uuid();
  const std::string name = "switchyard-gpu-" + uuid;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  ASSERT_EQ(::seteuid(47112), 0);
  const Fd squatter(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool listens = ::bind(squatter.get(), at, length) == 0 && ::listen(squatter.get(), 0) == 0;
  std::vector<Fd> waiting;
  bool full = false;
  while (listens && !full && waiting.size() < 16) {
    waiting.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    full = ::connect(waiting.back().get(), at, length) != 0;
  }
  EXPECT_EQ(::seteuid(0), 0);
  ASSERT_TRUE(full);
  std::string why;
  EXPECT_EQ(claim_gpus({uuid}, why).size(), 1u) << why;
  ASSERT_EQ(::seteuid(47111), 0);
  EXPECT_TRUE(claim_gpus({uuid}, why).empty());
  EXPECT_EQ(::seteuid(0), 0);
  EXPECT_NE(why.find("a process that does not answer"), std::string::npos) << why;
}

TEST(Claims, ANameThatNobodyListensOnIsNoClaim) {
  const std::string name = "switchyard-gpu-" + unique_uuid();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const Fd squatter(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(squatter.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  std::string why;
  EXPECT_EQ(claim_gpus({unique_uuid()}, why).size(), 1u) << why;
}

TEST(Processes, TheOwnerIsTheUserThatActsWhateverTheProcessHides) {
  EXPECT_EQ(process_owner(::getpid()), ::geteuid());
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play another user";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool hidden = ::setresuid(47112, 47112, 47112) == 0 && ::prctl(PR_SET_DUMPABLE, 0) == 0;
    ::_exit(::write(ready[1], &hidden, 1) == 1 && ::pause() == 0 ? 0 : 1);
  }
  bool hidden = false;
  ASSERT_EQ(::read(ready[0], &hidden, 1), 1);
  EXPECT_TRUE(hidden);
  EXPECT_EQ(process_owner(child), 47112u);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : ready) ::close(end);
}

TEST_F(PlaceTest, AFileThatSomethingElseHasLockedIsLetBe) {
  const std::string file = base + "/device";
  std::ofstream(file) << "x";
  std::vector<Fd> first, second;
  ASSERT_TRUE(lock_devices({file, base + "/none"}, first, why)) << why;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(lock_holder(first[0].get()), ::getpid());
  EXPECT_TRUE(lock_devices({file}, second, why)) << "this test is no monitor: " << why;
  EXPECT_TRUE(second.empty());
  first.clear();
  EXPECT_TRUE(lock_devices({file}, second, why));
  EXPECT_EQ(second.size(), 1u);
}

TEST_F(PlaceTest, ALockIsThatOfItsOwnFile) {
  std::ofstream(base + "/locked") << "x";
  std::ofstream(base + "/free") << "x";
  std::vector<Fd> locks;
  ASSERT_TRUE(lock_devices({base + "/locked"}, locks, why)) << why;
  const Fd other(::open((base + "/free").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(lock_holder(other.get()), std::nullopt);
}

// Root's monitor starts beside a lock of a user's monitor, and not beside one of root's.
TEST_F(PlaceTest, AFileThatAMonitorHasLockedIsRefusedUnlessItIsAUsersAndWeAreRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  const std::string file = base + "/device";
  std::ofstream(file) << "x";
  fs::permissions(base, fs::perms::all);
  for (const uid_t uid : {0, 47112}) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const Fd locked(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
      const bool holds = ::setresuid(uid, uid, uid) == 0 &&
                         ::prctl(PR_SET_NAME, "switchyardd") == 0 &&
                         ::flock(locked.get(), LOCK_EX | LOCK_NB) == 0;
      ::_exit(::write(ready[1], &holds, 1) == 1 && ::pause() == 0 ? 0 : 1);
    }
    bool holds = false;
    EXPECT_EQ(::read(ready[0], &holds, 1), 1);
    EXPECT_TRUE(holds);
    std::vector<Fd> locks;
    EXPECT_EQ(lock_devices({file}, locks, why), uid != 0) << uid;
    EXPECT_TRUE(locks.empty());
    EXPECT_EQ(why.find("pid " + std::to_string(child)) != std::string::npos, uid == 0) << why;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const int end : ready) ::close(end);
  }
}

}  // namespace
}  // namespace switchyard::monitor
