// Hand-overs: from whom a client that comes may take memory as it is (switchyard/handover.h).
//
// Concept. When a job gives room to another, one client of each gets a number: what leaves the one
// is offered under it to the other. They do the rest themselves, through the shared memory that
// only processes of one user see of each other. The number ends with the giver, and when either is
// told to come back for good.
//
// A hand-over is known a moment before the giver has to leave. It is *prepared* then: the giver
// offers its memory while it still works, so that no time is lost later. What comes to nothing is
// withdrawn.
//
// Threading: one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "monitor/core/registry.h"

namespace switchyard::monitor {

// Joins one client of `giver` whose memory is to leave the GPU with one of `taker` whose memory is
// away, if both are the same user's; those that are prepared for each other stay joined, all others
// that are prepared there don't. `soon_bytes`: what will leave, to prepare it; 0: it leaves now.
// `number`: not used before, and not 0.
void begin_handover(const Registry& registry, std::size_t gpu, const Job& giver, const Job& taker,
                    std::uint64_t soon_bytes, std::uint64_t number);

// What is prepared on the GPU comes to nothing.
void withdraw_prepared(const Registry& registry, std::size_t gpu);

// The numbers that the client may give and take under, as of now; 0: none. Nothing is offered to
// one that has gone: what is offered is free for nobody else.
std::uint64_t gives_now(const Registry& registry, const Client::Lane& lane);
std::uint64_t takes_now(const Registry& registry, const Client::Lane& lane);

void end_handover(Client::Lane& lane);

}  // namespace switchyard::monitor
