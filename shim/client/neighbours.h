// What the client asks of the rest of the library, and tells it.
//
// Concept. The rest stands above the client and includes it. So the client only declares what it
// calls here, and wiring/client.cpp makes the calls to those above.
//
// Threading: the first part under the connection's lock, the second on the service thread.
#pragma once

#include <cstdint>

#include "switchyard/wire.h"

namespace switchyard::shim::neighbours {

// --- joining ---

// The pause that is on, for the next monitor.
void tell_pause(wire::Hello& hello);
// The GPUs that an observer sees. Returns how many.
std::uint32_t list_observed_gpus(std::uint8_t (*uuid)[16]);
// Puts what was counted so far into the page behind `fd`, and the page in its place. No charge
// happens between the two. False: all is as it was.
bool move_to_page(int fd, const wire::Hello& hello);
// The process is a client of a monitor, and sees so many GPUs.
void joined(unsigned gpus);

// --- the service thread ---

// At each turn. True: look again soon.
bool look(std::uint64_t now_ns);
// There is a monitor: its wishes are done.
void heed_monitor();
// There is none: gates that are closed for others' sake open.
void without_monitor();
// It has just gone.
void monitor_gone();

}  // namespace switchyard::shim::neighbours
