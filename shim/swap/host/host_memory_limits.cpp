#include "shim/swap/host/host_memory_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "shim/log.h"
#include "shim/own_fd.h"

namespace switchyard::shim::swap::host_memory_limits {
namespace {

constexpr std::uint64_t kLeastFree = 2ull << 30;
constexpr std::size_t kPath = 1024;
constexpr std::size_t kText = 8192;

// Where one version of cgroups keeps what we ask.
struct Version {
  const char* controller;  // in /proc/self/cgroup
  const char* mount;
  const char* limit;
  const char* used;
  const char* inactive;  // in memory.stat
};

constexpr Version kVersions[] = {
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file"},
};

// A file that is missing, or that may not be read, sets no limit. One that can't be opened just now
// may set any: the program may have no number left for it.
struct Look {
  int error = 0;  // of the last such; 0: there is none
};

// The beginning of a file, as text. False: it can't be read.
bool read_text(const char* path, char (&text)[kText], Look& look) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const bool none = errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == EPERM;
    if (!none) look.error = errno;
    return false;
  }
  std::size_t length = 0;
  while (length < kText - 1) {
    const ssize_t got = ::read(fd, text + length, kText - 1 - length);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += static_cast<std::size_t>(got);
  }
  close_file(fd);
  text[length] = '\0';
  return length != 0;
}

bool read_cgroup(const Version& version, const char* path, const char* file, char (&text)[kText],
                 Look& look) {
  char name[kPath + 128];
  const int length = ::snprintf(name, sizeof(name), "%s%s%s/%s", root(), version.mount, path, file);
  return length > 0 && static_cast<std::size_t>(length) < sizeof(name) &&
         read_text(name, text, look);
}

// What one cgroup leaves. A missing file sets no limit: it is another version's, or the root's.
std::uint64_t room_in(const Version& version, const char* path, Look& look) {
  char text[kText];
  if (!read_cgroup(version, path, version.limit, text, look)) return UINT64_MAX;
  const std::uint64_t limit = limit_of(text);
  if (limit == UINT64_MAX || !read_cgroup(version, path, version.used, text, look)) {
    return UINT64_MAX;
  }
  const std::uint64_t used = limit_of(text);
  std::uint64_t inactive = 0;
  if (read_cgroup(version, path, "memory.stat", text, look)) {
    number_of(text, version.inactive, inactive);
  }
  return spare(limit, available(limit, used, inactive));
}

// Behind a container's own mount the path may be one that is not there; its root is.
std::uint64_t room_up_from(const Version& version, const char* cgroups, Look& look) {
  char path[kPath];
  if (!cgroup_path(cgroups, version.controller, path, sizeof(path))) return UINT64_MAX;
  std::uint64_t least = UINT64_MAX;
  do {
    least = std::min(least, room_in(version, path, look));
  } while (to_parent(path));
  return least;
}

// Not strtoull: a new C library gives it a name that an old one hasn't got.
std::uint64_t digits(const char* text) {
  std::uint64_t number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) {
    number = number * 10 + static_cast<std::uint64_t>(*text - '0');
  }
  return number;
}

}  // namespace

bool number_of(const char* text, const char* key, std::uint64_t& number) {
  const std::size_t length = ::strlen(key);
  for (const char* line = text; line != nullptr && *line != '\0';) {
    if (::strncmp(line, key, length) == 0 && line[length] == ' ') {
      number = digits(line + length + ::strspn(line + length, " "));
      return true;
    }
    line = ::strchr(line, '\n');
    if (line != nullptr) ++line;
  }
  return false;
}

std::uint64_t limit_of(const char* text) {
  return *text >= '0' && *text <= '9' ? digits(text) : UINT64_MAX;
}

bool cgroup_path(const char* text, const char* controller, char* path, std::size_t room) {
  const std::size_t wanted = ::strlen(controller);
  // "4:cpu,memory:/path"
  for (const char* line = text; line != nullptr && *line != '\0';) {
    const char* end = ::strchr(line, '\n');
    if (end == nullptr) end = line + ::strlen(line);
    const char* name = std::find(line, end, ':');
    const char* colon = name == end ? end : std::find(name + 1, end, ':');
    while (colon != end && name < colon) {
      ++name;
      const char* last = std::find(name, colon, ',');
      if (static_cast<std::size_t>(last - name) == wanted &&
          ::strncmp(name, controller, wanted) == 0) {
        const auto length = static_cast<std::size_t>(end - colon - 1);
        if (length >= room) return false;
        ::memcpy(path, colon + 1, length);
        path[length] = '\0';
        if (length == 1) path[0] = '\0';  // "/", the root
        return true;
      }
      name = last;
    }
    line = *end == '\0' ? end : end + 1;
  }
  return false;
}

bool to_parent(char* path) {
  char* last = ::strrchr(path, '/');
  if (last == nullptr) return false;
  *last = '\0';
  return true;
}

std::uint64_t spare(std::uint64_t total, std::uint64_t available) {
  const std::uint64_t keep = std::max(kLeastFree, total / 20);
  return available > keep ? available - keep : 0;
}

std::uint64_t available(std::uint64_t limit, std::uint64_t used, std::uint64_t inactive) {
  const std::uint64_t held = used > inactive ? used - inactive : 0;
  return limit > held ? limit - held : 0;
}

const char*& root() {
  static constinit const char* only = "";
  return only;
}

namespace {

std::uint64_t bytes(Look& look) {
  char text[kText];
  char name[kPath];
  std::uint64_t total = 0;
  std::uint64_t available = 0;
  ::snprintf(name, sizeof(name), "%s/proc/meminfo", root());
  if (!read_text(name, text, look) || !number_of(text, "MemTotal:", total) ||
      !number_of(text, "MemAvailable:", available)) {
    return 0;
  }
  std::uint64_t least = spare(total * 1024, available * 1024);
  ::snprintf(name, sizeof(name), "%s/proc/self/cgroup", root());
  if (!read_text(name, text, look)) return least;
  for (const Version& version : kVersions) {
    least = std::min(least, room_up_from(version, text, look));
  }
  return least;
}

}  // namespace

std::uint64_t bytes() {
  Look look;
  const std::uint64_t room = bytes(look);
  if (look.error == 0) return room;
  static Once said;
  log_once(said, Level::kWarn,
           "swap: what the host has left can't be read (error %d): no memory goes there meanwhile"
           "%s",
           look.error, look.error == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
  return 0;
}

}  // namespace switchyard::shim::swap::host_memory_limits
