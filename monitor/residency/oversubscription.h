// Oversubscription: jobs that don't fit together take turns on the device (--oversubscribe).
//
// Concept. The policy decides (policy/residency.h); here is what it is told and what follows. A job
// wants room when a client of it was told to wait for credit and still asks. It also does when it
// is out and a thread of it wants to go on. A job that must give room is wanted off the device
// (Reason::kYield) until such a thread is there. Memory that no job needs may stay
// (Lane::kept_bytes). Out of several that want to come back only the first in line may
// (Turn::may_return). Else the room would be gone before the client that waits for credit asks
// again. It comes while the other leaves (Turn::arrives).
//
// Nobody stands still. A job that was asked for room and stayed is not asked again by who still
// waits (JobResidency::stayed_at), unless it has left since. So a wait ends after each of the
// others was asked once. And what is granted leaves each job a way back (way_back.h). A request
// that leaves none is refused at once.
//
// Threading: one thread.
#pragma once

#include <vector>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"
#include "monitor/policy/handovers.h"
#include "monitor/policy/residency.h"
#include "monitor/residency/way_back.h"

namespace switchyard::monitor {

// So long may memory that is to leave stand still; then it stays.
inline constexpr Time kLeavesWithin = std::chrono::seconds(60);

// The values measured on real GPUs. Tests have small jobs on slow machines, and less time.
struct TurnSettings {
  unsigned stay_moves = policy::kStayMoves;
  // Memory is handed over where so much leaves. To export, send and import a chunk takes some 0.1
  // ms, to make it anew 0.6 while others copy, and the frames take their time.
  std::uint64_t worth_handing_over = 64u << 20;
};

class Oversubscription {
 public:
  Oversubscription(Registry& registry, GpuAccounts& gpus, policy::Handovers& handovers,
                   const TurnSettings& settings);

  // Decides who leaves and who may come back. Answers when to look again; 0: when something
  // happens. REQUIRES: the residency reports are those of this look.
  Time follow(Time now);

 private:
  // What the host can hold, and who is on each GPU, as of this look.
  struct Around {
    HostRoom host;
    std::vector<Crowd> crowds;
  };
  bool could_return(const Job& job, const Around& around) const;
  policy::Oversubscriber view_of(std::size_t gpu, const Job& job, const Around& around, Time now);
  std::vector<policy::Oversubscriber> views_of(std::size_t gpu, const Around& around, Time now);
  void give(std::size_t gpu, Job& giver, std::uint64_t bytes, Time now);

  Registry& registry_;
  GpuAccounts& gpus_;
  policy::Handovers& handovers_;
  const TurnSettings settings_;
};

// The memory kept there by jobs that are out. They would give it to any job that has waited since
// then.
std::uint64_t kept_bytes(const Registry& registry, const GpuAccounts& gpus, std::size_t gpu,
                         Time waits_since, Time now);

}  // namespace switchyard::monitor
