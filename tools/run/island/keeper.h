// The process that ends an island's daemon some time after its last job.
//
//     waits for `members` ──free──► grace time ──still free, no client──► quit, ends
//            ▲                          │
//            └───────── a job came ─────┘
//
// Nobody can wait for the daemon itself, which is nobody's child, and `run` becomes the job.
//
// Threading: a process of its own.
#pragma once

#include "tools/run/island/island.h"

namespace switchyard::tools::island {

// Leaves one running, unless the island has one. REQUIRES: `starting` is held.
void leave_keeper(const Island& island);

}  // namespace switchyard::tools::island
