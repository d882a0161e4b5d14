// Descriptors beside those of the program's standard files.
//
// Concept. In a program without standard files the next descriptors are 0 to 2, and what it prints
// goes there. So what the simulated GPU keeps open stands above them.
//
// Threading: any thread.
#pragma once

#include <fcntl.h>
#include <unistd.h>

namespace fakecuda {

inline int apart(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return above;
}

}  // namespace fakecuda
