// The whole monitor behind its real socket, against clients that speak the raw wire.
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <random>
#include <thread>

#include "switchyard/status.h"
#include "tests/monitor/log_lines.h"
#include "tests/monitor/running.h"
#include "tests/monitor/transport/wire_client.h"

namespace switchyard::monitor::test {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

void ring(const WireClient& client) {
  const std::uint64_t one = 1;
  ::send(client.fds()[2].get(), &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL);
}

// A monitor, a job "x" with 1 GiB that can leave, and a tool.
struct Swapping {
  Running monitor;
  WireClient shim{monitor.socket()};
  WireClient tool{monitor.socket()};
  explicit Swapping(SessionLimits limits = {}) : monitor({}, limits) {
    EXPECT_TRUE(shim.join(hello_of({.name = "x", .swappable = "yes"}))) << shim.refused();
    shim.shim().swappable(kGiB);
  }
  void await_order() {
    EXPECT_TRUE(eventually([&] { return shim.shim().told_to_leave(); }));
  }
  json tell(const char* op) { return tool.ask({{"op", op}, {"target", "x"}}); }
};

TEST(Socket, JoinChargeAndLeave) {
  Running monitor;
  WireClient shim(monitor.socket());
  ASSERT_TRUE(shim.join(hello_of({.name = "x", .memory = "1GiB"}))) << shim.refused();
  EXPECT_EQ(shim.shim().page().head.magic, abi::kMagic);
  EXPECT_EQ(shim.lane().quota_bytes, kGiB);
  const auto charged = shim.charge(10 * kMiB);
  ASSERT_TRUE(charged);
  EXPECT_EQ(charged->verdict, wire::kGranted);
  EXPECT_GE(shim.lane().credit_bytes, 10 * kMiB);
  EXPECT_EQ(shim.charge(0, 0, wire::kRefresh)->verdict, wire::kGranted);
  WireClient tool(monitor.socket());
  const json jobs = tool.ask({{"op", "ps"}})["jobs"];
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0]["processes"][0]["pid"], ::getpid()) << "the kernel says who it is";
  shim.close();
  EXPECT_TRUE(eventually([&] { return tool.ask({{"op", "ps"}})["jobs"].empty(); }));
}

TEST(Socket, APauseIsAnsweredWhenTheGpuStandsStill) {
  Running monitor;
  WireClient shim(monitor.socket());
  ASSERT_TRUE(shim.join(hello_of({.name = "x", .limit = "50%"}))) << shim.refused();
  shim.shim().open_context();
  shim.shim().ready_gate();
  shim.shim().submit();  // never done: it waits behind the gate
  WireClient tool(monitor.socket());
  // Its ceiling arms it. Once it has numbered its work for two seconds, that tells of all.
  EXPECT_TRUE(eventually([&] {
    shim.shim().launch();
    const json paused = tool.ask({{"op", "pause"}, {"target", "x"}});
    EXPECT_NE(shim.shim().gate().closed & abi::kClosedByPause, 0u);
    EXPECT_EQ(tool.ask({{"op", "resume"}, {"target", "x"}})["ok"], true);
    EXPECT_EQ(shim.shim().gate().closed & abi::kClosedByPause, 0u);
    return paused["drained"] == true;
  }));
}

TEST(Socket, ASwapIsAnsweredWhenTheMemoryHasLeftAndWhenItIsBack) {
  Swapping it;
  std::thread mover([&] {
    it.await_order();
    it.shim.shim().leave(kGiB / 2);
    it.shim.shim().be_absent();
    EXPECT_TRUE(eventually([&] { return !it.shim.shim().told_to_leave(); }));
    it.shim.shim().be_resident();
  });
  EXPECT_EQ(it.tell("swap-out")["residency"], "swapped");
  EXPECT_EQ(it.tell("swap-in")["ok"], true);
  mover.join();
  EXPECT_TRUE(eventually([&] {
    return it.tool.ask({{"op", "ps"}})["jobs"][0]["residency"] == "resident";
  }));
}

TEST(Socket, AnAnswerMayTakeLongerThanAFrame) {
  SessionLimits limits;
  limits.frame = std::chrono::seconds(1);
  Swapping it(limits);
  std::thread mover([&] {
    it.await_order();
    it.shim.shim().leave(kGiB / 2);
    std::this_thread::sleep_for(2 * limits.frame);
    it.shim.shim().be_absent();
  });
  const json answer = it.tell("swap-out");
  mover.join();
  ASSERT_TRUE(answer.is_object()) << "the connection was cut";
  EXPECT_EQ(answer["residency"], "swapped");
}

// It would end after a minute without a job, and close all connections.
Settings persistent() {
  Settings settings;
  settings.persist = true;
  return settings;
}

TEST(Socket, AFrameThatIsBegunAndNeverEndedClosesTheConnection) {
  SessionLimits limits;
  limits.frame = std::chrono::milliseconds(50);
  Running monitor(persistent(), limits);
  WireClient slow(monitor.socket());
  slow.send(make_frame(wire::kJson, 1, std::string_view(R"({"op":"version"})")).substr(0, 20));
  EXPECT_TRUE(slow.is_closed());
}

// Between two requests a tool may rest for long, but not within one.
TEST(Socket, SoDoesOneOfAToolThatWasAnsweredBefore) {
  SessionLimits limits;
  limits.frame = std::chrono::seconds(2);
  Running monitor(persistent(), limits);
  WireClient tool(monitor.socket());
  ASSERT_TRUE(tool.ask({{"op", "version"}}).is_object());
  tool.send(make_frame(wire::kJson, 1, std::string_view(R"({"op":"version"})")).substr(0, 20));
  EXPECT_TRUE(tool.is_closed());
}

TEST(Socket, SoDoesOneOfAClient) {
  SessionLimits limits;
  limits.frame = std::chrono::seconds(1);
  Running monitor({}, limits);
  WireClient client(monitor.socket());
  ASSERT_TRUE(client.join(hello_of({.name = "a"})));
  client.send(make_frame(wire::kCharge, 1, wire::Charge{0, 0, 1}).substr(0, 20));
  EXPECT_TRUE(client.is_closed());
}

TEST(Socket, SoDoesAConnectionOnWhichNothingIsSaid) {
  SessionLimits limits;
  limits.frame = milliseconds(50);
  Running monitor(persistent(), limits);
  EXPECT_TRUE(WireClient(monitor.socket()).is_closed());
}

TEST(Socket, BetweenTwoRequestsAToolRestsForLongerThanAFrameMayTake) {
  SessionLimits limits;
  limits.frame = seconds(1);
  Running monitor({}, limits);
  WireClient tool(monitor.socket());
  ASSERT_TRUE(tool.ask({{"op", "version"}}).is_object());
  std::this_thread::sleep_for(2 * limits.frame);
  EXPECT_TRUE(tool.ask({{"op", "version"}}).is_object());
}

TEST(Socket, AToolThatAsksNothingMoreIsHungUpOn) {
  SessionLimits limits;
  limits.idle_tool = milliseconds(50);
  Running monitor(persistent(), limits);
  WireClient tool(monitor.socket());
  ASSERT_TRUE(tool.ask({{"op", "version"}}).is_object());
  EXPECT_TRUE(tool.is_closed());
}

TEST(Socket, AClientMayBeSilentForEver) {
  SessionLimits limits;
  limits.frame = limits.idle_tool = seconds(1);
  Running monitor({}, limits);
  WireClient client(monitor.socket());
  ASSERT_TRUE(client.join(hello_of({})));
  std::this_thread::sleep_for(2 * limits.frame);
  EXPECT_TRUE(client.charge(kMiB));
}

TEST(Socket, AToolThatTakesNoAnswersIsHungUpOn) {
  SessionLimits limits;
  limits.frame = seconds(1);
  Running monitor(persistent(), limits);
  WireClient tool(monitor.socket());
  const std::string frame = make_frame(wire::kJson, 1, std::string_view(R"({"op":"status"})"));
  EXPECT_TRUE(eventually([&] {
    while (::send(tool.fd(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) continue;
    return errno == EPIPE;
  }));
}

TEST(Socket, AWaitingAnswerOutlivesItsJob) {
  Swapping it;
  std::thread dying([&] {
    it.await_order();
    it.shim.close();
  });
  EXPECT_EQ(it.tell("swap-out")["code"], kNoSuchJobOrGpu);
  dying.join();
}

TEST(Socket, TheDescriptorsAreWhatTheyShouldBe) {
  Running monitor;
  WireClient shim(monitor.socket());
  ASSERT_TRUE(shim.join(hello_of({})));
  ASSERT_EQ(shim.fds().size(), 3u);
  EXPECT_EQ(::fcntl(shim.fds()[0].get(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  for (const int at : {1, 2}) {
    EXPECT_NE(::fcntl(shim.fds()[at].get(), F_GETFL) & O_NONBLOCK, 0);
  }
}

TEST(Socket, ARefusalIsTextAndTheEnd) {
  Running monitor;
  WireClient shim(monitor.socket());
  EXPECT_FALSE(shim.join(hello_of({.priority = "urgent"})));
  EXPECT_NE(shim.refused().find("'urgent'"), std::string::npos);
  EXPECT_TRUE(shim.is_closed());
}

TEST(Socket, AWelcomeSaysWhetherItsSettingsAreIgnored) {
  Running monitor;
  std::vector<std::unique_ptr<WireClient>> all;
  for (const char* share : {"2", "2", "3"}) {
    WireClient& client = *all.emplace_back(std::make_unique<WireClient>(monitor.socket()));
    client.send(make_frame(wire::kHello, 1, hello_of({.job = "j", .share = share})));
    const auto frame = client.receive();
    ASSERT_TRUE(frame && frame->payload.size() == sizeof(wire::Welcome));
    wire::Welcome welcome{};
    std::memcpy(&welcome, frame->payload.data(), sizeof(welcome));
    EXPECT_EQ((welcome.features & wire::kOtherSettings) != 0, share == std::string("3"));
    EXPECT_NE(welcome.features & wire::kSharesMemory, 0u);
  }
}

TEST(Socket, AnotherLayoutIsRefusedByName) {
  Running monitor;
  WireClient shim(monitor.socket());
  wire::Hello hello = hello_of({});
  hello.layout_version = abi::kLayoutVersion + 1;
  EXPECT_FALSE(shim.join(hello));
  const std::string named = "layout " + std::to_string(hello.layout_version);
  EXPECT_NE(shim.refused().find(named), std::string::npos);
}

// Its library asks every two seconds.
TEST(Socket, AProcessWithAnotherLayoutIsLoggedOnceAndListedAsWhatItIs) {
  const LogLines log;
  Running monitor;
  monitor.stop();
  monitor.uses[::getpid()] = kMiB;
  monitor.start();
  wire::Hello hello = hello_of({});
  hello.layout_version = abi::kLayoutVersion - 1;
  for (int i = 0; i < 5; ++i) {
    WireClient shim(monitor.socket());
    EXPECT_FALSE(shim.join(hello));
  }
  WireClient tool(monitor.socket());
  const json outside = tool.ask({{"op", "ps"}})["outside"];
  const json events = tool.ask({{"op", "events"}})["events"];
  monitor.stop();
  EXPECT_EQ(log.count("is refused"), 1u);
  ASSERT_EQ(events.size(), 2u) << "one after the monitor's beginning";
  EXPECT_EQ(events[1]["kind"], "process refused");
  EXPECT_EQ(events[1]["by_pid"], ::getpid());
  EXPECT_NE(events[1]["text"].get<std::string>().find(std::to_string(hello.layout_version)),
            std::string::npos);
  ASSERT_EQ(outside.size(), 1u);
  EXPECT_EQ(outside[0]["library_layout"], hello.layout_version);
  EXPECT_EQ(outside[0]["hint"].get<std::string>().rfind("old library", 0), 0u) << outside;
}

TEST(RefusedProcesses, AreForgottenAndAreFewOfEachUser) {
  RefusedProcesses refused;
  const Time begin = seconds(100);
  EXPECT_TRUE(refused.note({7, 1000}, "old", 6, begin));
  EXPECT_FALSE(refused.note({7, 1000}, "old", 6, begin + seconds(2)));
  EXPECT_TRUE(refused.note({7, 1000}, "another reason", 0, begin + seconds(4)));
  EXPECT_EQ(refused.layout_of(7, begin + seconds(4)), 0u);
  EXPECT_FALSE(refused.note({7, 1000}, "another reason", 6, begin + seconds(5)));
  EXPECT_EQ(refused.layout_of(7, begin + seconds(5)), 6u);
  const Time later = begin + seconds(5) + RefusedProcesses::kForgotten + milliseconds(1);
  EXPECT_EQ(refused.layout_of(7, later), 0u);
  EXPECT_TRUE(refused.note({7, 1000}, "another reason", 6, later)) << "it may be another process";
  std::size_t logged = 0;
  for (pid_t pid = 100; pid < 100 + 2 * static_cast<pid_t>(RefusedProcesses::kMostOfUser); ++pid) {
    logged += refused.note({pid, 2000}, "old", 6, later);
  }
  EXPECT_EQ(logged, RefusedProcesses::kMostOfUser);
  EXPECT_TRUE(refused.note({8, 3000}, "old", 6, later)) << "another user's";
}

TEST(Socket, MalformedAndMisplacedFramesCloseTheConnection) {
  Running monitor;
  const wire::FrameHeader huge{wire::kMagic, wire::kJson, 0x7fffffff, 1};
  const std::string bad[] = {
      std::string(64, 'x'),
      std::string(reinterpret_cast<const char*>(&huge), sizeof(huge)),
      make_frame(wire::kCharge, 1, wire::Charge{}),    // before Hello
      make_frame(wire::kWelcome, 1, wire::Welcome{}),  // the monitor's word
      make_frame(999, 1, "what"),
  };
  for (const std::string& bytes : bad) {
    WireClient client(monitor.socket());
    client.send(bytes);
    EXPECT_TRUE(client.is_closed());
  }
  WireClient twice(monitor.socket());
  ASSERT_TRUE(twice.join(hello_of({})));
  twice.send(make_frame(wire::kHello, 9, hello_of({})));
  EXPECT_TRUE(twice.is_closed()) << "one Hello per connection";
  WireClient tool_after_hello(monitor.socket());
  ASSERT_TRUE(tool_after_hello.join(hello_of({})));
  tool_after_hello.send(make_frame(wire::kJson, 9, "{}"));
  EXPECT_TRUE(tool_after_hello.is_closed());
  EXPECT_EQ(WireClient(monitor.socket()).ask({{"op", "version"}})["ok"], true) << "still alive";
}

TEST(Socket, DescriptorsOutOfPlaceCloseTheConnection) {
  Running monitor;
  const wire::Share share{{{1, 2}}, 0, 1};
  WireClient opens(monitor.socket());
  ASSERT_TRUE(opens.join(hello_of({})));
  opens.send(make_frame(wire::kOpenShared, 9, share), {STDERR_FILENO});
  EXPECT_TRUE(opens.is_closed());
  for (const std::string& frame : {make_frame(wire::kCharge, 9, wire::Charge{0, 0, 1}),
                                   make_frame(wire::kEndShare, 9, share)}) {
    WireClient none(monitor.socket());
    ASSERT_TRUE(none.join(hello_of({})));
    none.send(frame, {STDERR_FILENO});
    EXPECT_TRUE(none.is_closed());
  }
  WireClient late(monitor.socket());
  ASSERT_TRUE(late.join(hello_of({})));
  const std::string frame = make_frame(wire::kShare, 9, share);
  late.send(frame.substr(0, 20));
  ASSERT_TRUE(eventually([&] {
    int unread = 1;
    return ::ioctl(late.fd(), SIOCOUTQ, &unread) == 0 && unread == 0;
  }));
  late.send(frame.substr(20), {STDERR_FILENO});
  EXPECT_TRUE(late.is_closed()) << "they come with the first byte of their frame";
}

TEST(Socket, RandomBytesDoNotHurtTheMonitor) {
  Running monitor;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 random(seed);
    WireClient client(monitor.socket());
    if (seed % 2 == 0) client.join(hello_of({}));
    for (int i = 0; i < 5; ++i) {
      std::string bytes = make_frame(random() % 8, i, wire::Charge{0, 0, random()});
      if (random() % 3 == 0) bytes[random() % bytes.size()] ^= 0x40;
      if (!client.send(bytes)) break;
    }
  }
  EXPECT_EQ(WireClient(monitor.socket()).ask({{"op", "version"}})["ok"], true);
}

TEST(Socket, SeveralRequestsInOnePieceAreAnsweredInOrder) {
  Running monitor;
  WireClient tool(monitor.socket());
  std::string bytes;
  for (std::uint32_t id = 1; id <= 20; ++id) {
    bytes += make_frame(wire::kJson, id, std::string_view(R"({"op":"version"})"));
  }
  tool.send(bytes);
  for (std::uint32_t id = 1; id <= 20; ++id) {
    const auto frame = tool.receive();
    ASSERT_TRUE(frame);
    EXPECT_EQ(frame->id, id);
  }
}

TEST(Socket, AListingThatNoFrameTakesIsRefusedAndComesInParts) {
  Running monitor;
  WireClient tool(monitor.socket());
  constexpr int kJobs = 1000;
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_EQ(tool.ask({{"op", "create"}, {"cuda_visible_devices", "0"}})["ok"], true);
  }
  const json refused = tool.ask({{"op", "ps"}});
  EXPECT_EQ(refused["code"], kFailure);
  EXPECT_NE(refused["error"].get<std::string>().find("in parts"), std::string::npos) << refused;
  std::size_t jobs = 0;
  for (json part = {{"more_after", 0}}; part.contains("more_after");) {
    part = tool.ask({{"op", "ps"}, {"after", part["more_after"]}});
    ASSERT_EQ(part["ok"], true);
    jobs += part["jobs"].size();
  }
  EXPECT_EQ(jobs, std::size_t{kJobs});
}

TEST(Socket, ThreeHundredJoinsAtOnce) {
  Running monitor;
  std::vector<std::unique_ptr<WireClient>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<WireClient>(monitor.socket()));
    ASSERT_TRUE(clients.back()->send(
        make_frame(wire::kHello, 1, hello_of({.job = "j" + std::to_string(i % 10)}))));
  }
  int welcomed = 0;
  for (auto& client : clients) {
    const auto frame = client->receive();
    welcomed += frame && frame->kind == wire::kWelcome;
  }
  EXPECT_EQ(welcomed, 300);
  WireClient tool(monitor.socket());
  EXPECT_EQ(tool.ask({{"op", "ps"}})["jobs"].size(), 10u);
  EXPECT_EQ(tool.ask({{"op", "status"}})["gpus"][0]["clients"], 300);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return tool.ask({{"op", "ps"}})["jobs"].empty(); }));
}

TEST(Socket, ARestartedMonitorIsJoinedAgainWithWhatWasUsed) {
  Running monitor;
  auto before = std::make_unique<WireClient>(monitor.socket());
  ASSERT_TRUE(before->join(hello_of({.job = "j1", .name = "train", .memory = "2GiB"})));
  ASSERT_EQ(before->charge(kGiB)->verdict, wire::kGranted);
  ASSERT_TRUE(before->shim().allocate(kGiB));
  EXPECT_EQ(WireClient(monitor.socket())
                .ask({{"op", "set"}, {"target", "train"}, {"priority", "low"}})["ok"],
            true);
  monitor.stop();
  EXPECT_TRUE(before->is_closed());
  wire::Hello hello = hello_of({}, 1, wire::kRejoin);
  write_card_text(before->shim().card(), hello.card);
  hello.used_bytes[0] = kGiB;
  monitor.uses[::getpid()] = kGiB;
  monitor.start();
  WireClient after(monitor.socket());
  ASSERT_TRUE(after.join(hello)) << after.refused();
  const json job = WireClient(monitor.socket()).ask({{"op", "ps"}})["jobs"][0];
  EXPECT_EQ(job["job"], "j1");
  EXPECT_EQ(job["name"], "train");
  EXPECT_EQ(job["priority"], "low");
  EXPECT_EQ(job["gpus"][0]["memory_used_bytes"], kGiB);
  EXPECT_EQ(after.charge(kGiB)->verdict, wire::kGranted);
  ASSERT_TRUE(after.shim().allocate(kGiB));
  EXPECT_EQ(after.charge(kMiB)->verdict, wire::kOverQuota);
}

TEST(Socket, AWakeMakesTheMonitorLookAndTheDoorbellRings) {
  Running monitor;
  WireClient high(monitor.socket());
  WireClient low(monitor.socket());
  ASSERT_TRUE(high.join(hello_of({.priority = "high"})));
  ASSERT_TRUE(low.join(hello_of({.priority = "low"})));
  for (WireClient* each : {&high, &low}) {
    each->shim().open_context();
    each->shim().launch();
  }
  ring(high);
  pollfd doorbell{low.fds()[1].get(), POLLIN, 0};
  ASSERT_EQ(::poll(&doorbell, 1, kPatienceMs), 1);
  EXPECT_TRUE(eventually([&] { return low.lane().compute_slice_us == 20u; }));
  EXPECT_EQ(high.lane().compute_slice_us, 10'000u);
}

TEST(Socket, AClientThatRingsAllTheTimeDoesNotKeepOthersWaiting) {
  Running monitor;
  WireClient noisy(monitor.socket());
  ASSERT_TRUE(noisy.join(hello_of({})));
  std::atomic<bool> stop{false};
  std::thread ringer([&] {
    while (!stop) ring(noisy);
  });
  WireClient tool(monitor.socket());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tool.ask({{"op", "version"}})["ok"], true);
  stop = true;
  ringer.join();
}

TEST(Socket, SetIsSeenInThePageOfARunningClient) {
  Running monitor;
  WireClient a(monitor.socket());
  ASSERT_TRUE(a.join(hello_of({.name = "x", .memory = "1GiB"})));
  WireClient tool(monitor.socket());
  EXPECT_EQ(tool.ask({{"op", "set"}, {"target", "x"}, {"memory", "2GiB"}})["ok"], true);
  EXPECT_EQ(a.lane().quota_bytes, 2 * kGiB);
}

TEST(Socket, ACreatedJobGoesWithTheProcessThatAskedForIt) {
  Running monitor;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    WireClient tool(monitor.socket());
    const bool ok = tool.ask({{"op", "create"}, {"card", {{"name", "x"}}}})["ok"] == true;
    // Lives on, without its socket, until it is told to die; bounded all the same.
    tool.close();
    if (ok) ::sleep(kPatienceMs / 1000);
    ::_exit(0);
  }
  WireClient tool(monitor.socket());
  EXPECT_TRUE(eventually([&] { return tool.ask({{"op", "ps"}})["jobs"].size() == 1; }));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(eventually([&] { return tool.ask({{"op", "ps"}})["jobs"].empty(); }));
}

TEST(Socket, AKilledClientIsGoneEvenWhileAnotherProcessHoldsItsSocket) {
  Running monitor;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    WireClient shim(monitor.socket());
    shim.join(hello_of({.name = "x"}));
    const pid_t grandchild = ::fork();  // inherits the socket
    if (grandchild == 0) {
      ::sleep(kPatienceMs / 1000);
      ::_exit(0);
    }
    [[maybe_unused]] const ssize_t sent = ::write(pipe[1], &grandchild, sizeof(grandchild));
    ::sleep(kPatienceMs / 1000);
    ::_exit(0);
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(pipe[0], &grandchild, sizeof(grandchild)),
            static_cast<ssize_t>(sizeof(grandchild)));
  WireClient tool(monitor.socket());
  EXPECT_EQ(tool.ask({{"op", "ps"}})["jobs"].size(), 1u);
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(eventually([&] { return tool.ask({{"op", "ps"}})["jobs"].empty(); }));
  ::kill(grandchild, SIGKILL);
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST(Socket, TheMonitorEndsAfterItsLastJob) {
  Settings settings;
  settings.idle_exit = std::chrono::milliseconds(300);
  Running monitor(settings);
  {
    WireClient a(monitor.socket());
    ASSERT_TRUE(a.join(hello_of({})));
    EXPECT_FALSE(monitor.ended());
  }
  EXPECT_TRUE(eventually([&] { return monitor.ended(); }));
}

}  // namespace
}  // namespace switchyard::monitor::test
