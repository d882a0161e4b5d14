#include "monitor/platform/passed_sockets.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "monitor/platform/service_manager.h"

namespace switchyard::monitor {

std::vector<Fd> take_passed_sockets() {
  constexpr int kFirst = 3;            // SD_LISTEN_FDS_START
  constexpr std::uint64_t kMost = 64;  // a unit of ours has one or two
  const std::uint64_t pid = number_in("LISTEN_PID");
  const std::uint64_t count = std::min(number_in("LISTEN_FDS"), kMost);
  // A program that the monitor starts must not take them for its own.
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  std::vector<Fd> out;
  if (pid != static_cast<std::uint64_t>(::getpid())) return out;
  for (int fd = kFirst; fd < kFirst + static_cast<int>(count); ++fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0) continue;
    ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    out.emplace_back(fd);
  }
  return out;
}

bool listens_at(int fd, const std::string& path) {
  int listens = 0;
  socklen_t bytes = sizeof(listens);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || listens == 0) {
    return false;
  }
  sockaddr_un address{};
  bytes = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return false;
  return address.sun_family == AF_UNIX && bytes > offsetof(sockaddr_un, sun_path) &&
         path.size() < sizeof(address.sun_path) &&
         std::string(address.sun_path, ::strnlen(address.sun_path, sizeof(address.sun_path))) ==
             path;
}

}  // namespace switchyard::monitor
