// What the client makes of a monitor that answers, refuses, stays silent, or speaks nonsense.
#include "tools/base/monitor_client.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "fake_monitor.h"
#include "switchyard/fd.h"
#include "switchyard/paths.h"
#include "switchyard/wire.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

Result<json> ask(const FakeMonitor& monitor, const json& request,
                 MonitorClient::Milliseconds limit = MonitorClient::kAnswerLimit) {
  auto client = MonitorClient::connect(monitor.socket());
  if (!client) return client.error();
  return client->ask(request, limit);
}

// The header of a request, changed by `change`, and `body` behind it.
template <typename Change>
FakeMonitor answering_with(Change change, std::string body) {
  return FakeMonitor::raw([change, body](const std::string& request) {
    wire::FrameHeader header{};
    std::memcpy(&header, request.data(), sizeof(header));
    header.length = static_cast<std::uint32_t>(body.size());
    change(header);
    return std::string(reinterpret_cast<char*>(&header), sizeof(header)) + body;
  });
}

TEST(MonitorClient, AnAnswerComesBackWhole) {
  auto monitor = FakeMonitor::answering([](const json& request) {
    return json{{"ok", true}, {"echo", request}, {"long", std::string(300000, 'x')}};
  });
  const auto reply = ask(monitor, {{"op", "version"}});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ((*reply)["echo"]["op"], "version");
  EXPECT_EQ((*reply)["long"].get<std::string>().size(), 300000U);
}

// A user without a monitor, and a program of theirs that listens where an observer does. Ends with
// 0 when listings find it and nothing else does, else with the step that failed.
[[noreturn]] void look_for_an_observer(const std::string& runtime) {
  if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(2);
  ::unsetenv("SWITCHYARD_SOCKET");
  ::setenv("XDG_RUNTIME_DIR", runtime.c_str(), 1);
  if (MonitorClient::connect_reader()) ::_exit(3);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = runtime + "/switchyard/observe.sock";
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  if (::mkdir((runtime + "/switchyard").c_str(), 0700) != 0) ::_exit(4);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener, 8) != 0) {
    ::_exit(5);
  }
  const auto found = MonitorClient::connect_reader();
  if (!found || found->socket() != path) ::_exit(6);
  ::_exit(MonitorClient::connect_any() ? 7 : 0);
}

TEST(MonitorClient, ListingsFindAnObserverAndNothingElseDoes) {
  if (::access(kSystemSocket, F_OK) == 0) GTEST_SKIP() << "root's monitor serves everybody here";
  char runtime[] = "/tmp/switchyard-observer-XXXXXX";
  ASSERT_NE(::mkdtemp(runtime), nullptr);
  ASSERT_TRUE(::geteuid() != 0 || ::chown(runtime, 65534, 65534) == 0);
  EXPECT_EXIT(look_for_an_observer(runtime), ::testing::ExitedWithCode(0), "");
  std::filesystem::remove_all(runtime);
}

// Long before the limit, which is an hour here.
TEST(MonitorClient, AMonitorWhoseProcessIsStoppedIsNotWaitedFor) {
  const std::string path = "/tmp/switchyard-stopped-" + std::to_string(::getpid());
  const pid_t child = ::fork();
  if (child == 0) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        ::listen(fd, 4) != 0) {
      ::_exit(1);
    }
    ::prctl(PR_SET_NAME, "switchyardd");
    for (;;) ::raise(SIGSTOP);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  ::setenv("SWITCHYARD_SOCKET", path.c_str(), 1);
  auto client = MonitorClient::connect(path);
  ::unsetenv("SWITCHYARD_SOCKET");
  if (client) {
    const auto reply = client->ask({{"op", "version"}}, std::chrono::hours(1));
    EXPECT_FALSE(reply);
    EXPECT_EQ(reply.error().code, kTimedOut);
    EXPECT_NE(reply.error().text.find("does not answer"), std::string::npos) << reply.error().text;
  } else {
    ADD_FAILURE() << client.error().text;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::unlink(path.c_str());
}

// As while systemd, which sleeps for seconds, starts the monitor of a socket of its own.
TEST(MonitorClient, ASocketOfAnotherProcessThatSleepsIsWaitedFor) {
  auto monitor = FakeMonitor::answering([](const json&) {
    std::this_thread::sleep_for(MonitorClient::kSilentLimit + std::chrono::milliseconds(700));
    return json{{"ok", true}};
  });
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "systemd");
    const bool ours = ::listen(monitor.listener(), 4) == 0;
    for (;;) ours ? ::raise(SIGSTOP) : ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status));
  const auto reply = ask(monitor, {{"op", "version"}});
  EXPECT_TRUE(reply) << reply.error().text;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(MonitorClient, SeveralRequestsGoOverOneConnection) {
  int asked = 0;
  auto monitor = FakeMonitor::answering([&asked](const json&) {
    return json{{"ok", true}, {"number", ++asked}};
  });
  auto client = MonitorClient::connect(monitor.socket());
  ASSERT_TRUE(client);
  for (int i = 1; i <= 3; ++i) EXPECT_EQ((*client->ask({{"op", "ps"}}))["number"], i);
}

TEST(MonitorClient, ARefusalHasTheMonitorsCodeAndText) {
  auto monitor = FakeMonitor::answering([](const json&) {
    return json{{"ok", false}, {"code", 6}, {"error", "train holds 3 GiB"}};
  });
  const auto reply = ask(monitor, {{"op", "create"}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, kRefusedByPolicy);
  EXPECT_EQ(reply.error().text, "train holds 3 GiB");
}

TEST(MonitorClient, ARefusalWithoutReasonIsStillAnError) {
  auto monitor = FakeMonitor::answering([](const json&) { return json::object(); });
  const auto reply = ask(monitor, {{"op", "ps"}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, kFailure);
}

TEST(MonitorClient, SilenceEndsWithATimeOut) {
  auto monitor = FakeMonitor::raw([](const std::string&) { return std::string(); });
  const auto reply = ask(monitor, {{"op", "ps"}}, MonitorClient::Milliseconds(100));
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, kTimedOut);
  EXPECT_NE(reply.error().text.find(monitor.socket()), std::string::npos);
}

TEST(MonitorClient, AnAnswerCutInTheMiddleIsUnreachable) {
  auto monitor = answering_with([](wire::FrameHeader& header) { header.length += 10; }, "{}");
  const auto reply = ask(monitor, {{"op", "ps"}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code, kMonitorUnreachable);
}

TEST(MonitorClient, ForeignMagicKindIdAndLengthAreRefused) {
  const auto refused = [](auto change) {
    auto monitor = answering_with(change, "{\"ok\":true}");
    const auto reply = ask(monitor, {{"op", "ps"}});
    return !reply && reply.error().code == kFailure;
  };
  EXPECT_TRUE(refused([](wire::FrameHeader& header) { header.magic ^= 1; }));
  EXPECT_TRUE(refused([](wire::FrameHeader& header) { header.kind = wire::kCharged; }));
  EXPECT_TRUE(refused([](wire::FrameHeader& header) { header.id += 1; }));
  EXPECT_TRUE(refused([](wire::FrameHeader& header) { header.length = 1u << 30; }));
}

TEST(MonitorClient, ATooLargeAnswerIsSaidToBeThat) {
  auto monitor =
      answering_with([](wire::FrameHeader& header) { header.length = 1u << 30; }, "{\"ok\":true}");
  const auto reply = ask(monitor, {{"op", "ps"}});
  ASSERT_FALSE(reply);
  EXPECT_NE(reply.error().text.find("1073741824 bytes"), std::string::npos) << reply.error().text;
}

TEST(MonitorClient, ALongListingOfAnOlderMonitorIsTaken) {
  auto monitor = FakeMonitor::answering([](const json&) {
    return json{{"ok", true}, {"jobs", json::array({std::string(3 * wire::kMaxFrame, 'x')})}};
  });
  const auto reply = ask(monitor, {{"op", "ps"}});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ((*reply)["jobs"].size(), 1u);
}

TEST(MonitorClient, PartsOfAListingBecomeOne) {
  auto monitor = FakeMonitor::answering([](const json& request) {
    const int after = request["after"];
    json part = {{"ok", true}, {"jobs", json::array({after + 1, after + 2})}};
    if (after < 4) part["more_after"] = after + 2;
    if (after == 4) part["outside"] = json::array({7});
    return part;
  });
  const auto reply = ask(monitor, {{"op", "ps"}});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ((*reply)["jobs"], json::array({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ((*reply)["outside"], json::array({7}));
}

TEST(MonitorClient, PartsThatDoNotAdvanceEnd) {
  auto monitor = FakeMonitor::answering([](const json&) {
    return json{{"ok", true}, {"jobs", json::array({1})}, {"more_after", 3}};
  });
  const auto reply = ask(monitor, {{"op", "ps"}});
  ASSERT_TRUE(reply) << reply.error().text;
  EXPECT_EQ((*reply)["jobs"].size(), 2u);
}

TEST(MonitorClient, AnAnswerThatIsNoObjectIsRefused) {
  for (const char* body : {"", "[]", "{", "\"ok\"", "\xff\xfe"}) {
    auto monitor = answering_with([](wire::FrameHeader&) {}, body);
    const auto reply = ask(monitor, {{"op", "ps"}});
    ASSERT_FALSE(reply) << body;
    EXPECT_EQ(reply.error().code, kFailure) << body;
  }
}

TEST(MonitorClient, NobodyListeningIsUnreachableAndNamesTheSocket) {
  const auto client = MonitorClient::connect("/tmp/switchyard-test-nowhere/m.sock");
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, kMonitorUnreachable);
  EXPECT_NE(client.error().text.find("/tmp/switchyard-test-nowhere/m.sock"), std::string::npos);
}

TEST(MonitorClient, APathTooLongForASocketIsAUsageError) {
  const auto client = MonitorClient::connect("/" + std::string(200, 'x'));
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, kUsage);
  ::setenv("SWITCHYARD_SOCKET", ("/" + std::string(200, 'x')).c_str(), 1);
  const auto named = MonitorClient::connect_any();
  ::unsetenv("SWITCHYARD_SOCKET");
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, kUsage);
  EXPECT_NE(named.error().text.find("the path in SWITCHYARD_SOCKET is too long"), std::string::npos)
      << named.error().text;
}

// Listens in a folder of its own, as the user `uid`. pre: this is root.
TEST(MonitorClient, AFullBacklogIsWaitedForAndNoLongerThanTheLimit) {
  char folder[] = "/tmp/switchyard-backlog-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/monitor.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  const auto first = MonitorClient::connect(path);
  ASSERT_TRUE(first) << "one may wait";
  const auto late = MonitorClient::connect(path, MonitorClient::Milliseconds(50));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, kTimedOut);
  std::thread accepts([&] {
    ::usleep(50'000);
    const Fd one(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const Fd two(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  });
  const auto second = MonitorClient::connect(path, std::chrono::seconds(60));
  EXPECT_TRUE(second);
  accepts.join();
  std::filesystem::remove_all(folder);
}

class ListenerOf {
 public:
  explicit ListenerOf(uid_t uid) {
    char name[] = "/tmp/switchyard-test-XXXXXX";
    folder_ = ::mkdtemp(name);
    ::chmod(folder_.c_str(), 0777);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket().copy(address.sun_path, sizeof(address.sun_path) - 1);
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    EXPECT_EQ(::seteuid(uid), 0);  // the kernel keeps who listens
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(fd_, 4), 0);
    EXPECT_EQ(::seteuid(0), 0);
  }
  ~ListenerOf() {
    ::close(fd_);
    std::filesystem::remove_all(folder_);
  }
  std::string socket() const { return folder_ + "/m.sock"; }

 private:
  std::string folder_;
  int fd_ = -1;
};

TEST(MonitorClient, AStrangersMonitorIsRefusedWithItsUserAndUsedOnlyWhenNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to listen as another user";
  const ListenerOf stranger(47111);
  const auto refused = MonitorClient::connect(stranger.socket());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, kNoPermission);
  EXPECT_NE(refused.error().text.find("47111"), std::string::npos) << refused.error().text;
  EXPECT_NE(refused.error().text.find(stranger.socket()), std::string::npos);
  ::setenv("SWITCHYARD_SOCKET", stranger.socket().c_str(), 1);
  const auto named = MonitorClient::connect(stranger.socket());
  ::unsetenv("SWITCHYARD_SOCKET");
  EXPECT_TRUE(named);
}

TEST(MonitorClient, AStrangerAtTheSecondPlaceIsWorthMoreWordsThanNobodyAtTheFirst) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user can be played by root alone";
  char folder[] = "/tmp/switchyard-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  ASSERT_EQ(::chmod(folder, 0777), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string strangers = std::string(folder) + "/stranger.sock";
  std::strncpy(address.sun_path, strangers.c_str(), sizeof(address.sun_path) - 1);
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::seteuid(65534), 0);
  const int bound =
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  const int listening = ::listen(listener.get(), 5);
  ASSERT_EQ(::seteuid(0), 0);
  ASSERT_EQ(bound, 0);
  ASSERT_EQ(listening, 0);
  const std::string nobodys = std::string(folder) + "/nobody.sock";
  EXPECT_EQ(MonitorClient::connect_any({nobodys, strangers}).error().code, kNoPermission);
  EXPECT_EQ(MonitorClient::connect_any({strangers, nobodys}).error().code, kNoPermission);
  EXPECT_EQ(MonitorClient::connect_any({nobodys, nobodys}).error().code, kMonitorUnreachable);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace switchyard::tools
