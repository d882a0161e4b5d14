// Receiving from a socket whose other end is hostile, with the descriptors that come along.
//
// Concept. What does not fit into the receiver's room for descriptors the kernel closes, on the
// thread that receives. That may take for ever, so there is room for as many as one message can
// bring, whether they are wanted or not.
//
// Threading: any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstring>
#include <span>
#include <vector>

#include "monitor/fd.h"

namespace switchyard::monitor {

// The kernel's SCM_MAX_FD.
inline constexpr std::size_t kMostInOneMessage = 253;

// As recvmsg with MSG_DONTWAIT. Descriptors are added to `came`; `lost`: some could not be opened.
inline ssize_t receive(int socket, std::span<char> bytes, std::vector<Fd>& came, bool& lost) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostInOneMessage)];
  iovec vector{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  lost = (message.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* head = message.msg_controllen != 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
    return got;
  }
  const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (std::size_t i = 0; i < count; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(int));
    came.emplace_back(fd);
  }
  return got;
}

}  // namespace switchyard::monitor
