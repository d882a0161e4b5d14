// What people ask: JSON in, JSON out (switchyard/wire.h lists the operations).
//
// Concept. One function per operation; each answers an object with "ok". Nothing in a request is
// trusted: a value of another type is a usage error, never an exception.
//
// Threading: one thread, the monitor's.
#pragma once

#include <string>
#include <string_view>

#include "monitor/monitor.h"
#include "monitor/platform/processes.h"

namespace switchyard::monitor {

// What a job is waited for: that its work on the GPU ends, that its ranks have come and it ends,
// that its memory is out, or is back; that it is on another GPU.
enum class Awaits : std::uint8_t { kNothing, kDrained, kHeld, kOut, kIn, kMoved };

struct Answer {
  std::string json;
  // A job that was made for a process to come: watch its creator.
  JobKey created = 0;
  pid_t creator = 0;
  // What the answer waits for (job_commands.h): `json` is as of now.
  Awaits awaits = Awaits::kNothing;
  JobKey job = 0;
};

Answer answer_command(Monitor& monitor, const Peer& peer, std::string_view request, Time now);

}  // namespace switchyard::monitor
