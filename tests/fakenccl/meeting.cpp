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

// The next `count` of a kind, on a page of their own.
template <typename Kind>
Kind* take(unsigned char* base, std::size_t& used, int count) {
  constexpr std::size_t kPage = 4096;
  Kind* found = base == nullptr ? nullptr : reinterpret_cast<Kind*>(base + used);
  used += (sizeof(Kind) * static_cast<std::size_t>(count) + kPage - 1) / kPage * kPage;
  return found;
}

// Where everything is in a file at `base`. Null: only how many bytes it takes.
Meeting lay_out(unsigned char* base, int ranks, std::size_t& bytes) {
  Meeting meeting;
  bytes = 0;
  meeting.ranks = ranks;
  meeting.words = take<Meeting::Words>(base, bytes, 1);
  meeting.rank = take<Meeting::Rank>(base, bytes, ranks);
  meeting.data = take<Meeting::Data>(base, bytes, ranks);
  meeting.channels = take<Meeting::Channel>(base, bytes, ranks * ranks);
  meeting.mailboxes = take<Meeting::Mailbox>(base, bytes, ranks * ranks);
  return meeting;
}

}  // namespace

Meeting open_meeting(std::uint64_t id, int ranks) {
  std::size_t bytes = 0;
  Meeting meeting = lay_out(nullptr, ranks, bytes);
  const int fd = ::open(path_of(id).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return meeting;
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0) {
    mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  ::close(fd);
  return mapped == MAP_FAILED ? meeting
                              : lay_out(static_cast<unsigned char*>(mapped), ranks, bytes);
}

void close_door(std::uint64_t id) { ::unlink(path_of(id).c_str()); }

}  // namespace fakenccl
