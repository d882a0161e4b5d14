// The monitor of the host, as a container sees it: a socket in a mounted folder.
//
// Threading: the only thread.
#pragma once

#include <stdbool.h>

#define SWITCHYARD_SYSTEM_FOLDER "/run/switchyard"
#define SWITCHYARD_SYSTEM_SOCKET SWITCHYARD_SYSTEM_FOLDER "/monitor.sock"

// Whether somebody listens on SWITCHYARD_SOCKET, or on root's socket where that is not set. Else
// `why` says which mount is missing, or what to start.
//
// In a user namespace, root of the host has another number, so the library would take it for a
// stranger. There SWITCHYARD_SOCKET is set: whoever mounted the folder vouches for it.
bool find_monitor(char* why, unsigned size);
