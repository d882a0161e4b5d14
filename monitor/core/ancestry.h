// The job of a process that runs without the library: the managed job from which it descends.
//
// Concept. `run -- env -i program`, a setuid program, a wrapper that drops LD_PRELOAD: NVML shows
// the process, and it is no client. It is the job's creator itself or a descendant of one of the
// job's processes, as long as nobody between them has ended.
//
// Threading: reads /proc; any thread. The answer may be out of date when it arrives.
#pragma once

#include <sys/types.h>

#include "monitor/core/registry.h"

namespace switchyard::monitor {

pid_t process_parent(pid_t pid);  // 0 when unknown

// Null: it descends from no job that is known.
const Job* job_by_descent(const Registry& registry, pid_t pid);

}  // namespace switchyard::monitor
