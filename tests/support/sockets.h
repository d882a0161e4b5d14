// What tests that play one end of the monitor's socket share: listening, and sending descriptors.
//
// Threading: any thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "switchyard/descriptors.h"

namespace switchyard::test_support {

// A socket that listens at `path`, in the place of whatever was there.
inline int listen_at(const std::string& path) {
  ::unlink(path.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(listener, 4), 0);
  return listener;
}

// The descriptors go with the first byte, and stay the caller's. False: not all was sent.
inline bool send_with(int fd, const void* data, std::size_t bytes,
                      const std::vector<int>& descriptors) {
  return switchyard::send_with(fd, data, bytes, descriptors.data(),
                               static_cast<unsigned>(descriptors.size()),
                               MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
}

}  // namespace switchyard::test_support
