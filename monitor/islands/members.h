// Islands as the monitor knows them: jobs of one user that `run --co-run` put together, and the
// server whose channel groups they share (docs/internals/islands.md).
//
// Concept. An island is a name and an owner. Its key stands in each of its jobs, the server's
// included, and is the policy's name for it (policy/islands.h). The first job brings the key, and
// it lasts as long as any job of the island.
//
// The members of an island have the GPU at the same time. So they are of one class: a job that
// others must yield to stands outside.
//
// Threading: one thread, the monitor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "monitor/core/registry.h"

namespace switchyard::monitor::islands {

// The driver takes 48 clients for a server at least.
inline constexpr std::size_t kMostMembers = 40;

// Whether its process is an island's server, and no program of a user.
inline bool serves(const Job& job) { return !job.knobs.island_gpu.empty(); }
inline bool is_member(const Job& job) { return *job.island != 0 && !serves(job); }

// Why a job with these knobs cannot be made; empty: it can, or is in no island.
std::string refuse(const Registry& registry, const Owner& owner, const Knobs& knobs);
// Gives a job that was just made its key, if it is in an island.
void enter(const Registry& registry, Job& job);
// The others of its island; of a job that is no member, none.
std::vector<JobKey> others_of(const Registry& registry, const Job& job);

}  // namespace switchyard::monitor::islands
