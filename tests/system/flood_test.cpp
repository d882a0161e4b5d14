// One user takes all that it can get of root's monitor; everybody else is served.
//
// The attacks run at once, each in a process of its own, as the user nobody: so this needs root.
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>
#include <utility>

#include "switchyard/descriptors.h"
#include "switchyard/wire.h"
#include "tests/support/card.h"
#include "tests/support/sockets.h"
#include "tests/system/harness.h"

namespace switchyard::system_tests {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The attacker's end of a connection.
class Raw {
 public:
  explicit Raw(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) close();
    const timeval limit{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  Raw(Raw&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Raw& operator=(Raw&&) = delete;
  ~Raw() { close(); }
  bool is_open() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool send(std::uint32_t kind, const void* payload, std::size_t bytes,
            const std::vector<int>& along = {}) {
    const wire::FrameHeader header{wire::kMagic, kind, static_cast<std::uint32_t>(bytes), 1};
    std::string frame(reinterpret_cast<const char*>(&header), sizeof(header));
    frame.append(static_cast<const char*>(payload), bytes);
    return test_support::send_with(fd_, frame.data(), frame.size(), along);
  }
  bool send(const std::string& json) { return send(wire::kJson, json.data(), json.size()); }
  // Whatever has come; descriptors are taken. 0: nothing within a second, or the end.
  ssize_t take(std::vector<int>* came = nullptr) {
    char buffer[65536];
    int with[16];
    unsigned count = 0;
    bool lost = false;
    const ssize_t got = came == nullptr
                            ? ::recv(fd_, buffer, sizeof(buffer), 0)
                            : receive_with(fd_, buffer, sizeof(buffer), 0, with, count, lost);
    if (came != nullptr && count > 0) came->assign(with, with + count);
    return std::max<ssize_t>(got, 0);
  }
  // A whole frame, within ten seconds.
  bool take_answer() {
    wire::FrameHeader header{};
    std::string payload;
    if (!take_exactly(&header, sizeof(header)) || header.length > wire::kMaxFrame) return false;
    payload.resize(header.length);
    return take_exactly(payload.data(), payload.size());
  }

 private:
  bool take_exactly(void* out, std::size_t bytes) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    std::size_t has = 0;
    while (has < bytes && Clock::now() < deadline) {
      const ssize_t got = ::recv(fd_, static_cast<char*>(out) + has, bytes - has, 0);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
      if (got > 0) has += static_cast<std::size_t>(got);
    }
    return has == bytes;
  }

  int fd_;
};

wire::Hello hello(const char* name, bool swappable) {
  wire::Hello out{};
  out.layout_version = abi::kLayoutVersion;
  out.page_bytes = abi::kPageBytes;
  for (const abi::Section& section : abi::kSections) out.sections[out.section_count++] = section;
  write_card(out.card, &JobCard::name, name);
  if (swappable) write_card(out.card, &JobCard::swappable, "yes");
  return out;
}

[[noreturn]] void wait_to_be_killed() {
  for (;;) ::pause();
}

// A job whose memory never leaves, and 400 commands that wait until it has.
void wait_for_ever(const std::string& path, const std::array<std::uint8_t, 16>& gpu) {
  Raw client(path);
  wire::Hello said = hello("stays", true);
  said.lane_count = 1;
  std::copy(gpu.begin(), gpu.end(), said.uuid[0]);
  std::vector<int> came;
  if (!client.send(wire::kHello, &said, sizeof(said)) || client.take(&came) == 0 || came.empty()) {
    return;
  }
  void* mapped = ::mmap(nullptr, abi::kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, came[0], 0);
  if (mapped == MAP_FAILED) return;
  abi::Residency& residency = static_cast<abi::Page*>(mapped)->residencies[0];
  residency.total_bytes = residency.resident_bytes = 1 << 30;
  std::vector<Raw> all;
  for (int i = 0; i < 400; ++i) {
    all.emplace_back(path).send(R"({"op":"swap-out","target":"stays"})");
  }
  wait_to_be_killed();
}

void list_for_ever(const std::string& path) {
  std::vector<Raw> all;
  for (int i = 0; i < 60; ++i) all.emplace_back(path);
  for (;;) {
    for (Raw& each : all) {
      for (int i = 0; i < 20; ++i) {
        if (!each.send(R"({"op":"ps"})")) break;
      }
    }
    for (Raw& each : all) each.take();
  }
}

void join_for_ever(const std::string& path) {
  for (;;) {
    std::vector<Raw> all;
    for (int i = 0; i < 50; ++i) {
      const wire::Hello said = hello("", false);
      all.emplace_back(path).send(wire::kHello, &said, sizeof(said));
    }
    for (Raw& each : all) each.take();
  }
}

void create_for_ever(const std::string& path) {
  for (Raw one(path);;) {
    for (int i = 0; i < 20; ++i) one.send(R"({"op":"create"})");
    if (one.take() == 0) ::usleep(10'000);
  }
}

void connect_for_ever(const std::string& path) {
  for (std::vector<Raw> all;;) {
    all.emplace_back(path);
    if (!all.back().is_open() || all.size() > 5000) all.clear();
  }
}

void share_for_ever(const std::string& path) {
  const std::vector<int> memory(wire::kMostDescriptors, ::memfd_create("memory", MFD_CLOEXEC));
  std::vector<Raw> all;
  for (std::uint64_t key = 1;; ++key) {
    const wire::Hello said = hello("", false);
    Raw& one = all.emplace_back(path);
    one.send(wire::kHello, &said, sizeof(said));
    one.take();
    for (std::uint32_t i = 0; i < 1000; ++i) {
      const wire::Share share{{{key, i}}, 0, wire::kMostDescriptors};
      if (!one.send(wire::kShare, &share, sizeof(share), memory) || one.take() == 0) break;
    }
    if (all.size() > 100) all.clear();
  }
}

double milliseconds_since(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

// How long root's `ps` takes, and how much of that is the monitor's.
struct Times {
  std::vector<double> command;  // `switchyard ps --json`, from its start to its end
  std::vector<double> connect;  // from a new connection to the end of the answer
  std::vector<double> request;  // from a request on an open connection to the end of its answer
};

class Flood : public Scene {
 protected:
  pid_t attack(const std::function<void(const std::string&)>& what) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
        ::_exit(1);
      what(socket());
      ::_exit(0);
    }
    return child;
  }
  std::size_t descriptors_of(int pid) {
    const fs::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }
  std::array<std::uint8_t, 16> gpu() {
    std::array<std::uint8_t, 16> out{};
    std::string hex;
    const std::string text = listing("status")["gpus"][0]["uuid"];
    std::copy_if(text.begin() + 4, text.end(), std::back_inserter(hex),
                 [](char c) { return c != '-'; });
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::uint8_t>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    }
    return out;
  }
  // A connection of root's on which `ps` was answered once.
  Raw root() {
    Raw out(socket());
    ask_ps(out);
    return out;
  }
  // pre: nobody else has asked on it, so the answer is the next that comes.
  static void ask_ps(Raw& connection) {
    ASSERT_TRUE(connection.send(R"({"op":"ps","after":0})"));
    ASSERT_TRUE(connection.take_answer());
  }
  void time_ps(Raw& open, Times& out) {
    auto began = Clock::now();
    ask_ps(open);
    out.request.push_back(milliseconds_since(began));
    began = Clock::now();
    root();
    out.connect.push_back(milliseconds_since(began));
    began = Clock::now();
    const auto end = cli({"ps", "--json"});
    out.command.push_back(milliseconds_since(began));
    EXPECT_EQ(end.status, 0) << end.err;
  }
  static void print(const char* when, const Times& times) {
    std::cout << when << ": request " << summary(times.request) << "; connection and request "
              << summary(times.connect) << "; command " << summary(times.command) << '\n';
  }
  static std::string summary(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << all[all.size() / 2] << " / " << all.back()
         << " ms";
    return text.str();
  }
  std::string log() {
    std::ifstream file(in_folder("m.log"));
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
};

TEST_F(Flood, OfOneUserKeepsNobodyElseFromBeingServed) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user can be played by root alone";
  const Child owner = monitor();
  fs::permissions(in_folder(""), fs::perms::owner_all | fs::perms::others_exec);
  Child mine = loop({"--name", "mine", "--require"}, {"--us", "500"});
  const int pid = monitor_pid();
  const auto uuid = gpu();
  Times quiet;
  {
    Raw open = root();
    for (int i = 0; i < 50; ++i) time_ps(open, quiet);
  }
  const std::size_t before = descriptors_of(pid);
  std::vector<pid_t> attackers = {
      attack([&](const std::string& path) { wait_for_ever(path, uuid); })};
  ASSERT_TRUE(eventually([&] { return job_named("stays").is_object(); }));
  for (const auto each :
       {list_for_ever, join_for_ever, create_for_ever, share_for_ever, connect_for_ever}) {
    attackers.push_back(attack(each));
  }
  const long seen = kernels(mine);
  // By turns, so that a change of the machine's load meets both.
  Times stopped;
  Times attacking;
  Raw open = root();
  for (int i = 0; i < 50; ++i) {
    for (const pid_t each : attackers) ::kill(each, SIGSTOP);
    ::usleep(50'000);
    time_ps(open, stopped);
    for (const pid_t each : attackers) ::kill(each, SIGCONT);
    ::usleep(50'000);
    time_ps(open, attacking);
  }
  EXPECT_EQ(cli({"set", "mine", "--priority", "low"}).status, 0);
  std::cout << "50 ps of root, median / most\n";
  print("no flood", quiet);
  print("attackers stopped", stopped);
  print("attackers running", attacking);
  EXPECT_EQ(job({"--name", "second", "--require"}, {built("tests/jobs/job_loop"), "--count", "10"})
                .finish(kLimit)
                .status,
            0)
      << "a new job of root's is taken";
  EXPECT_TRUE(eventually([&] { return kernels(mine) > seen; }));
  open.close();
  for (const pid_t each : attackers) ::kill(each, SIGKILL);
  for (const pid_t each : attackers) ::waitpid(each, nullptr, 0);
  EXPECT_TRUE(eventually([&] {
    const json all = listing("ps");
    return all.is_object() && all["jobs"].size() == 1 && descriptors_of(pid) <= before;
  })) << "all is given back; descriptors "
      << descriptors_of(pid) << ", before " << before;
  EXPECT_EQ(job_named("mine")["processes"].size(), 1u);
  EXPECT_EQ(monitor_pid(), pid);
  const std::string said = log();
  EXPECT_NE(said.find("--connections-per-user"), std::string::npos) << "who is refused is told why";
  const auto joins = [&] {
    std::size_t count = 0;
    for (auto at = said.find("joined job 'mine'"); at != std::string::npos;
         at = said.find("joined job 'mine'", at + 1)) {
      ++count;
    }
    return count;
  };
  EXPECT_EQ(joins(), 1u) << "the job never lost the monitor";
}

}  // namespace
}  // namespace switchyard::system_tests
