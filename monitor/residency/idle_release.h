// Idling: a job that has not worked for long gives its memory back by itself (--idle-release).
//
// Concept. A job works in three cases. A launch or a copy of any of its clients was counted since
// the last look. Or the GPU is known to have work of it, or a thread of it wants to go on and is
// held. Work restarts its clock, and so does whatever a person asks. When the clock runs out its
// memory is wanted off the device (Reason::kIdle), until a thread stands before swap's admission.
// Then it comes back when it fits. What cannot leave stays, and is not tried again before the clock
// has run out once more.
//
// Threading: one thread.
#pragma once

#include "monitor/core/registry.h"

namespace switchyard::monitor {

// Looks at what the job's clients say and decides whether it idles. REQUIRES: the residency reports
// of its lanes are those of this look.
void follow_idleness(const Registry& registry, Job& job, Time now);

// It is wanted where it was, and its clock begins anew.
void want_back(Job& job, Time now);

}  // namespace switchyard::monitor
