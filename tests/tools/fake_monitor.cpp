#include "fake_monitor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "switchyard/wire.h"

namespace switchyard::tools {
namespace {

bool read_exactly(int fd, char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, data, size, 0);
    if (got <= 0) return false;
    data += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace

FakeMonitor FakeMonitor::answering(Answer answer) { return {std::move(answer), nullptr}; }
FakeMonitor FakeMonitor::raw(Raw raw) { return {nullptr, std::move(raw)}; }

FakeMonitor::FakeMonitor(Answer answer, Raw raw)
    : answer_(std::move(answer)), raw_(std::move(raw)) {
  char folder[] = "/tmp/switchyard-test-XXXXXX";
  EXPECT_NE(::mkdtemp(folder), nullptr);
  folder_ = folder;
  path_ = folder_ + "/m.sock";
  listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path_.data(), path_.size());
  EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener_, 16), 0);
  thread_ = std::thread([this] { serve(); });
}

FakeMonitor::~FakeMonitor() {
  ending_ = true;
  thread_.join();
  ::close(listener_);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void FakeMonitor::serve() {
  while (!ending_) {
    pollfd entry{listener_, POLLIN, 0};
    if (::poll(&entry, 1, 10) <= 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const timeval limit{0, 20000};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    talk(fd);
    ::close(fd);
  }
}

void FakeMonitor::talk(int fd) {
  while (!ending_) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, 10) <= 0) continue;
    wire::FrameHeader header{};
    if (!read_exactly(fd, reinterpret_cast<char*>(&header), sizeof(header))) return;
    std::string body(header.length, '\0');
    if (!read_exactly(fd, body.data(), body.size())) return;
    std::string out;
    if (raw_) {
      out = raw_(std::string(reinterpret_cast<char*>(&header), sizeof(header)) + body);
    } else {
      const std::string text = answer_(nlohmann::json::parse(body)).dump();
      header.length = static_cast<std::uint32_t>(text.size());
      out = std::string(reinterpret_cast<char*>(&header), sizeof(header)) + text;
    }
    if (out.empty()) continue;
    if (::send(fd, out.data(), out.size(), MSG_NOSIGNAL) < 0 || raw_) return;
  }
}

CommandEnd run_command(const std::string& socket,
                       const std::vector<void (*)(CommandLine&)>& commands,
                       std::vector<std::string> words) {
  CommandLine line("", "");
  for (const auto add : commands) add(line);
  ::setenv("SWITCHYARD_SOCKET", socket.c_str(), 1);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = line.run(std::move(words));
  std::fflush(stdout);
  ::unsetenv("SWITCHYARD_SOCKET");
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

}  // namespace switchyard::tools
