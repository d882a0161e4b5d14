// The events between two looks at what a job does.
//
// Concept. A job has its own state. Where it is on several GPUs, or has another state on its only
// one, it has one on each, too. Each that differs from the last look is an event. So the events
// tell the state and reason of each look:
//
//     before               after                event
//     nothing              a state              state, from unknown
//     a state              the same             none
//     a state              another, or for      work, if gates alone decide both; else state
//                            another's sake
//     its own on a GPU     not its own there    state, to unknown, of that GPU
//
// Gates alone decide "running", "idle", "held: limit, guard, turn ends" and "waiting: turn". These
// change with each turn, and a look sees one of many. An event's value is what its text tells
// besides, by the state after it:
//
//     waiting              bytes that it waits for
//     moving to a GPU      1 + the index of that GPU
//     unmanaged            the layout of its library's page
//     held: limit          millionths of the GPU's time
//
// Threading: pure functions.
#pragma once

#include <vector>

#include "monitor/core/events.h"
#include "monitor/status/job_status.h"

namespace switchyard::monitor::status {

// Whether gates alone decide it.
bool is_of_gates(Code code);

// Appends them to `out`. `before` null: the job came since the last look.
void add_changes(JobKey job, const JobStatus* before, const JobStatus& after, Time now,
                 std::vector<HistoryEvent>& out);

// What an event of kind `state` or `work` says.
inline Code code_before(const HistoryEvent& event) {
  return {static_cast<State>(event.from_state), static_cast<Reason>(event.from_reason)};
}
inline Code code_after(const HistoryEvent& event) {
  return {static_cast<State>(event.state), static_cast<Reason>(event.reason)};
}

}  // namespace switchyard::monitor::status
