// Whether jobs that take turns can leave the GPUs. How much of their memory can the host hold, and
// has each of them still a way back?
//
// Concept. All jobs on a GPU can be there in turn, if the memory that they lack while one is there
// in full can be away. The others must have that much that can leave, and the host must hold that
// much (policy/host_pool.h). Both depend on what the jobs have and not on where it is just now. So
// a grant that keeps this true keeps it true until the next grant, whoever comes and goes in
// between.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"
#include "monitor/policy/host_pool.h"

namespace switchyard::monitor {

// What the host can hold of the jobs that take turns, as of now.
struct HostRoom {
  std::uint64_t bytes = 0;                        // of all GPUs together
  std::vector<std::uint64_t> taken;               // by GPU: what leaves there, or has left
  std::uint64_t left_for(std::size_t gpu) const;  // by the others
  // As if the host pool had any size.
  static HostRoom any(const GpuAccounts& gpus) {
    return {~0ull, std::vector<std::uint64_t>(gpus.size())};
  }
};

// A request for memory.
struct Request {
  std::size_t gpu = 0;
  const Job& job;
  std::uint64_t bytes = 0;
};

// A client's lane of a GPU as a user of the host pool.
policy::HostUser host_user(const GpuAccounts& gpus, const Job& job, const Client& client,
                           const Client::Lane& lane);

HostRoom host_room(const Registry& registry, const GpuAccounts& gpus);
// As it is once the request is granted.
HostRoom host_room_with(const Registry& registry, const GpuAccounts& gpus, const Request& request);

// What a job could still leave of its memory, by what it may have pinned of the host now.
std::uint64_t may_still_leave(std::size_t gpu, const Registry& registry, const Job& job);

// The part of the other jobs' memory that is taken to be able to leave.
enum class Leaves {
  kAsTheySay,
  kAllThatTheyUse,  // what was granted a moment ago nobody has said yet
};

// Whether the other job could leave for one that has waited since then.
bool could_leave(const Job& other, Time waits_since, Time now);

// All on one GPU, added up once for all that is asked of them in one look.
struct Crowd {
  // A job's memory there, wherever it is.
  struct Has {
    std::uint64_t all = 0;
    std::uint64_t granted = 0;  // of that, what it has allocated or may allocate unasked
    std::uint64_t full = 0;     // all, with what was promised to it
    std::uint64_t can_leave = 0;
    std::uint64_t stay = 0;  // for who waits (crowd_of)
    std::uint64_t stays() const { return all - can_leave; }
  };
  std::map<JobKey, Has> in_turns;
  std::uint64_t all = 0;        // of those
  std::uint64_t can_leave = 0;  // of those
  std::uint64_t stay = 0;       // of those
  std::uint64_t plain = 0;      // held by the others
  std::uint64_t room = 0;       // for all jobs
};
// For one that has waited since then.
Crowd crowd_of(std::size_t gpu, const Registry& registry, const GpuAccounts& gpus, Leaves leaves,
               Time waits_since, Time now);

// Whether the request fits once every other job that can be swapped out is, as far as the host has
// room.
bool fits_alone(const GpuAccounts& gpus, const Request& request, const HostRoom& host,
                const Crowd& crowd);

// Whether each job that oversubscribes the GPU could still be on it with all of its memory, if the
// request were granted. Jobs that take no turns are no reason against it where they are in the way
// already: nothing is gained by a refusal then.
bool leaves_a_way_back(const Registry& registry, const GpuAccounts& gpus, const Request& request,
                       const HostRoom& host, Leaves leaves);

// What jobs that take turns can do for the request of one of them.
struct TurnsOutlook {
  bool serve = false;       // it fits once others have left: no reason to refuse it
  bool way_back = true;     // each job keeps a way back, if all that it uses can leave
  bool host_lacks = false;  // a larger host pool would serve it
};
TurnsOutlook turns_outlook(const Registry& registry, const GpuAccounts& gpus,
                           const Request& request, Time waits_since, Time now);

}  // namespace switchyard::monitor
