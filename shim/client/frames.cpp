#include "shim/client/frames.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shim/own_fd.h"
#include "switchyard/descriptors.h"

namespace switchyard::shim {
namespace {

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

bool send_header(int fd, const wire::FrameHeader& header, const Descriptors& along) {
  ssize_t sent = 0;
  do {
    sent = send_with(fd, &header, sizeof(header), along.fd, along.count, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof(header));
}

}  // namespace

void Descriptors::close() {
  for (std::uint32_t i = 0; i < count; ++i) close_file(fd[i]);
  count = 0;
}

bool send_frame(int fd, wire::Kind kind, std::uint32_t id, const void* payload, std::size_t bytes,
                const Descriptors& along) {
  const wire::FrameHeader header{wire::kMagic, kind, static_cast<std::uint32_t>(bytes), id};
  return send_header(fd, header, along) && send_all(fd, payload, bytes);
}

bool receive_header(int fd, wire::FrameHeader& header, Descriptors& along) {
  bool lost = false;
  ssize_t got = 0;
  do {
    got = receive_with(fd, &header, sizeof(header), MSG_WAITALL, along.fd, along.count, lost);
  } while (got < 0 && errno == EINTR);
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

bool receive_payload(int fd, const wire::FrameHeader& header, void* data, std::size_t bytes) {
  constexpr std::size_t kMost = 4096;
  if (header.length < bytes || header.length > kMost || !receive_all(fd, data, bytes)) return false;
  char skipped[kMost];
  return receive_all(fd, skipped, header.length - bytes);
}

}  // namespace switchyard::shim
