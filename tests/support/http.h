// One end of a connection that speaks HTTP byte by byte, well or badly.
//
// Threading: any thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "switchyard/fd.h"

namespace switchyard::test_support {

// A limit that only a hang reaches.
inline constexpr int kHangMs = 60'000;

class HttpPeer {
 public:
  HttpPeer(const std::string& address, std::uint16_t port)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // Small, so that what is not read soon fills it.
    const int bytes = 4096;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    EXPECT_EQ(::inet_pton(AF_INET, address.c_str(), &to.sin_addr), 1);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  void say(const std::string& text) const {
    ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  bool readable(int wait_ms) const {
    pollfd one{fd_.get(), POLLIN, 0};
    return ::poll(&one, 1, wait_ms) == 1;
  }
  // All until the other side closes.
  std::string rest() const {
    std::string out;
    char buffer[65536];
    while (readable(kHangMs)) {
      const ssize_t got = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (got <= 0) return out;
      out.append(buffer, static_cast<std::size_t>(got));
    }
    ADD_FAILURE() << "it was never closed";
    return out;
  }

 private:
  Fd fd_;
};

}  // namespace switchyard::test_support
