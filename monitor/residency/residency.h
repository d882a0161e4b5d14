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
#include <string>

#include "monitor/core/registry.h"
#include "monitor/policy/handovers.h"
#include "monitor/policy/job_residency.h"
#include "monitor/residency/memory_broker.h"
#include "monitor/residency/oversubscription.h"

namespace switchyard::monitor {

// Where a job's memory is, as people see it. A job that has memory of which nothing can leave is
// never swapped.
enum class ResidencyState : std::uint8_t { kResident, kMoving, kSwapped, kWaiting };
ResidencyState residency_of(const Registry& registry, const Job& job);
// The same of its memory on one of its GPUs.
ResidencyState residency_on(const Registry& registry, const Job& job, std::size_t gpu);
// Whether the job has memory charged there.
bool uses(const Registry& registry, const Job& job, std::size_t gpu);
// Whether the job has memory on its GPUs and none of it is swappable.
bool nothing_leaves(const Registry& registry, const Job& job);
constexpr const char* to_string(ResidencyState where) {
  return where == ResidencyState::kMoving    ? "moving"
         : where == ResidencyState::kSwapped ? "swapped"
         : where == ResidencyState::kWaiting ? "waiting"
                                             : "resident";
}

// What a person wants of a swappable job. It is wanted in against all reasons to be out.
void want_out(Job& job, Time now);
void want_in(Job& job, Time now);
inline bool wanted_out(const Job& job) { return job.memory->wanted_out.any(); }

// The error that keeps a client's memory from leaving since it was told to; kSwapFine: none. Only
// the answer to the present order counts.
std::uint32_t failed(const Client::Lane& lane, Time now);
// The same for people.
std::string failure_text(std::uint32_t error, std::uint32_t result);
std::string failure_text(const residency::Failure& failure);

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
