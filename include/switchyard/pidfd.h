// Handles of processes that a reused PID can't fool. Older C libraries lack both calls.
//
// Threading: any thread.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "switchyard/fd.h"

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace switchyard {

// Readable once the process has ended. Empty with errno: ESRCH, there is none; ENOSYS, a kernel
// before 5.3.
inline Fd open_pidfd(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

// As the caller; signal 0 only asks whether the process is there. False with errno.
inline bool signal_by(int pidfd, int signal) {
  return ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0;
}

}  // namespace switchyard
