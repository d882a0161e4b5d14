#include "monitor/platform/replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "switchyard/fd.h"

namespace switchyard::monitor {
namespace {

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

bool replace_file(const std::string& path, std::string_view text, std::string& why) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const Fd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644));
  // The umask is not asked: another user's node_exporter reads it.
  if (fd && ::fchmod(fd.get(), 0644) == 0 && write_all(fd.get(), text) &&
      ::rename(fresh.c_str(), path.c_str()) == 0) {
    return true;
  }
  why = std::strerror(errno);
  if (fd) ::unlink(fresh.c_str());
  return false;
}

}  // namespace switchyard::monitor
