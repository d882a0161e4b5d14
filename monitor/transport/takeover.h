// Root's system monitor takes the GPUs over from monitors that users have of their own.
//
// Concept. The holder of a claim on a GPU answers each process that connects to the claim
// (listen_socket.h). A process of root may say kTakeOver on that connection. A user's own monitor
// then says kHandsOver and ends. Its jobs find the socket closed and rejoin at the system's
// (paths.h), so root's monitor must listen there soon after. Any other listener, also a monitor of
// an older build, closes the connection or says nothing: then both monitors run beside each other,
// as before.
//
//   root's monitor                          the holder of the claim
//     connect                           →
//     kTakeOver                         →   believed from root alone (SO_PEERCRED)
//                                       ←   "socket PATH", then kHandsOver
//     waits for the end of the process  ←   ends
//
// A hostile holder costs root's monitor at most `limit` at its start, for all GPUs together.
//
// Threading: at start-up, before the loop; wants_gpus() on the loop's thread.
#pragma once

#include <string>
#include <vector>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

inline constexpr char kTakeOver[] = "take over\n";
inline constexpr char kHandsOver[] = "hands over\n";

// Asks the monitors of other users for these GPUs, and waits for the end of those that agree.
void take_over(const std::vector<std::string>& uuids, Time limit);

// Leaves the mark of root's system monitor (paths.h). False: `why` has the reason.
bool mark_system(std::string& why);

// Whether what has come on this connection to a claim is kTakeOver. It does not wait.
bool wants_gpus(int fd);

}  // namespace switchyard::monitor
