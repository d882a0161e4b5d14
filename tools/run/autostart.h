// A monitor to talk to: the one that answers, or one that we start.
//
// Concept. Hundreds of runs may start at once. One of them gets the lock beside the socket and
// starts switchyardd; the others keep trying to connect until it answers. Without the lock (a
// folder that we may not write) each starts one, and all but one end by themselves. Every wait has
// a limit.
//
// Threading: forks; call it from the only thread.
#pragma once

#include "tools/base/monitor_client.h"

namespace switchyard::tools {

// Connects, and starts the monitor when nobody answers. kMonitorUnreachable with its last words
// when it doesn't come up.
Result<MonitorClient> connect_or_start();

}  // namespace switchyard::tools
