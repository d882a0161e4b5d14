// Listening sockets that a service manager has made for this process: sd_listen_fds(3), without its
// library. systemd listens before the monitor runs, starts it at the first connection, and keeps
// listening after its end.
//
// Threading: at start-up, before there is another thread.
#pragma once

#include <string>
#include <vector>

#include "switchyard/fd.h"

namespace switchyard::monitor {

// Takes them over from the environment (LISTEN_PID, LISTEN_FDS), and removes those variables: close
// on exec, and non-blocking. Empty where there are none, or they are another process's.
std::vector<Fd> take_passed_sockets();

// Whether `fd` is a unix socket that listens at `path`.
bool listens_at(int fd, const std::string& path);

}  // namespace switchyard::monitor
