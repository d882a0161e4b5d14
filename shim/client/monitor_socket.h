// The monitor's socket: where it may be, and whether its owner is trusted.
//
// Threading: any thread.
#pragma once

namespace switchyard::shim {

// A connected socket whose waits are bounded, or -1. `was_client`: a monitor has had this process,
// which may have handed its GPUs over to root's since.
int connect_monitor(bool was_client);

}  // namespace switchyard::shim
