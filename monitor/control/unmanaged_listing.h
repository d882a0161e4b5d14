// The part of `ps` about unmanaged processes, as JSON: one row for each process and GPU.
//
// A command line may have a password in it. So it is there for root and for the process' owner
// alone, as the kernel names who asks.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>

#include "monitor/monitor.h"

namespace switchyard::monitor {

// Whether `peer` may see the command line of that process.
bool sees_command(const ProcessAbout& about, const Peer& peer);

// As of the last Monitor::look_at_unmanaged(). `peer` asks.
nlohmann::json list_unmanaged(Monitor& monitor, const Peer& peer, Time now);

}  // namespace switchyard::monitor
