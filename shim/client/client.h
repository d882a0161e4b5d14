// The connection to the monitor: joining, asking for credit, losing the monitor and finding it.
//
// Concept. join() connects, says who we are and receives the page and two bells (wire.h). From then
// on a service thread (service.cpp) listens; application threads only ever ask for credit. A
// monitor that is gone or silent stops nothing. The gate stays open, the limits stay as they were,
// and slices go back to the driver's default. The service thread joins again.
//
// Threading: any thread. request() holds the connection's lock for one bounded round trip.
#pragma once

#include <cstdint>

#include "shim/client/frames.h"
#include "switchyard/wire.h"

namespace switchyard::shim {

// A monitor whose heartbeat stands still for so long is gone.
inline constexpr std::int64_t kSilentMs = 2000;

// Joins, once per process, after a successful cuInit. False: this process runs unmanaged.
bool join();

// Joins as a client with one GPU, without a call of the driver: the service thread does, as soon as
// it can.
void join_later(const std::uint8_t (&uuid)[16]);

// Joins as an observer that sees its job's quota and is charged nothing (NVML alone). A process
// that uses CUDA joins at cuInit, never here. True when the page is a monitor's.
bool observe();

// Whether this process joined as an observer.
bool observing();

// Asks the monitor about a lane: kCharge for more credit, kRefresh when contexts came or went.
// False: no monitor, or no answer in time.
bool request(wire::Kind kind, int lane, std::uint64_t bytes, wire::Charged& answer);

// Identifies the monitor that keeps shared memory for us. Each join gives another number. 0: there
// is no monitor, or it can't keep memory.
std::uint32_t sharing_monitor();

// Asks about shared memory: kShare, with descriptors that go along and are closed; kOpenShared,
// whose answer brings some; kEndShare. False: no monitor, or no answer in time.
bool share(wire::Kind kind, const wire::Share& asked, Descriptors& descriptors,
           wire::Shared& answer);

// Rings the monitor: work after idleness, or a changed group. Never blocks.
void wake_monitor();

// The process has moved (hello.h: exchange_known_gpus). Waits for a round trip that is under way.
void exchange_gpus(const std::uint8_t (&one)[16], const std::uint8_t (&other)[16]);

// --- for the service thread ---

// What the thread waits on; -1 where there is none. `lost`: there was a connection, but the program
// has closed one of its descriptors.
struct MonitorFds {
  int socket;
  int doorbell;
  bool lost;
};
MonitorFds monitor_fds();

// Closes the connection after the monitor went away; limits stay as the page has them.
void lose_monitor(const char* why);

// One attempt to join a new monitor. False: try again later.
bool rejoin();

}  // namespace switchyard::shim
