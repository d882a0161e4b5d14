#include "shim/client/frames.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace switchyard::shim {
namespace {

constexpr std::size_t kMostControl = CMSG_SPACE(sizeof(int) * wire::kMostDescriptors);

bool send_all(int fd, const void* data, std::size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool send_with(int fd, const wire::FrameHeader& header, const Descriptors& along) {
  wire::FrameHeader copy = header;
  iovec vector{&copy, sizeof(copy)};
  alignas(cmsghdr) char control[kMostControl] = {};
  const std::size_t bytes = sizeof(int) * along.count;
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(bytes);
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(bytes);
  ::memcpy(CMSG_DATA(head), along.fd, bytes);
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof(copy));
}

}  // namespace

void Descriptors::close() {
  for (std::uint32_t i = 0; i < count; ++i) ::close(fd[i]);
  count = 0;
}

bool send_frame(int fd, wire::Kind kind, std::uint32_t id, const void* payload, std::size_t bytes,
                const Descriptors& along) {
  const wire::FrameHeader header{wire::kMagic, kind, static_cast<std::uint32_t>(bytes), id};
  const bool sent =
      along.count == 0 ? send_all(fd, &header, sizeof(header)) : send_with(fd, header, along);
  return sent && send_all(fd, payload, bytes);
}

bool receive_header(int fd, wire::FrameHeader& header, Descriptors& along) {
  iovec vector{&header, sizeof(header)};
  alignas(cmsghdr) char control[kMostControl] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  along.count = 0;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  } while (got < 0 && errno == EINTR);
  const cmsghdr* first = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (first != nullptr && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS) {
    along.count = static_cast<std::uint32_t>((first->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    ::memcpy(along.fd, CMSG_DATA(first), sizeof(int) * along.count);
  }
  return got == static_cast<ssize_t>(sizeof(header)) && header.magic == wire::kMagic;
}

bool receive_all(int fd, void* data, std::size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

}  // namespace switchyard::shim
