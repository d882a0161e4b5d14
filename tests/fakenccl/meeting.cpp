#include "meeting.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace fakenccl {
namespace {

std::string path_of(std::uint64_t id) {
  const char* state = ::getenv("FAKECUDA_STATE");
  char name[64];
  ::snprintf(name, sizeof name, ".nccl-%016llx", static_cast<unsigned long long>(id));
  return (state != nullptr ? std::string(state) : "/tmp/fakecuda-" + std::to_string(::getuid())) +
         name;
}

}  // namespace

Meeting* open_meeting(std::uint64_t id) {
  const int fd = ::open(path_of(id).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, sizeof(Meeting)) == 0) {
    mapped = ::mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  return mapped == MAP_FAILED ? nullptr : static_cast<Meeting*>(mapped);
}

void close_door(std::uint64_t id) { ::unlink(path_of(id).c_str()); }

}  // namespace fakenccl
