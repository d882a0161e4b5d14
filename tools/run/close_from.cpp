#include "tools/run/close_from.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace switchyard::tools {
namespace {

bool close_range(unsigned first, unsigned last) {
#ifdef SYS_close_range
  return first > last || ::syscall(SYS_close_range, first, last, 0) == 0;
#else
  return first > last;
#endif
}

}  // namespace

// Without close_range (Linux 5.9) the table of open descriptors says which there are. Nothing is
// allocated to read it.
void close_from(int first, int kept, int kept_too) {
  if (kept > kept_too) std::swap(kept, kept_too);
  auto from = static_cast<unsigned>(first);
  bool closed = true;
  for (const int each : {kept, kept_too}) {
    if (each < first) continue;
    closed = closed && close_range(from, static_cast<unsigned>(each) - 1);
    from = static_cast<unsigned>(each) + 1;
  }
  if (closed && close_range(from, ~0u)) return;
  const auto stays = [&](int fd) { return fd < first || fd == kept || fd == kept_too; };
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_max = 1024;
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  alignas(8) char entries[4096];
  for (long got = 0;
       folder >= 0 && (got = ::syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0;) {
    for (long at = 0; at < got;) {
      const char* entry = entries + at;
      unsigned short bytes = 0;
      std::memcpy(&bytes, entry + 16, sizeof(bytes));  // linux_dirent64: d_ino, d_off, d_reclen
      const int fd = std::atoi(entry + 19);
      if (!stays(fd) && fd != folder) ::close(fd);
      at += bytes;
    }
  }
  if (folder >= 0) {
    ::close(folder);
    return;
  }
  const auto end = static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1 << 20));
  for (int fd = first; fd < end; ++fd) {
    if (!stays(fd)) ::close(fd);
  }
}

}  // namespace switchyard::tools
