// Stops a process that uses the simulated GPU (SIGSTOP), as a test wants it stopped.
//
// Concept. The processes of a simulated GPU share one lock, of which a real one has none. A process
// that is stopped while it holds that lock stops all others. So the lock is held here until the
// process has stopped: then the process does not hold it.
//
// Threading: any thread; it must not hold the lock itself.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "shared_state.h"

namespace fakecuda {

// 'T': stopped; 0: there is no such process.
inline char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() ? '\0' : text[end + 2];
}

// False: the state file could not be used, or the process has ended.
inline bool stop_process(const std::string& state_file, pid_t pid) {
  const int fd = ::open(state_file.c_str(), O_RDWR | O_CLOEXEC);
  void* map = fd < 0
                  ? MAP_FAILED
                  : ::mmap(nullptr, sizeof(StateFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd >= 0) ::close(fd);
  if (map == MAP_FAILED) return false;
  pthread_mutex_t& lock = static_cast<StateFile*>(map)->lock;
  if (::pthread_mutex_lock(&lock) == EOWNERDEAD) ::pthread_mutex_consistent(&lock);
  bool stopped = ::kill(pid, SIGSTOP) == 0;
  while (stopped && state_of(pid) != 'T') {
    stopped = state_of(pid) != '\0' && state_of(pid) != 'Z';
    ::usleep(100);
  }
  ::pthread_mutex_unlock(&lock);
  ::munmap(map, sizeof(StateFile));
  return stopped;
}

}  // namespace fakecuda
