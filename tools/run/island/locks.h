// The lock files of an island (island.h).
//
// Threading: plain system calls.
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include "switchyard/fd.h"
#include "switchyard/folders.h"
#include "tools/run/island/island.h"

namespace switchyard::tools::island {

// Closed when something is executed.
inline Fd open_file(const Island& island, const char* name) {
  std::string why;
  return open_own_file((island.folder + "/" + name).c_str(), O_RDWR | O_CREAT, why);
}

// `how` as flock() has it. None: it could not be had.
inline Fd lock_file(const Island& island, const char* name, int how) {
  Fd file = open_file(island, name);
  while (file && ::flock(file.get(), how) != 0) {
    if (errno != EINTR) return {};
  }
  return file;
}

}  // namespace switchyard::tools::island
