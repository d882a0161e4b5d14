#define _GNU_SOURCE
#include "tools/entrypoint/monitor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { kOverflowUser = 65534 };

// 0, or why nobody answers. `listener` is the user who listens.
static int connect_to(const char* path, uid_t* listener) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof(address.sun_path)) return ENAMETOOLONG;
  strcpy(address.sun_path, path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  // EAGAIN: somebody listens, and is busy.
  const bool there = connect(fd, (struct sockaddr*)&address, sizeof(address)) == 0;
  const int error = there || errno == EAGAIN ? 0 : errno;
  struct ucred peer = {.uid = 0};
  socklen_t bytes = sizeof(peer);
  if (there) getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  *listener = peer.uid;
  close(fd);
  return error;
}

static void explain(const char* path, bool named, int error, char* why, unsigned size) {
  if (!named && access(SWITCHYARD_SYSTEM_FOLDER, F_OK) != 0) {
    snprintf(why, size,
             "the host's " SWITCHYARD_SYSTEM_FOLDER
             " is not mounted: start the container with -v " SWITCHYARD_SYSTEM_FOLDER
             ":" SWITCHYARD_SYSTEM_FOLDER);
  } else if (error == ENOENT && named) {
    snprintf(why, size, "there is no socket %s, which SWITCHYARD_SOCKET names: mount its folder",
             path);
  } else if (error == ENOENT || error == ECONNREFUSED) {
    snprintf(why, size,
             "no monitor listens on %s: start it on the host, with `systemctl start "
             "switchyardd.socket`",
             path);
  } else {
    snprintf(why, size, "the monitor's socket %s cannot be used: %s", path, strerror(error));
  }
}

bool find_monitor(char* why, unsigned size) {
  const char* told = getenv("SWITCHYARD_SOCKET");
  const bool named = told != NULL && told[0] != '\0';
  const char* path = named ? told : SWITCHYARD_SYSTEM_SOCKET;
  uid_t listener = 0;
  const int error = connect_to(path, &listener);
  if (error != 0) {
    explain(path, named, error, why, size);
    return false;
  }
  if (!named && listener == kOverflowUser) setenv("SWITCHYARD_SOCKET", path, 1);
  return true;
}
