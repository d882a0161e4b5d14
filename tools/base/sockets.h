// Which sockets a monitor may answer on, in the order in which to try them.
//
// Concept. paths.h names one socket. A tool has one more chance. If the socket of root's monitor is
// left over from a monitor that is gone, the user's own monitor serves.
//
// Threading: reads the environment; call it from the only thread.
#pragma once

#include <string>
#include <vector>

namespace switchyard::tools {

// Never empty unless the path that SWITCHYARD_SOCKET or XDG_RUNTIME_DIR gives is too long.
std::vector<std::string> candidate_sockets();

// Where a monitor that only observes may answer: root's, then one's own.
std::vector<std::string> observer_sockets();

// True when there is no socket at any of them: no monitor runs, and none was killed. A monitor that
// ends removes its socket; who finds a socket that nobody answers at must not take it for that. Nor
// who finds none where a person has named one: the name may be mistyped.
bool monitor_absent();

// Whether a person or a job named the socket: SWITCHYARD_SOCKET or --socket.
bool socket_named();

// Where a monitor that we start should listen. Empty: the path is too long.
std::string own_socket();

// Whether root's system monitor serves this machine, so that no other is started to listen on
// `socket`. A socket that a person named is theirs.
bool system_monitor_serves(const std::string& socket);

}  // namespace switchyard::tools
