// A client that speaks the raw wire, as a shim or a tool does. Every wait is bounded.
//
// Threading: one thread per client.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "monitor/core/frames.h"
#include "switchyard/descriptors.h"
#include "switchyard/fd.h"
#include "tests/monitor/fake_shim.h"
#include "tests/support/sockets.h"

namespace switchyard::monitor::test {

inline constexpr int kPatienceMs = 60'000;

class WireClient {
 public:
  explicit WireClient(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      ADD_FAILURE() << "connecting to " << path << ": " << std::strerror(errno);
    }
  }

  bool send(const std::string& bytes) {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

  // With descriptors.
  bool send(const std::string& bytes, const std::vector<int>& descriptors) {
    return test_support::send_with(fd_.get(), bytes.data(), bytes.size(), descriptors);
  }

  // The next frame; descriptors that come with it go to fds(). Nullopt: closed.
  std::optional<Frame> receive() {
    wire::FrameHeader header{};
    if (!receive_all(&header, sizeof(header))) return std::nullopt;
    Frame frame{header.kind, header.id, std::string(header.length, '\0')};
    if (!receive_all(frame.payload.data(), frame.payload.size())) return std::nullopt;
    return frame;
  }
  bool is_closed() {
    pollfd poll_for{fd_.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&poll_for, 1, kPatienceMs) > 0 && ::recv(fd_.get(), &byte, 1, 0) <= 0;
  }

  bool has_answer() const {
    pollfd poll_for{fd_.get(), POLLIN, 0};
    return ::poll(&poll_for, 1, 0) > 0;
  }

  nlohmann::json ask(const nlohmann::json& request) {
    if (!send(make_frame(wire::kJson, ++id_, request.dump()))) return nullptr;
    const auto frame = receive();
    if (!frame || frame->kind != wire::kJson || frame->id != id_) return nullptr;
    return nlohmann::json::parse(frame->payload, nullptr, false);
  }

  // Says Hello. True: welcomed, and page() is mapped.
  bool join(const wire::Hello& hello) {
    if (!send(make_frame(wire::kHello, ++id_, hello))) return false;
    const auto frame = receive();
    if (!frame) return false;
    if (frame->kind == wire::kRefused) refused_ = frame->payload;
    if (frame->kind != wire::kWelcome || frame->payload.size() != sizeof(wire::Welcome) ||
        fds_.size() != 3) {
      return false;
    }
    shim_.emplace(fds_[0].get());
    return true;
  }
  std::optional<wire::Charged> charge(std::uint64_t bytes, std::uint32_t lane = 0,
                                      std::uint32_t kind = wire::kCharge) {
    send(make_frame(kind, ++id_, wire::Charge{lane, 0, bytes}));
    return answer<wire::Charged>(wire::kCharged);
  }

  // kShare, kOpenShared, kEndShare; what comes back goes to fds() alone.
  std::optional<wire::Shared> share(std::uint32_t kind, const wire::Share& asked,
                                    const std::vector<int>& descriptors = {}) {
    fds_.clear();
    const std::string bytes = make_frame(kind, ++id_, asked);
    const bool sent = descriptors.empty() ? send(bytes) : send(bytes, descriptors);
    return sent ? answer<wire::Shared>(wire::kShared) : std::nullopt;
  }

  FakeShim& shim() { return *shim_; }
  abi::Lane& lane(unsigned at = 0) { return shim_->lane(at); }
  const std::vector<Fd>& fds() const { return fds_; }
  const std::string& refused() const { return refused_; }
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

 private:
  // The answer to the last request. Null: another one came, or none.
  template <typename Payload>
  std::optional<Payload> answer(std::uint32_t kind) {
    const auto frame = receive();
    Payload payload{};
    if (!frame || frame->kind != kind || frame->id != id_ ||
        frame->payload.size() != sizeof(payload)) {
      return std::nullopt;
    }
    std::memcpy(&payload, frame->payload.data(), sizeof(payload));
    return payload;
  }
  bool receive_all(void* data, std::size_t bytes) {
    auto* at = static_cast<char*>(data);
    while (bytes > 0) {
      pollfd poll_for{fd_.get(), POLLIN, 0};
      if (::poll(&poll_for, 1, kPatienceMs) <= 0) return false;
      int came[wire::kMostDescriptors];
      unsigned count = 0;
      bool lost = false;
      const ssize_t got = receive_with(fd_.get(), at, bytes, 0, came, count, lost);
      if (got <= 0) return false;
      for (unsigned i = 0; i < count; ++i) fds_.emplace_back(came[i]);
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return true;
  }

  Fd fd_;
  std::vector<Fd> fds_;
  std::optional<FakeShim> shim_;
  std::string refused_;
  std::uint32_t id_ = 0;
};

// Waits, with generous patience, until `condition` holds.
template <typename Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < kPatienceMs / 5; ++i) {
    if (condition()) return true;
    ::usleep(5000);
  }
  return condition();
}

}  // namespace switchyard::monitor::test
