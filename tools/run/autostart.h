// A monitor to talk to: the one that answers, or one that we start.
//
// Concept. Hundreds of runs may start at once. One of them gets the lock beside the socket and
// starts switchyardd; the others keep trying to connect until it answers. Without the lock (a
// folder that we may not write) each starts one, and all but one end by themselves. Every wait has
// a limit.
//
// Where root's system monitor is installed none is started: one of the user's own would have the
// GPUs without root's caps. It is waited for, because systemd restarts it within seconds.
//
// Threading: forks; call it from the only thread.
#pragma once

#include <chrono>
#include <string>

#include "tools/base/monitor_client.h"

namespace switchyard::tools {

// Connects, and starts the monitor when nobody answers. kMonitorUnreachable with its last words
// when it doesn't come up.
Result<MonitorClient> connect_or_start();

// Waits until a monitor answers on `socket`, and says so. kTimedOut after `limit`.
Result<MonitorClient> wait_for_system_monitor(const std::string& socket,
                                              std::chrono::milliseconds limit);

}  // namespace switchyard::tools
