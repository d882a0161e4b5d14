// MPS: the control daemon, its server, and what clients see of them. This process is no client: it
// stands outside, and must feel none of it.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <thread>

#include "driver.h"
#include "mps_client.h"
#include "mps_daemon.h"

namespace conformance {
namespace {

constexpr char kOk[] = "CUDA_SUCCESS";
constexpr std::size_t kMuchMiB = 256;
constexpr std::uint64_t kSlack = 64 * kMiB;  // what others on the GPU take or give meanwhile

class Mps : public Gpu {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);  // of clients that have ended
    Gpu::SetUp();
    if (!context_) return;
    if (mps_control_program().empty()) GTEST_SKIP() << "no nvidia-cuda-mps-control here";
    CUuuid uuid{};
    ASSERT_CU(CU(cuDeviceGetUuid)(&uuid, device_));
    uuid_ = uuid_text(uuid);
    daemon_ = std::make_unique<MpsDaemon>(uuid_);
  }
  void TearDown() override {
    if (daemon_) daemon_->end();
    Gpu::TearDown();
  }

  void start() {
    const MpsDaemon::Answer said = daemon_->start();
    ASSERT_EQ(0, said.status);
    ASSERT_TRUE(eventually([&] { return daemon_->ask("get_server_list").status == 0; }));
    ASSERT_TRUE(eventually([&] { return daemon_->pid() > 0; }));
  }
  Client client(int shared = -1) const { return Client(daemon_->environment(), shared); }
  bool lists(pid_t server, const Client& client) const {
    const std::vector<pid_t> all = daemon_->clients(server);
    return std::find(all.begin(), all.end(), client.pid()) != all.end();
  }
  // This process computes the same as ever.
  void expect_nothing_outside() {
    const CUdeviceptr memory = alloc(4096);
    EXPECT_OK(launch(nullptr, "fill", memory, 7u, std::uint64_t{1024}));
    EXPECT_EQ(std::vector<std::uint32_t>(1024, 7), read(memory, 1024));
  }
  // A client that works, in whatever server.
  void expect_works(Client& client) {
    EXPECT_EQ(kOk, client.begin());
    EXPECT_EQ(kOk, client.ask("work"));
  }
  // A client that comes after a failure works, once the server has noticed that.
  void expect_the_next_works() {
    std::string said;
    EXPECT_TRUE(eventually([&] {
      Client next = client();
      said = next.begin();
      return said == kOk && (said = next.ask("work")) == kOk;
    })) << said;
  }
  // What the client's work ends with.
  static std::string work_until_it_fails(Client& client) {
    std::string said = kOk;
    eventually([&] { return (said = client.ask("work")) != kOk; }, 60);
    return said;
  }

  std::string uuid_;
  std::unique_ptr<MpsDaemon> daemon_;
};

TEST_F(Mps, ADaemonAnswersInAFolderOfItsOwnUntilItQuits) {
  EXPECT_NE(0, daemon_->ask("get_server_list").status) << "nobody listens yet";
  ASSERT_NO_FATAL_FAILURE(start());
  const MpsDaemon::Answer none = daemon_->ask("get_server_list");
  EXPECT_EQ("", none.text) << "no server before a client";
  EXPECT_EQ(std::vector<pid_t>{daemon_->pid()}, daemon_->programs());
  EXPECT_EQ(0, daemon_->ask("quit").status);
  EXPECT_TRUE(eventually([&] { return daemon_->programs().empty(); }));
  EXPECT_NE(0, daemon_->ask("get_server_list").status);
}

TEST_F(Mps, ASecondDaemonInAFolderIsRefused) {
  ASSERT_NO_FATAL_FAILURE(start());
  const pid_t first = daemon_->pid();
  EXPECT_NE(0, daemon_->start().status);
  EXPECT_EQ(0, daemon_->ask("get_server_list").status);
  EXPECT_EQ(std::vector<pid_t>{first}, daemon_->programs());
}

// A list of clients begins with a PID. The answer for a server that is not there has its number
// later.
TEST_F(Mps, ABadCommandIsAnsweredAndListsNoClient) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (const char* bad : {"get_client_list 1", "terminate_client 1 1", "no_such_command"}) {
    const MpsDaemon::Answer said = daemon_->ask(bad);
    printf("  %s: status %d, \"%s\"\n", bad, said.status, said.text.c_str());
    EXPECT_NE(-1, said.status) << bad << " has no answer";
    EXPECT_FALSE(std::isdigit(static_cast<unsigned char>(said.text[0]))) << said.text;
    EXPECT_EQ(0, daemon_->ask("get_server_list").status) << "after " << bad;
  }
  EXPECT_EQ(std::vector<pid_t>(), daemon_->clients(1));
}

TEST_F(Mps, TheServerStartsAtTheFirstClientAndOutlivesIt) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client first = client();
  ASSERT_EQ(kOk, first.begin());
  const pid_t server = daemon_->server();
  ASSERT_GT(server, 0);
  EXPECT_TRUE(lists(server, first));
  Client second = client();
  expect_works(second);
  EXPECT_EQ(server, daemon_->server()) << "one for both";
  EXPECT_TRUE(lists(server, first) && lists(server, second));
  EXPECT_EQ(0, first.end());
  EXPECT_TRUE(eventually([&] { return !lists(server, first); }));
  EXPECT_EQ(kOk, second.ask("work"));
  EXPECT_EQ(0, second.end());
  EXPECT_TRUE(eventually([&] { return daemon_->clients(server).empty(); }));
  EXPECT_EQ(server, daemon_->server());
}

TEST_F(Mps, AClientSeesItsGpuAndThatItIsUnderMps) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client inside = client(), outside({"CUDA_VISIBLE_DEVICES=" + uuid_});
  ASSERT_EQ(kOk, inside.ask("init"));
  ASSERT_EQ(kOk, outside.ask("init"));
  const std::string one_gpu = std::string(kOk) + " 1 " + uuid_;
  EXPECT_EQ(one_gpu + " 1", inside.ask("sees"));
  EXPECT_EQ(one_gpu + " 0", outside.ask("sees"));
}

TEST_F(Mps, WithoutADaemonAProcessWorksByItself) {
  Client alone = client();
  expect_works(alone);
  EXPECT_EQ(std::string(kOk) + " 1 " + uuid_ + " 0", alone.ask("sees"));
  EXPECT_EQ(std::vector<pid_t>(), daemon_->programs());
}

TEST_F(Mps, TheServersMemoryIsItsOwnAndThatOfAClientEndsWithIt) {
  ASSERT_NO_FATAL_FAILURE(start());
  const std::uint64_t before = free_bytes();
  {
    Client keeps = client();
    ASSERT_EQ(kOk, keeps.begin());
    const std::uint64_t served = free_bytes();
    EXPECT_EQ(kOk, keeps.ask("take " + std::to_string(kMuchMiB)));
    EXPECT_LE(free_bytes() + kMuchMiB * kMiB, served + kSlack);
    keeps.kill();
    EXPECT_TRUE(eventually([&] { return free_bytes() + kSlack >= served; }));
    const std::uint64_t without = free_bytes();
    printf("  the server has %.0f MiB without a client\n",
           (static_cast<double>(before) - static_cast<double>(without)) / kMiB);
    EXPECT_LT(without, before) << "the server has a context";
  }
  EXPECT_EQ(0, daemon_->ask("quit").status);
  EXPECT_TRUE(eventually([&] { return free_bytes() + kSlack >= before; }));
}

// Kernels of both sides wait for each other, round after round. Kernels that run at once meet
// within a few looks. By time slices each round takes a slice, which are hundreds of looks or more.
class Meeting : public Mps {
 protected:
  static constexpr int kRounds = 50, kPatience = 60, kUntilBothAreThere = 20'000'000;

  static std::vector<int> meet(Client& a, Client& b, int first) {
    Client* const both[] = {&a, &b};
    for (int side : {0, 1}) {
      both[side]->send("meet " + std::to_string(side) + " " + std::to_string(kRounds) + " " +
                       std::to_string(first) + " " + std::to_string(kPatience));
    }
    for (Client* each : both) EXPECT_EQ("there", each->receive());
    for (Client* each : both) each->send("go");
    std::vector<int> met;
    for (Client* each : both) {
      const std::string said = each->receive();
      EXPECT_EQ(kOk, said.substr(0, said.find(' ')));
      met.push_back(atoi(said.substr(said.rfind(' ') + 1).c_str()));
    }
    return met;
  }
};

TEST_F(Meeting, KernelsOfTwoClientsRunAtOnce) {
  ASSERT_NO_FATAL_FAILURE(start());
  const int place = meeting_place();
  Client a = client(place), b = client(place);
  close(place);
  expect_works(a);
  expect_works(b);
  EXPECT_EQ(std::vector<int>(2, kRounds), meet(a, b, kUntilBothAreThere));
}

TEST_F(Meeting, KernelsOfTwoProcessesWithoutMpsTakeTurns) {
  const int place = meeting_place();
  Client a({}, place), b({}, place);
  close(place);
  expect_works(a);
  expect_works(b);
  for (const int met : meet(a, b, kPatience)) EXPECT_LT(met, kRounds);
}

TEST_F(Mps, AKilledClientLeavesTheOthersAlone) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client stays = client(), killed = client();
  expect_works(stays);
  expect_works(killed);
  const pid_t server = daemon_->server();
  killed.send("work");
  killed.kill();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(kOk, stays.ask("work"));
  EXPECT_TRUE(eventually([&] { return daemon_->clients(server).size() == 1; }));
  Client next = client();
  expect_works(next);
  EXPECT_EQ(server, daemon_->server());
  expect_nothing_outside();
}

TEST_F(Mps, ATerminatedClientFailsAlone) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client stays = client(), goes = client();
  expect_works(stays);
  expect_works(goes);
  const pid_t server = daemon_->server();
  const MpsDaemon::Answer said =
      daemon_->ask("terminate_client " + std::to_string(server) + " " + std::to_string(goes.pid()));
  printf("  terminate_client: status %d, \"%s\"\n", said.status, said.text.c_str());
  EXPECT_EQ(0, said.status);
  EXPECT_EQ("CUDA_ERROR_MPS_CLIENT_TERMINATED", work_until_it_fails(goes));
  printf("  it is %s listed\n", lists(server, goes) ? "still" : "no longer");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(kOk, stays.ask("work"));
  goes.end();
  EXPECT_TRUE(eventually([&] { return daemon_->clients(server).size() == 1; }));
  Client next = client();
  expect_works(next);
  EXPECT_EQ(server, daemon_->server());
}

TEST_F(Mps, TheEndOfTheServerIsThatOfItsClientsAndTheNextOneGetsAnother) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client one = client(), other = client();
  expect_works(one);
  expect_works(other);
  const pid_t server = daemon_->server();
  ASSERT_EQ(0, kill(server, SIGKILL));
  EXPECT_EQ("CUDA_ERROR_MPS_RPC_FAILURE", work_until_it_fails(one));
  EXPECT_EQ("CUDA_ERROR_MPS_RPC_FAILURE", work_until_it_fails(other));
  expect_nothing_outside();
  one.end();
  other.end();
  expect_the_next_works();
  EXPECT_NE(server, daemon_->server());
}

TEST_F(Mps, QuitWaitsForClients) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client last = client();
  expect_works(last);
  const pid_t server = daemon_->server();
  MpsDaemon::Answer said;
  std::thread quitting([&] { said = daemon_->ask("quit"); });  // it may wait as well
  usleep(200'000);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(kOk, last.ask("work"));
  EXPECT_EQ(0, kill(server, 0));
  EXPECT_EQ(0, last.end());
  quitting.join();
  EXPECT_EQ(0, said.status);
  EXPECT_TRUE(eventually([&] { return daemon_->programs().empty(); }));
}

TEST_F(Mps, QuitWithATimeLimitEndsServerAndDaemon) {
  ASSERT_NO_FATAL_FAILURE(start());
  Client last = client();
  expect_works(last);
  daemon_->ask("quit -t 1");
  EXPECT_TRUE(eventually([&] { return daemon_->programs().empty(); }));
  EXPECT_NE(kOk, work_until_it_fails(last));
  expect_nothing_outside();
}

// A real driver logs one Xid 31 for it.
TEST_F(Mps, OnePlantedIllegalAddressXid31ReachesAllClients) {
  ASSERT_NO_FATAL_FAILURE(start());
  {
    Client faulty = client(), other = client();
    expect_works(faulty);
    expect_works(other);
    EXPECT_EQ("CUDA_ERROR_ILLEGAL_ADDRESS", faulty.ask("fault"));
    EXPECT_EQ("CUDA_ERROR_ILLEGAL_ADDRESS", work_until_it_fails(other));
    EXPECT_EQ("CUDA_ERROR_ILLEGAL_ADDRESS", other.ask("work")) << "and stays";
    expect_nothing_outside();
  }
  expect_the_next_works();
}

}  // namespace
}  // namespace conformance
