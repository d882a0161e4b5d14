// Whom a process takes for a monitor: root, or its own user.
//
// Concept. A monitor may hold a job for ever, and is handed descriptors of its memory. Any user can
// make /tmp/switchyard-UID and listen there, so the path alone proves nothing. Before a process
// says anything it checks, in this order:
//
//   1. A socket that a person named (SWITCHYARD_SOCKET, --socket) is believed: only that person
//      knows who listens there. In a container with a user namespace of its own, root of the host
//      has the overflow uid (65534). So a mounted socket has to be named. The per-user place is
//      checked even if it is named, for `switchyard run` names it to its job.
//   2. The folder of the per-user place is a real folder of ours, that nobody else can write to.
//   3. The listener is root, or our own user (SO_PEERCRED).
//
// Threading: any; without `words` as socket_words() (paths.h).
#pragma once

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "switchyard/paths.h"

namespace switchyard {

// What speaks against a socket, and the user who owns that.
struct Distrust {
  enum What { kNothing, kFolder, kListener } what = kNothing;
  unsigned owner = 0;
};

// Whether the path is the user's own place (rules 3 and 4 of paths.h), named or not.
inline bool is_user_place(const char* path, const SocketWords& words = socket_words()) {
  char own[kSocketPathBytes] = "";
  return ::geteuid() != 0 && user_socket_path(own, words) && ::strcmp(path, own) == 0;
}

// Whether a person named this socket, and it is not the user's own place.
inline bool is_named_place(const char* path, const SocketWords& words = socket_words()) {
  return ::strcmp(words.named, path) == 0 && !is_user_place(path, words);
}

// Rule 2. A folder that does not exist is no reason for distrust: nobody listens there.
inline Distrust distrust_folder(const char* path, const SocketWords& words = socket_words()) {
  const char* slash = ::strrchr(path, '/');
  char folder[kSocketPathBytes] = "";
  if (slash == nullptr || !is_user_place(path, words)) return {};
  ::memcpy(folder, path, static_cast<std::size_t>(slash - path));
  struct stat info {};
  // Not lstat(): its symbol would tie the library to a newer glibc.
  if (::syscall(SYS_newfstatat, AT_FDCWD, folder, &info, AT_SYMLINK_NOFOLLOW) != 0) return {};
  const bool ours =
      S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 022) == 0;
  return ours ? Distrust{} : Distrust{Distrust::kFolder, info.st_uid};
}

// Rule 3. REQUIRES: `fd` is connected to `path`.
inline Distrust distrust_listener(const char* path, int fd,
                                  const SocketWords& words = socket_words()) {
  if (is_named_place(path, words)) return {};
  ucred listener{};
  socklen_t bytes = sizeof(listener);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &listener, &bytes) != 0) {
    return {Distrust::kListener, static_cast<unsigned>(-1)};
  }
  if (listener.uid == 0 || listener.uid == ::geteuid()) return {};
  return {Distrust::kListener, listener.uid};
}

}  // namespace switchyard
