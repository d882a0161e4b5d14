#include "shim/client/monitor_socket.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "shim/client/settings.h"
#include "shim/log.h"
#include "shim/own_fd.h"
#include "switchyard/paths.h"
#include "switchyard/trust.h"

namespace switchyard::shim {
namespace {

constexpr int kAnswerSeconds = 2;  // no wait is longer; a slow monitor is as good as none

// Says once why the socket is not used.
bool distrusted(const char* path, Distrust distrust) {
  static Once said;
  if (distrust.what == Distrust::kNothing) return false;
  const char* text =
      distrust.what == Distrust::kFolder
          ? "its folder belongs to that user, or others can write to it; remove the folder"
          : "that user listens there, not root and not you; remove the socket";
  log_once(said, Level::kWarn,
           "the monitor at %s is not used (uid %u): %s, or set SWITCHYARD_SOCKET to a socket that "
           "you trust",
           path, distrust.owner, text);
  return true;
}

int connect_to(const char* path, const SocketWords& words) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(sizeof(address.sun_path) == kSocketPathBytes);
  ::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
  if (distrusted(path, distrust_folder(path, words))) return -1;
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit{kAnswerSeconds, 0};
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) != 0 ||
      ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
      ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      distrusted(path, distrust_listener(path, fd, words))) {
    close_file(fd);
    return -1;
  }
  return fd;
}

}  // namespace

int connect_monitor(bool was_client) {
  char path[kSocketPathBytes];
  const SocketWords words = socket_before();
  if (!socket_path(path, words)) return -1;
  const int fd = connect_to(path, words);
  if (fd >= 0 || ::strcmp(path, kSystemSocket) == 0) return fd;
  // The monitor of this job may have handed its GPUs over to root's.
  JobCard card;
  read_before(card);
  const bool of_a_job = card.job[0] != '\0' || was_client;
  return of_a_job && ::access(kSystemSocket, F_OK) == 0 ? connect_to(kSystemSocket, words) : -1;
}

}  // namespace switchyard::shim
