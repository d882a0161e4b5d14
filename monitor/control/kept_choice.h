// What a person chose by `switchyard policy` and `backend`, kept for the next monitor.
//
// Concept. A small file beside the socket has the choice, and the options of the monitor that was
// told. The next monitor takes it over if it was started with the same options: who changes the
// options afterwards means those. The file must be ours alone and small, and every word of it
// valid; else it is ignored, with a line in the log.
//
// Threading: one thread, the monitor's.
#pragma once

#include "monitor/monitor.h"

namespace switchyard::monitor {

// Writes what is in force now. Does nothing for a monitor without a socket.
void keep_choice(Monitor& monitor);

// Puts into force what the last monitor on this socket was told, if anything.
void restore_choice(Monitor& monitor);

}  // namespace switchyard::monitor
