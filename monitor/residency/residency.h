// Residency: whether a job's swappable memory is on its GPUs, and when it leaves and comes back.
//
// Concept. The place of a job's memory, and the reasons why it is wanted off the device, are
// properties of the job. They hold for all its clients on all its GPUs, also for those that join
// later. The table of policy/job_residency.h decides what comes next. Here is its executor: it
// reads what the clients say (abi.h), does the table's actions, and tells what came of them. An
// action writes pages, or the account, or both.
//
// The room is counted before the client is told to come: nobody else can be given it meanwhile. Of
// those that take turns the first in line comes in parts, while the one before it leaves. Each part
// comes as soon as the account has room for it. It works once all has come and is promised again.
//
// The host's pinned memory has one budget, divided by what each client can use
// (policy/host_pool.h).
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "monitor/core/registry.h"
#include "monitor/policy/handovers.h"
#include "monitor/policy/job_residency.h"
#include "monitor/residency/memory_broker.h"
#include "monitor/residency/oversubscription.h"

namespace switchyard::monitor {

class Residency {
 public:
  Residency(Registry& registry, GpuAccounts& gpus, MemoryBroker& memory,
            std::uint64_t host_pool_bytes, const TurnSettings& turns);

  // A client whose page isn't published yet. `rejoins`: its memory may be away already.
  void join(Client& client, bool rejoins);
  // Looks at all of them and tells each what is due. True: something changed, so decide anew.
  bool follow(Time now);
  // When to look again, whatever happens; 0: when something does.
  Time due() const { return due_; }
  // Memory was given back: who waits is tried again at the next follow().
  void room_came();

 private:
  void divide_host_pool();
  residency::Seen see(const Job& job) const;
  bool observe(Job& job, Time now);
  void hear(Job& job, Client& client, unsigned lane, Client::Lane& state);
  // The same, the first time after another monitor.
  void hear_carried(Job& job, Client& client, unsigned lane, Client::Lane& state);
  void find_away(Job& job);
  void read_account(std::size_t gpu);
  bool crowded_out(const Client::Lane& lane);
  bool bring_about(Job& job, Time now);
  // Does it; answers what came of it, if the table waits for that.
  std::optional<residency::Input> act(Job& job, residency::Action action, Time now);
  void tell_what_to_prepare(Job& job);
  residency::Input order_out(Job& job, bool contexts, Time now);
  void follow_room(Job& job);
  std::uint64_t leaves_anyway(std::size_t gpu) const;
  void let_in(Job& job);
  void limit_there(Job& job);
  void tell(Client& client, unsigned lane, Client::Lane& state, const ResidencyOrder& order);

  Registry& registry_;
  GpuAccounts& gpus_;
  MemoryBroker& memory_;
  policy::Handovers handovers_;
  Oversubscription oversubscription_;  // plans them
  Time now_{0};                        // of the last look
  Time due_{0};
  std::uint64_t pinned_bytes_ = 0;  // of it, by all clients, as of the last look
  std::set<std::size_t> read_;      // GPUs whose account was read in this look
};

}  // namespace switchyard::monitor
