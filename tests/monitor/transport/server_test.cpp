// The order in which the loop serves connections. It is turned by hand: how many handlers run
// before somebody is served does not depend on the machine's speed.
#include "monitor/transport/server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "monitor/history/store.h"
#include "monitor/transport/listen_socket.h"
#include "monitor/transport/takeover.h"
#include "switchyard/claim.h"
#include "tests/monitor/fake_gpus.h"
#include "tests/monitor/transport/wire_client.h"

namespace switchyard::monitor::test {
namespace {

constexpr int kAttackers = 300;  // connections

// Another user's connections, each with a request.
class Attacker {
 public:
  explicit Attacker(const std::string& socket) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) attack(socket, ends[1]);
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1) << "it has asked";
    ::close(ends[0]);
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;
  ~Attacker() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

 private:
  [[noreturn]] static void attack(const std::string& socket, int done) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    std::vector<std::unique_ptr<WireClient>> all;
    for (int i = 0; i < kAttackers; ++i) {
      all.push_back(std::make_unique<WireClient>(socket));
      all.back()->send(make_frame(wire::kJson, 1, std::string(R"({"op":"ps"})")));
    }
    if (::write(done, "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }

  pid_t child_;
};

TEST(Server, AConnectionIsServedBeforeWhatAnotherUserAskedOnEarlierOnes) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user can be played by root alone";
  char folder[] = "/tmp/switchyard-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  Settings settings;
  settings.socket = std::string(folder) + "/monitor.sock";
  ListenSocket place;
  std::string why;
  bool taken = false;
  ASSERT_TRUE(place.open(settings.socket, why, taken)) << why;
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  const Attacker attacker(settings.socket);
  FakeGpus gpus;
  Monitor monitor(gpus, settings, steady_now(), std::mt19937_64(1));
  asio::io_context io(1);
  Server server(io, monitor);
  server.listen(place.release_listener());
  WireClient mine(settings.socket);
  mine.send(make_frame(wire::kJson, 1, std::string(R"({"op":"ps"})")));
  int handlers = 0;
  while (!mine.has_answer() && handlers < 10 * kAttackers) {
    ASSERT_EQ(io.run_one_for(std::chrono::milliseconds(kPatienceMs)), 1u);
    ++handlers;
  }
  EXPECT_LT(handlers, kAttackers / 3) << handlers;
  std::filesystem::remove_all(folder);
}

// A loop that is turned by hand.
struct Loop {
  FakeGpus gpus;
  Monitor monitor{gpus, {}, steady_now(), std::mt19937_64(1)};
  asio::io_context io{1};
  Server server{io, monitor};
};

TEST(Server, AClaimIsAnsweredAgainOnceThereAreDescriptors) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer looks at objects through a pipe, for which there is no descriptor";
#endif
  Loop loop;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "switchyard-test-claim-" + std::to_string(::getpid());
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 2);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* at = reinterpret_cast<const sockaddr*>(&address);
  const int claim = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ASSERT_EQ(::bind(claim, at, length), 0);
  ASSERT_EQ(::listen(claim, 16), 0);
  loop.server.answer_claims({claim}, "socket /here");
  const Fd asks(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(asks.get(), at, length), 0);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const std::size_t handled = loop.io.run_one_for(std::chrono::milliseconds(kPatienceMs));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_EQ(handled, 1u);
  pollfd answer{asks.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&answer, 1, 0), 0) << "no descriptor was left to accept it";
  for (int left = 100; left > 0 && ::poll(&answer, 1, 0) == 0; --left) {
    loop.io.run_one_for(std::chrono::milliseconds(kPatienceMs / 10));
  }
  char text[32] = "";
  EXPECT_EQ(::recv(asks.get(), text, sizeof(text), MSG_DONTWAIT), 12);
}

// To look at all jobs every two milliseconds would take the CPU for as long as a job stays.
TEST(Server, ACommandThatWaitsLooksTheMoreSeldomTheMoreClientsThereAre) {
  Loop loop;
  std::string why;
  for (int i = 0; i < 160; ++i) {
    Client* client = loop.monitor.join({3'000'000 + i, 1000}, hello_of({}), steady_now(), why);
    ASSERT_NE(client, nullptr) << why;
    client->page->drop_sent();
  }
  constexpr int kTries = 5;
  int tries = 0;
  const Time begun = steady_now();
  loop.server.until([&] { return ++tries == kTries; });
  while (tries < kTries) {
    ASSERT_EQ(loop.io.run_one_for(std::chrono::milliseconds(kPatienceMs)), 1u);
  }
  EXPECT_GE(steady_now() - begun, kTries * look_pause(160));
  EXPECT_EQ(look_pause(160), std::chrono::milliseconds(22));
}

// A disk on which each write stands still until it is released.
struct StalledDisk {
  std::mutex mutex;
  std::condition_variable changed;
  bool stands = false, released = false;
  double written = 0;  // seconds of the GPU that was looked at
  std::string events;  // as JSON texts

  struct Writes final : history::Backend {
    explicit Writes(StalledDisk& of) : disk(of) {}
    bool write(const history::Rows& rows, history::Moment, std::string&) override {
      std::unique_lock lock(disk.mutex);
      disk.stands = true;
      disk.changed.wait(lock, [this] { return disk.released; });
      for (const auto& [key, seconds] : rows.observed) disk.written += seconds;
      for (const history::EventRow& row : rows.events) disk.events += row.json;
      return true;
    }
    bool tidy(history::Moment) override { return false; }
    std::string report(const history::Query&) override { return "{}"; }
    StalledDisk& disk;
  };
};

// Only the ticks release the disk: one that waited for it would never come. By the loop's timer so
// many of them take ten seconds.
TEST(Server, ADiskThatStandsStillForTenSecondsDelaysNoTick) {
  constexpr unsigned kTicks = 50;
  StalledDisk disk;
  Loop loop;
  auto store = std::make_unique<history::Store>(
      [&disk](std::string&) { return std::make_unique<StalledDisk::Writes>(disk); },
      history::Store::Bounds{.pause = std::chrono::milliseconds(1)});
  loop.monitor.records_to(*store);
  loop.server.listens_to(*store);
  std::string why;
  Client* client = loop.monitor.join({3'000'000, 1000}, hello_of({}), steady_now(), why);
  ASSERT_NE(client, nullptr) << why;
  const FakeShim shim(client->page->memfd());
  std::uint64_t first = 0;  // heartbeat while the disk stands still
  std::function<void()> watch = [&] {
    const std::lock_guard lock(disk.mutex);
    if (disk.stands && first == 0) first = shim.heartbeat();
    if (first != 0 && shim.heartbeat() - first >= kTicks) return loop.server.stop();
    loop.server.after(std::chrono::milliseconds(10), watch);
  };
  watch();
  loop.server.run();
  EXPECT_EQ(store->lost(), 0u);
  {
    const std::lock_guard lock(disk.mutex);
    EXPECT_EQ(disk.written, 0);
    disk.released = true;
  }
  disk.changed.notify_all();
  store.reset();  // it writes what is left
  EXPECT_GT(disk.written, 0);
}

// The disk is quick, and the next tick is far.
TEST(Server, AnEventAfterTheLastTickIsInTheHistoryToo) {
  StalledDisk disk;
  disk.released = true;
  Loop loop;
  auto store = std::make_unique<history::Store>(
      [&disk](std::string&) { return std::make_unique<StalledDisk::Writes>(disk); });
  loop.monitor.records_to(*store);
  loop.server.after(std::chrono::milliseconds(1), [&] {
    loop.monitor.journal().take(event_of(EventKind::kIsBack, 1, steady_now()));
    loop.server.stop();
  });
  loop.server.run();
  store.reset();  // it writes what is left
  EXPECT_NE(disk.events.find("\"is back\""), std::string::npos) << disk.events;
}

TEST(Server, ASignalEndsIt) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Loop loop;
    bool in_vain = false;
    loop.server.after(std::chrono::milliseconds(1), [&] { ::raise(signal); });
    loop.server.after(std::chrono::milliseconds(kPatienceMs / 2), [&] {
      in_vain = true;
      loop.server.stop();
    });
    loop.server.run();
    EXPECT_FALSE(in_vain) << signal;
  }
}

TEST(Server, ARequestThatComesWithAnotherIsServedOnce) {
  Loop loop;
  std::string served;
  const auto serve_all = [&] {
    loop.io.restart();
    while (loop.io.run_one() != 0) continue;
    return std::exchange(served, "");
  };
  loop.server.in_turn(1, [&] {
    served += 'a';
    loop.server.in_turn(1, [&] { served += 'b'; });
  });
  EXPECT_EQ(serve_all(), "ab") << "nobody else waited";
  loop.server.in_turn(1, [&] {
    served += 'a';
    loop.server.in_turn(1, [&] { served += 'c'; });
    loop.server.in_turn(2, [&] { served += 'd'; });
  });
  loop.server.in_turn(2, [&] { served += 'b'; });
  EXPECT_EQ(serve_all(), "abcd");
}

TEST(Server, MoreAnswersThanOneRoundTriesAreAllGiven) {
  Loop loop;
  constexpr int kAnswers = 200;
  int given = 0;
  for (int i = 0; i < kAnswers; ++i) {
    loop.server.until([&given, tries = 0]() mutable {
      if (++tries < 3) return false;
      ++given;
      return true;
    });
  }
  const Time until = steady_now() + std::chrono::milliseconds(kPatienceMs / 2);
  while (given < kAnswers) {
    ASSERT_EQ(loop.io.run_one_until(std::chrono::steady_clock::time_point(until)), 1u) << given;
  }
}

// No tick comes here: the loop looks again when the monitor has said so.
TEST(Server, APauseEndsBetweenTwoTicks) {
  Loop loop;
  std::string why;
  Client* client = loop.monitor.join({3'000'000, 1000}, hello_of({}), steady_now(), why);
  ASSERT_NE(client, nullptr) << why;
  client->page->drop_sent();
  Job& job = *loop.monitor.registry().find(client->job);
  const Time end = steady_now() + std::chrono::milliseconds(50);
  loop.monitor.pause(job, {.until = end}, steady_now());
  loop.server.look_soon();
  while (job.pause->on) ASSERT_EQ(loop.io.run_one(), 1u);
  EXPECT_GE(steady_now(), end);
}

// A claim of the loop's, and who asks there.
class AskedClaim {
 public:
  explicit AskedClaim(const std::string& uuid)
      : length_(claim_address(uuid + std::to_string(::getpid()), address_)),
        listens_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    EXPECT_EQ(::bind(listens_.get(), at(), length_), 0);
    EXPECT_EQ(::listen(listens_.get(), 16), 0);
  }
  int release() { return listens_.release(); }
  void ask(const std::string& words) {
    asks_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(asks_.get(), at(), length_), 0);
    ::send(asks_.get(), words.data(), words.size(), MSG_NOSIGNAL);
  }
  // All that it is told until it is hung up on.
  std::string answer(Loop& loop) const {
    std::string out;
    char text[64];
    for (const Time until = steady_now() + std::chrono::milliseconds(kPatienceMs / 2);;) {
      if (steady_now() > until) return out + " and nothing more";
      const ssize_t got = ::recv(asks_.get(), text, sizeof(text), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return out;
      if (got > 0) out.append(text, static_cast<std::size_t>(got));
      if (got < 0) loop.io.run_one_for(std::chrono::milliseconds(20));
    }
  }

 private:
  sockaddr* at() { return reinterpret_cast<sockaddr*>(&address_); }
  sockaddr_un address_{};
  socklen_t length_;
  Fd listens_, asks_;
};

TEST(Server, EachClaimIsAnswered) {
  Loop loop;
  AskedClaim first("GPU-a-"), second("GPU-b-");
  loop.server.answer_claims({first.release(), second.release()}, "socket /here");
  for (AskedClaim* claim : {&second, &first, &second}) {
    claim->ask("");
    EXPECT_EQ(claim->answer(loop), "socket /here");
  }
}

TEST(Server, OnlyRootsMonitorTakesOverAndOnlyFromAUsersOwn) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to play two users";
  const struct {
    uid_t asks, ours;
    const char* words;
    bool hands_over;
  } rows[] = {{0, 47112, kTakeOver, true},
              {0, 47112, "take over", false},
              {47113, 47112, kTakeOver, false},
              {47112, 47112, kTakeOver, false},
              {0, 0, kTakeOver, false}};
  for (const auto& row : rows) {
    Loop loop;
    AskedClaim claim("GPU-a-");
    loop.server.answer_claims({claim.release()}, "socket /here\n");
    ASSERT_EQ(::seteuid(row.asks), 0);
    claim.ask(row.words);
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(::seteuid(row.ours), 0);
    const std::string answer = claim.answer(loop);
    ASSERT_EQ(::seteuid(0), 0);
    const std::string more = row.hands_over ? kHandsOver : "";
    EXPECT_EQ(answer, "socket /here\n" + more) << &row - rows;
    EXPECT_EQ(loop.monitor.done(steady_now()), row.hands_over) << &row - rows;
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
