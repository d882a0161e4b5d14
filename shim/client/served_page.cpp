#include "shim/client/served_page.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shim/client/process.h"
#include "shim/log.h"

namespace switchyard::shim {
namespace {

// A memfd of the size that was asked for, which nobody can shrink under our feet.
bool valid_memory(int fd) {
  struct stat info {};
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return ::syscall(SYS_fstat, fd, &info) == 0 && info.st_size == abi::kPageBytes && seals >= 0 &&
         (seals & F_SEAL_SHRINK) != 0;
}

// What the monitor serves: sections that this library has named, at the same places. Those that it
// knows of besides are skipped.
bool valid_directory(int fd, std::uint32_t& served) {
  std::uint32_t count = 0;
  abi::Section sections[abi::kMostSections];
  if (::pread(fd, &count, sizeof(count), offsetof(abi::Page, head.sections)) != sizeof(count) ||
      ::pread(fd, sections, sizeof(sections), offsetof(abi::Page, directory)) != sizeof(sections) ||
      count > abi::kMostSections) {
    return false;
  }
  served = 1u << static_cast<std::uint32_t>(abi::SectionId::kNone);  // there is a monitor
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!sections[i].fits(abi::kPageBytes)) return false;
    for (const abi::Section& mine : abi::kSections) {
      if (sections[i].id != mine.id) continue;
      const bool same = sections[i].offset == mine.offset && sections[i].stride == mine.stride &&
                        sections[i].count <= mine.count;
      if (!same) return false;
      served |= 1u << static_cast<std::uint32_t>(mine.id);
    }
  }
  return true;
}

}  // namespace

bool accept_page(int fd, const wire::Welcome& welcome) {
  if (welcome.layout_version != abi::kLayoutVersion) {
    log_line(Level::kWarn,
             "the monitor speaks layout %u of the page and this library %u: install the same "
             "version of both; this process runs unmanaged",
             welcome.layout_version, abi::kLayoutVersion);
    return false;
  }
  std::uint32_t served = 0;
  if (welcome.page_bytes != abi::kPageBytes || !valid_memory(fd) || !valid_directory(fd, served)) {
    log_line(Level::kWarn,
             "the monitor's page is not what this library asked for (%u bytes): this process runs "
             "unmanaged; install the same version of both",
             welcome.page_bytes);
    return false;
  }
  process().served.store(served, std::memory_order_relaxed);
  return true;
}

}  // namespace switchyard::shim
