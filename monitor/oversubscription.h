// Oversubscription: jobs that don't fit together take turns on the device (--oversubscribe).
//
// Concept. The policy decides (policy/residency.h); here is what it is told and what follows. A job
// wants room when a client of it was told to wait for credit and still asks, or when it is out and
// a thread of it wants to go on. Who must give room is wanted off the device (Presence::yielded)
// until such a thread is there, but for what nobody needs (Lane::kept_bytes). Out of several that
// want to come back only the first in line may (Presence::may_return), or the room would be gone
// before who waits for credit asks again; and it comes while the other leaves (Presence::arrives).
//
// Nobody stands still. A job that was asked for room and stayed is not asked again by who still
// waits (Presence::stayed_at), so a wait ends after each of the others was asked once. And what is
// granted leaves each job a way back: it must fit beside what the others can't have in the host at
// the same time (Presence::host_room). What would not is refused at once.
//
// Threading: one thread.
#pragma once

#include <vector>

#include "monitor/gpu_accounts.h"
#include "monitor/policy/residency.h"
#include "monitor/roster.h"

namespace switchyard::monitor {

// So long may memory take to leave; then it stays.
inline constexpr Time kLeavesWithin = std::chrono::seconds(60);

class Oversubscription {
 public:
  Oversubscription(Roster& roster, GpuAccounts& gpus);

  // Decides who leaves and who may come back. Answers when to look again; 0: when something
  // happens. REQUIRES: the residency reports are those of this look.
  Time follow(Time now);

 private:
  policy::Oversubscriber view_of(std::size_t gpu, Job& job, Time now);
  std::vector<policy::Oversubscriber> views_of(std::size_t gpu, Time now);
  void give(std::size_t gpu, Job& giver, std::uint64_t bytes);

  Roster& roster_;
  GpuAccounts& gpus_;
};

// Whether a client still asks for memory that it was told to wait for.
bool asks(const Client::Lane& lane, Time now);

// What jobs that are out have kept there, which they would give to anybody who has waited since
// then. REQUIRES: find_host_room().
std::uint64_t kept_bytes(const Roster& roster, std::size_t gpu, Time waits_since, Time now);

// What of the other jobs' memory is taken to be able to leave.
enum class Leaves {
  kAsTheySay,
  kAllThatTheyUse,  // what was granted a moment ago nobody has said yet
};

// Finds how much of each job the host has room for (Presence::host_room): its share of the pool,
// once all that is asked for now has been granted and nobody has more pinned than it needs. Where
// all other jobs idle, what is asked for counts for nothing: they leave before it is granted.
void find_host_room(Roster& roster, const GpuAccounts& gpus, Leaves leaves, Time now);

// Whether the other job could leave for one that has waited since then.
bool could_leave(const Job& other, Time waits_since, Time now);

// Whether `bytes` more would fit on the GPU if all other jobs that could leave it for one that
// waits since `waits_since` had left, as far as the host has room. REQUIRES: find_host_room().
bool fits_alone(const Roster& roster, const GpuAccounts& gpus, std::size_t gpu, const Job& job,
                std::uint64_t bytes, Leaves leaves, Time waits_since, Time now);

// Whether each job that oversubscribes the GPU could still be on it with all of its memory, if
// `job` had `bytes` more. Also true where that is not so already: nothing is gained by a refusal
// then. And where all others idle: nobody waits to come back. REQUIRES: find_host_room().
bool leaves_a_way_back(const Roster& roster, const GpuAccounts& gpus, std::size_t gpu,
                       const Job& job, std::uint64_t bytes, Leaves leaves, Time now);

// Whether a host pool of any size would let `bytes` more fit. Forgets what find_host_room() found.
bool only_the_host_lacks(Roster& roster, const GpuAccounts& gpus, std::size_t gpu, const Job& job,
                         std::uint64_t bytes, Time now);

}  // namespace switchyard::monitor
