// What people ask: JSON in, JSON out (switchyard/wire.h lists the operations).
//
// Concept. One function per operation; each answers an object with "ok". Nothing in a request is
// trusted: a value of another type is a usage error, never an exception.
//
// "pause", "resume", "swap-out", "swap-in" and "migrate" take effect at once. Their answers wait
// for the end: of the work that was queued, of the move of memory, or of the move to another GPU.
// The session asks for such an answer every few milliseconds.
//
// Threading: one thread, the monitor's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "monitor/monitor.h"
#include "monitor/platform/processes.h"

namespace switchyard::monitor {

// The event that a command waits for. The job's work on the GPU ends, or its ranks have come and it
// ends. Or its memory is out, or is back, or it is on another GPU.
enum class Awaits : std::uint8_t { kNothing, kDrained, kHeld, kOut, kIn, kMoved };

struct Answer {
  std::string json;
  // A job that was made for a process to come: watch its creator.
  JobKey created = 0;
  pid_t creator = 0;
  // What the answer waits for: `json` is as of now.
  Awaits awaits = Awaits::kNothing;
  bool looks = true;  // all jobs are to be looked at soon
  JobKey job = 0;
  // A question to the history, which answers instead.
  std::optional<history::Query> report = std::nullopt;
};

Answer answer_command(Monitor& monitor, const Peer& peer, std::string_view request, Time now);

// How long an answer waits at most.
Time patience(Awaits awaits);
// The answer, or nullopt while it has to wait; `last`: whatever is known now. REQUIRES:
// Monitor::follow_residency() was called at `now`.
std::optional<std::string> answer_if_ready(Monitor& monitor, Awaits awaits, JobKey job, Time now,
                                           bool last);
// The same, and calls it.
std::optional<std::string> answer_awaited(Monitor& monitor, Awaits awaits, JobKey job, Time now,
                                          bool last);

}  // namespace switchyard::monitor
