// What people ask of a running job's hold on the GPU: the operations "pause", "resume", "swap-out",
// "swap-in" and "migrate" (switchyard/wire.h).
//
// Concept. Each takes effect at once, and is answered when it has come true: the GPU has done what
// was queued, memory has left or is back, the job is on the other GPU or is back. Until then the
// answer waits; whoever holds the connection asks for it again every few milliseconds.
//
// Threading: one thread, the monitor's.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "monitor/control/commands.h"

namespace switchyard::monitor {

// REQUIRES: the asker may change the job. Where the answer has to wait, `answer` says for what.
nlohmann::json hold(Monitor& monitor, Job& job, const std::string& op,
                    const nlohmann::json& request, Time now, Answer& answer);
nlohmann::json migrate(Monitor& monitor, Job& job, const nlohmann::json& request, Time now,
                       Answer& answer);

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
