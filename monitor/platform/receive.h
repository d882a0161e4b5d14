// Receiving from a socket whose other end is hostile, with the descriptors that come along.
//
// Concept. What does not fit into the receiver's room for descriptors the kernel closes, on the
// thread that receives. That may take for ever, so there is room for as many as one message can
// bring, whether they are wanted or not.
//
// Threading: any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <span>
#include <vector>

#include "switchyard/descriptors.h"
#include "switchyard/fd.h"

namespace switchyard::monitor {

// As recv with MSG_DONTWAIT. Descriptors are added to `came`; `lost`: some could not be opened.
inline ssize_t receive(int socket, std::span<char> bytes, std::vector<Fd>& came, bool& lost) {
  int fd[kMostInOneMessage];
  unsigned count = 0;
  const ssize_t got =
      receive_with(socket, bytes.data(), bytes.size(), MSG_DONTWAIT, fd, count, lost);
  for (unsigned i = 0; i < count; ++i) came.emplace_back(fd[i]);
  return got;
}

}  // namespace switchyard::monitor
