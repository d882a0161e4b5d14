// Clients that send what is slow to close, or take more than is theirs, behind the real socket.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "switchyard/descriptors.h"
#include "switchyard/handover.h"
#include "switchyard/status.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/running.h"
#include "tests/monitor/transport/wire_client.h"

namespace switchyard::monitor::test {
namespace {

using nlohmann::json;

std::size_t entries(const char* folder, const std::string& wanted = "") {
  std::size_t count = 0;
  for (const auto& each : std::filesystem::directory_iterator(folder)) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(each.path(), gone);
    count += wanted.empty() || target.string().find(wanted) != std::string::npos;
  }
  return count;
}

// TCP sockets that linger: whoever closes the last descriptor of one waits until the other end has
// read all of it, and that never reads.
class Lingering {
 public:
  Lingering() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(address_);
    EXPECT_EQ(::bind(listener_.get(), name(), bytes), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    EXPECT_EQ(::getsockname(listener_.get(), name(), &bytes), 0);
  }
  // The other ends go, and whoever waits goes on.
  ~Lingering() {
    const linger at_once{1, 0};
    for (const Fd& each : ends_) {
      ::setsockopt(each.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
  }
  // Sends one along with `bytes`. A process of its own does, for one that ends closes without
  // waiting: the last descriptor is the one that is sent.
  void send(int socket, const std::string& bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Fd one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ::connect(one.get(), name(), sizeof(address_));
      const std::string much(1 << 16, 'x');
      while (::send(one.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
      }
      const linger long_time{1, 600};
      ::setsockopt(one.get(), SOL_SOCKET, SO_LINGER, &long_time, sizeof(long_time));
      const int fd = one.get();
      const ssize_t sent =
          send_with(socket, bytes.data(), bytes.size(), &fd, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
      ::_exit(sent > 0 ? 0 : 1);
    }
    ends_.emplace_back(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }

 private:
  sockaddr* name() { return reinterpret_cast<sockaddr*>(&address_); }

  Fd listener_;
  sockaddr_in address_{};
  std::vector<Fd> ends_;
};

bool answers(const Running& monitor) {
  return WireClient(monitor.socket()).ask({{"op", "version"}})["ok"] == true;
}

void open_to_all(const Running& monitor) {
  const std::filesystem::path socket = monitor.socket();
  std::filesystem::permissions(socket.parent_path(), std::filesystem::perms::all);
  std::filesystem::permissions(socket, std::filesystem::perms::all);
}

TEST(Hostile, AClientThatMakesItsBellsBlockDoesNotStopTheMonitor) {
  Running monitor;
  WireClient hostile(monitor.socket());
  ASSERT_TRUE(hostile.join(hello_of({.name = "x", .swappable = "yes"}))) << hostile.refused();
  hostile.shim().swappable(kGiB);
  const std::uint64_t most = 0xfffffffffffffffe;
  for (const int at : {1, 2}) {
    const int fd = hostile.fds()[at].get();
    ASSERT_EQ(::fcntl(fd, F_SETFL, 0), 0);
    // An eventfd would be full.
    struct stat info {};
    ASSERT_EQ(::fstat(fd, &info), 0);
    if (S_ISSOCK(info.st_mode)) continue;
    ASSERT_EQ(::write(fd, &most, sizeof(most)), ssize_t{sizeof(most)});
  }
  // Each of them rings the hostile one's doorbell.
  for (int i = 0; i < 200; ++i) {
    WireClient tool(monitor.socket());
    tool.send(make_frame(wire::kJson, 1, json{{"op", "swap-out"}, {"target", "x"}}.dump()));
    ASSERT_EQ(WireClient(monitor.socket()).ask({{"op", "swap-in"}, {"target", "x"}})["ok"], true);
  }
}

TEST(Hostile, ADescriptorThatIsSlowToCloseStopsNobody) {
  Running monitor;
  Lingering lingering;
  const std::string version = make_frame(wire::kJson, 1, std::string_view(R"({"op":"version"})"));
  WireClient tool(monitor.socket());
  lingering.send(tool.fd(), version);
  EXPECT_TRUE(answers(monitor)) << "before Hello, where none is taken";
  WireClient misplaced(monitor.socket());
  ASSERT_TRUE(misplaced.join(hello_of({})));
  lingering.send(misplaced.fd(), make_frame(wire::kCharge, 1, wire::Charge{}));
  EXPECT_TRUE(answers(monitor)) << "out of place";
  WireClient sharer(monitor.socket());
  ASSERT_TRUE(sharer.join(hello_of({})));
  lingering.send(sharer.fd(), make_frame(wire::kShare, 1, wire::Share{{{1, 2}}, 0, 1}));
  EXPECT_TRUE(answers(monitor)) << "no memory";
  lingering.send(sharer.fds()[2].get(), "x");
  EXPECT_TRUE(answers(monitor)) << "in a wake";
  WireClient stays(monitor.socket());
  ASSERT_TRUE(stays.join(hello_of({.name = "stays", .swappable = "yes"})));
  stays.shim().swappable(kGiB);
  auto leaver = std::make_unique<WireClient>(monitor.socket());
  // An answer is awaited, so what follows is not read.
  ASSERT_TRUE(leaver->send(
      make_frame(wire::kJson, 1, json{{"op", "swap-out"}, {"target", "stays"}}.dump())));
  lingering.send(leaver->fd(), "y");
  leaver.reset();
  EXPECT_TRUE(answers(monitor)) << "in a socket that is closed before it is read";
}

TEST(Hostile, DescriptorsThatAreSlowToCloseTakeOneThread) {
  Running monitor;
  Lingering lingering;
  ASSERT_TRUE(answers(monitor));
  const std::size_t before = entries("/proc/self/task");
  WireClient tool(monitor.socket());
  for (std::uint32_t id = 1; id <= 20; ++id) {
    const std::string frame = make_frame(wire::kJson, id, std::string_view(R"({"op":"version"})"));
    lingering.send(tool.fd(), frame);
    ASSERT_TRUE(tool.receive());
  }
  EXPECT_LE(entries("/proc/self/task"), before + 1);
}

TEST(Hostile, ConnectionsOfOneProcessLeaveOneWatch) {
  Running monitor;
  for (int i = 0; i < 50; ++i) {
    WireClient client(monitor.socket());
    ASSERT_TRUE(client.join(hello_of({})));
    if (i % 2 == 0) client.ask({{"op", "create"}});
  }
  WireClient tool(monitor.socket());
  for (int i = 0; i < 50; ++i) ASSERT_EQ(tool.ask({{"op", "create"}})["ok"], true);
  EXPECT_TRUE(eventually([&] { return tool.ask({{"op", "status"}})["gpus"][0]["clients"] == 0; }));
  EXPECT_LE(entries("/proc/self/fd", "pidfd"), 1u);
}

// The memory leaves all the time, so the answer would come much later.
TEST(Hostile, AToolThatHangsUpWhileItsAnswerWaitsLeavesNoSocket) {
  Running monitor;
  WireClient client(monitor.socket());
  ASSERT_TRUE(client.join(hello_of({.name = "x", .swappable = "yes"})));
  ASSERT_TRUE(client.charge(kMiB)) << "the monitor has closed what it sent with its welcome";
  std::uint64_t rest = 64 * kGiB;
  client.shim().swappable(rest);
  const std::size_t before = entries("/proc/self/fd", "socket:");
  {
    WireClient tool(monitor.socket());
    tool.send(make_frame(wire::kJson, 1, json{{"op", "swap-out"}, {"target", "x"}}.dump()));
    EXPECT_TRUE(eventually([&] { return client.shim().told_to_leave(); }));
  }
  EXPECT_TRUE(eventually([&] {
    client.shim().leave(rest -= kMiB);
    return entries("/proc/self/fd", "socket:") <= before;
  }));
  EXPECT_TRUE(client.shim().told_to_leave()) << "most of it is still there";
}

// It would have a short slice for ever.
TEST(Hostile, WhoCannotBeWelcomedIsWatchedAllTheSame) {
  Running monitor;
  const std::string hello = make_frame(wire::kHello, 1, hello_of({}, 1, wire::kRejoin));
  const pid_t child = ::fork();
  if (child == 0) {
    WireClient deaf(monitor.socket());
    ::shutdown(deaf.fd(), SHUT_RD);
    deaf.send(hello);
    for (;;) ::pause();
  }
  EXPECT_TRUE(eventually([] { return entries("/proc/self/fd", "pidfd") == 1; }));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(eventually([] { return entries("/proc/self/fd", "pidfd") == 0; }));
}

// As a user who is neither root nor the monitor's owner, in a process of its own. Its answer is the
// number of the first thing that was wrong; 0: nothing.
int as_another_user(const std::function<int()>& what) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(99);
    ::_exit(what());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

// A process of a user at its limit closes its connection and lives on. Its slice could be short for
// ever, and as long as it may be, no other job gets a short one.
TEST(Hostile, WhoseWatchHasNoSeatIsTakenForDeadSoon) {
  Settings settings;
  settings.owner = 1;
  settings.users.descriptors = 171;  // four connections of a user, and no descriptor besides
  Running monitor(settings);
  open_to_all(monitor);
  const auto plays_low = [&](const std::function<void()>& beside) {
    WireClient low(monitor.socket());
    if (!low.join(hello_of({.priority = "low"}))) return false;
    low.shim().open_context();
    low.shim().ready_gate();
    return eventually([&] {
      if (beside) beside();
      low.shim().launch();
      low.shim().apply_slices();
      const std::uint32_t us = low.lane().compute_slice_applied_us;
      return us != 0 && us < abi::kShortBelowUs;
    });
  };
  EXPECT_EQ(as_another_user([&] {
              WireClient high(monitor.socket()), third(monitor.socket()), fourth(monitor.socket());
              if (!high.join(hello_of({.priority = "high"}))) return 1;
              high.shim().open_context();
              high.shim().ready_gate();
              const auto work = [&] {
                high.shim().launch();
                high.shim().apply_slices();
              };
              // It says that it was there: a listing on a loaded machine may come too late for that.
              int says[2];
              if (::pipe2(says, O_CLOEXEC) != 0) return 6;
              const pid_t lives_on = ::fork();
              if (lives_on == 0) {
                // Nothing reads its exit status before it is killed.
                if (!plays_low(nullptr)) ::_exit(1);
                if (::write(says[1], "", 1) != 1) ::_exit(1);
                for (;;) ::pause();
              }
              const bool was_there = eventually([&] {
                work();
                pollfd said{says[0], POLLIN, 0};
                return ::poll(&said, 1, 0) == 1;
              });
              const bool has_left = eventually([&] {
                work();
                return third.ask({{"op", "ps"}})["jobs"].size() == 1;
              });
              const bool next = plays_low(work);
              const bool lived = ::waitpid(lives_on, nullptr, WNOHANG) == 0;
              ::kill(lives_on, SIGKILL);
              ::waitpid(lives_on, nullptr, 0);
              return !was_there ? 2 : !has_left ? 3 : !lived ? 4 : !next ? 5 : 0;
            }),
            0);
}

TEST(Hostile, WhatWasHandedOverTheMonitorKeepsNoLonger) {
  Running monitor;
  WireClient donor(monitor.socket()), recipient(monitor.socket());
  ASSERT_TRUE(donor.join(hello_of({.name = "donor"})));
  ASSERT_TRUE(recipient.join(hello_of({.name = "recipient"})));
  const wire::Key key = handover::key_of(7);
  {
    const Fd memory(::memfd_create("handed-over", MFD_CLOEXEC));
    const auto taken = donor.share(wire::kShare, {key, 0, 2}, {memory.get(), memory.get()});
    ASSERT_TRUE(taken);
    ASSERT_EQ(taken->verdict, wire::kTaken);
  }
  EXPECT_EQ(entries("/proc/self/fd", "handed-over"), 2u) << "the monitor's";
  const auto opened = recipient.share(wire::kOpenShared, {key, 0, 0});
  ASSERT_TRUE(opened);
  ASSERT_EQ(opened->count, 2u);
  EXPECT_TRUE(eventually([] { return entries("/proc/self/fd", "handed-over") == 2; }))
      << "the recipient's alone";
}

TEST(Hostile, WhatAClientHasSharedIsNoLongerOnItsWayThere) {
  Settings settings;
  settings.owner = 1;
  settings.users.descriptors = 512;  // 96 of a user: two connections, and one frame with many
  Running monitor(settings);
  open_to_all(monitor);
  EXPECT_EQ(as_another_user([&] {
              WireClient first(monitor.socket()), second(monitor.socket());
              const Fd memory(::memfd_create("shared", MFD_CLOEXEC));
              const std::vector<int> pieces(wire::kMostDescriptors, memory.get());
              std::uint64_t number = 0;
              for (WireClient* each : {&first, &second}) {
                if (!each->join(hello_of({}))) return 1;
                const wire::Share asked{{{++number, 2}}, 0, wire::kMostDescriptors};
                const bool taken = eventually([&] {
                  const auto answer = each->share(wire::kShare, asked, pieces);
                  return answer && answer->verdict == wire::kTaken;
                });
                if (!taken) return 2;
              }
              return 0;
            }),
            0);
}

TEST(Hostile, AUserWithTooManyConnectionsIsToldSoAndOthersAreServed) {
  Settings settings;
  settings.owner = 1;
  settings.users.connections = 5;
  Running monitor(settings);
  open_to_all(monitor);
  const auto fill = [&] {
    std::vector<std::unique_ptr<WireClient>> all;
    const auto connect = [&] { all.push_back(std::make_unique<WireClient>(monitor.socket())); };
    for (int i = 0; i < 5; ++i) {
      connect();
      if (all.back()->ask({{"op", "version"}})["ok"] != true) return 1;
    }
    connect();
    const json refused = all.back()->ask({{"op", "version"}});
    if (refused.value("code", 0) != kRefusedByPolicy) return 2;
    if (refused["error"].get<std::string>().find("--connections-per-user") == std::string::npos) {
      return 3;
    }
    connect();
    if (all.back()->join(hello_of({}))) return 4;
    if (all.back()->refused().find("as one user may have") == std::string::npos) return 5;
    // Many that say nothing.
    for (int i = 0; i < 50; ++i) connect();
    return 0;
  };
  EXPECT_EQ(as_another_user(fill), 0);
  EXPECT_TRUE(::geteuid() != 0 || answers(monitor));
  EXPECT_TRUE(eventually([&] { return as_another_user(fill) == 0; })) << "all was given back";
}

TEST(Hostile, AUserThatIsRefusedTimeAndAgainIsLoggedOnce) {
  const LogLines log;
  Settings settings;
  settings.owner = 1;
  settings.users.connections = 1;
  Running monitor(settings);
  open_to_all(monitor);
  EXPECT_EQ(as_another_user([&] {
              WireClient first(monitor.socket());
              if (first.ask({{"op", "version"}})["ok"] != true) return 1;
              for (int i = 0; i < 5; ++i) {
                WireClient more(monitor.socket());
                if (more.ask({{"op", "version"}})["ok"] != false) return 2;
              }
              return 0;
            }),
            0);
  monitor.stop();
  EXPECT_EQ(log.count("is refused: "), 1u);
}

}  // namespace
}  // namespace switchyard::monitor::test
