// The owners of the way to a file. A process with more rights than another user must not make or
// open a file where that user decides what the path means.
//
// Concept. A link is looked at itself, not its target: whoever owns it chooses the target. Root
// also looks at the folders above, for their owners can put others in place of what lies there. In
// a user namespace, root of the host has the overflow uid.
//
// Threading: any thread. For the monitor and the tools, not for the library.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "switchyard/fd.h"

namespace switchyard {

// A part of a way that another user can change, and its owner.
struct ForeignPart {
  std::string path;
  uid_t owner = 0;
};

inline bool in_user_namespace() {
  unsigned long inside = 0, outside = 0, count = 0;
  std::FILE* map = ::fopen("/proc/self/uid_map", "re");
  const bool read = map != nullptr && ::fscanf(map, "%lu %lu %lu", &inside, &outside, &count) == 3;
  if (map != nullptr) ::fclose(map);
  return read && (outside != 0 || count < 0xffffffffUL);
}

inline bool is_foreign(uid_t owner) {
  constexpr uid_t kOverflow = 65534;
  if (owner == 0 || owner == ::geteuid()) return false;
  return owner != kOverflow || !in_user_namespace();
}

// Of the links and folders on the way to `folder`, itself included, the first that another user can
// change. A missing part is no one's.
inline std::optional<ForeignPart> foreign_part_of(const std::string& folder) {
  const auto look = [](const std::string& way) -> std::optional<ForeignPart> {
    for (std::size_t at = 0; at != std::string::npos;) {
      at = way.find('/', at + 1);
      const std::string part = way.substr(0, at);
      struct stat info {};
      if (::lstat(part.c_str(), &info) != 0) return std::nullopt;
      const bool link = S_ISLNK(info.st_mode);
      const bool open = (info.st_mode & S_ISVTX) == 0 &&
                        ((info.st_mode & S_IWOTH) != 0 || is_foreign(info.st_uid));
      const bool counts = at == std::string::npos || ::geteuid() == 0;
      const bool foreign = link ? is_foreign(info.st_uid) : open;
      if (counts && foreign) return ForeignPart{part, info.st_uid};
    }
    return std::nullopt;
  };
  if (auto found = look(folder)) return found;
  char* real = ::realpath(folder.c_str(), nullptr);
  if (real == nullptr) return std::nullopt;
  const std::string target = real;
  ::free(real);
  return look(target);
}

// A plain file of ours or root's. None, with `why`, where something else has that name. Never
// waits, as opening a FIFO would, and follows no link.
inline Fd open_own_file(const char* path, int flags, std::string& why) {
  const std::string name = path;
  Fd file(::open(path, flags | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0600));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0) {
    why = "opening " + name + ": " + ::strerror(errno);
    return {};
  }
  if (S_ISREG(info.st_mode) && (info.st_uid == ::geteuid() || info.st_uid == 0)) return file;
  why = name + " is no file of yours: remove it";
  return {};
}

}  // namespace switchyard
