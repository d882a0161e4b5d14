// What a program of ours does first of all.
//
// Concept. The next files that are opened would have the numbers of closed standard streams.
// Messages would go into them: into the connection to the monitor, or into a client's.
//
// Threading: before there is another thread.
#pragma once

#include <fcntl.h>

namespace switchyard {

// Opens those of descriptors 0, 1 and 2 that are closed. An executed program finds them closed
// again. A write to a closed stdout fails, because lost output is no success.
inline void fill_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    // open() takes the lowest free number.
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    ::open("/dev/null", (fd == 1 ? O_RDONLY : O_RDWR) | O_CLOEXEC);
  }
}

}  // namespace switchyard
