// What people ask: JSON in, JSON out (switchyard/wire.h lists the operations).
//
// Concept. One function per operation; each answers an object with "ok". Nothing in a request is
// trusted: a value of another type is a usage error, never an exception.
//
// Threading: one thread, the monitor's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "monitor/monitor.h"
#include "monitor/processes.h"

namespace switchyard::monitor {

struct Answer {
  std::string json;
  // A job that was made for a process to come: watch its creator.
  JobKey created = 0;
  pid_t creator = 0;
  // A job that was paused and may still have work on the GPU: answer_paused() has the answer then.
  JobKey pausing = 0;
};

Answer answer_command(Monitor& monitor, const Peer& peer, std::string_view request, Time now);
// The answer to a `pause`, or nullopt while the job may still drain; `last`: whatever is known now.
std::optional<std::string> answer_paused(Monitor& monitor, JobKey job, Time now, bool last);

}  // namespace switchyard::monitor
