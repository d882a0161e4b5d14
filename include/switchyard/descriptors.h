// Messages over a unix socket that bring descriptors along (SCM_RIGHTS).
//
// Concept. The kernel installs as many descriptors as the receiver has room for, and closes the
// others on the receiving thread, which may take for ever. A receiver of a stranger's message has
// room for kMostInOneMessage, whatever it expects.
//
// Threading: any thread.
#pragma once

#include <string.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

namespace switchyard {

inline constexpr unsigned kMostInOneMessage = 253;  // the kernel's SCM_MAX_FD

// As send(2); `fd[0]` to `fd[count - 1]` travel with the first byte. pre: bytes > 0, and count is
// at most kMostInOneMessage.
inline ssize_t send_with(int socket, const void* data, std::size_t bytes, const int* fd,
                         unsigned count, int flags) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostInOneMessage)] = {};
  iovec vector{const_cast<void*>(data), bytes};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * count);
    ::memcpy(CMSG_DATA(head), fd, sizeof(int) * count);
  }
  return ::sendmsg(socket, &message, flags);
}

// As recv(2). `count` descriptors came, close-on-exec, which are the caller's to close; `lost`:
// more were sent than could be installed.
template <unsigned Room>
ssize_t receive_with(int socket, void* data, std::size_t bytes, int flags, int (&fd)[Room],
                     unsigned& count, bool& lost) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * Room)];
  iovec vector{data, bytes};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  count = 0;
  lost = false;
  const ssize_t got = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  if (got < 0) return got;
  lost = (message.msg_flags & MSG_CTRUNC) != 0;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) {
    return got;
  }
  count = static_cast<unsigned>((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  ::memcpy(fd, CMSG_DATA(head), sizeof(int) * count);
  return got;
}

}  // namespace switchyard
