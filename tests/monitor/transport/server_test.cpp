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

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "monitor/history/store.h"
#include "monitor/transport/listen_socket.h"
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

  struct Writes final : history::Backend {
    explicit Writes(StalledDisk& of) : disk(of) {}
    bool write(const history::Rows& rows, history::Moment, std::string&) override {
      std::unique_lock lock(disk.mutex);
      disk.stands = true;
      disk.changed.wait(lock, [this] { return disk.released; });
      for (const auto& [key, seconds] : rows.observed) disk.written += seconds;
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

}  // namespace
}  // namespace switchyard::monitor::test
