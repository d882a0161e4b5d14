// Hand-overs: from whom a client that comes may take memory as it is (switchyard/handover.h).
//
// Concept. When a job gives room to another, one client of each is chosen, and the two get a number
// (policy/handovers.h has the table). Memory that leaves the one is offered under it to the other.
// They do the rest themselves, through the shared memory that only processes of one user see of
// each other.
//
// Threading: one thread.
#pragma once

#include <cstddef>

#include "monitor/core/registry.h"
#include "monitor/policy/handovers.h"

namespace switchyard::monitor {

// The client of `giver` whose memory is to leave the GPU, and one of `taker` whose memory is away.
// Nobody takes it (`recipient` 0) where the two are not the same user's.
policy::Handover pair_of(const Registry& registry, std::size_t gpu, const Job& giver,
                         const Job& taker);

}  // namespace switchyard::monitor
