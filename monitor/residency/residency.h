// Residency: whether a job's swappable memory is on its GPUs, and when it leaves and comes back.
//
// Concept. What people want is a property of the job (registry.h: Presence, Pause): all its clients
// on all its GPUs, also those that join later. So is that it idles (idle_release.h), or yields room
// to another (oversubscription.h). A client's own words tell how far it is (abi.h). Out of the two
// comes what the pages are told, and what the accounts count:
//
//     in ──► released: limited, counts what is there ──► out: its promises are suspended
//      ▲                 │ it fails, or takes too long             │ wanted in
//      └─────────────────┴──────────◄── it fits, counted in full ──┴── waits, tried again
//
// The room is counted before the client is told to come: nobody else can be given it meanwhile. Of
// those who take turns the first in line comes in parts, while the one before it leaves: each part
// as soon as the account has room for it. It works once all has come and is promised again.
//
// The host's pinned memory has one budget, divided by what each client can use
// (policy/host_pool.h).
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "monitor/core/registry.h"
#include "monitor/residency/memory_broker.h"
#include "monitor/residency/oversubscription.h"

namespace switchyard::monitor {

// Where a job's memory is, as people see it. A job that has memory of which nothing can leave is
// never swapped.
enum class ResidencyState : std::uint8_t { kResident, kMoving, kSwapped, kWaiting };
ResidencyState residency_of(const Registry& registry, const Job& job);
// Whether the job has memory on its GPUs and none of it is swappable.
bool nothing_leaves(const Registry& registry, const Job& job);
constexpr const char* to_string(ResidencyState where) {
  return where == ResidencyState::kMoving    ? "moving"
         : where == ResidencyState::kSwapped ? "swapped"
         : where == ResidencyState::kWaiting ? "waiting"
                                             : "resident";
}

// What a person wants of a swappable job; a pause may want it out as well (Pause::release).
void want_out(Job& job);
void want_in(Job& job);
bool wanted_out(const Job& job);

// What keeps a client's memory from leaving since it was told to; kSwapFine: nothing. Only the
// answer to the present order counts.
std::uint32_t failed(const Client::Lane& lane, Time now);
// The same for people.
std::string failure_text(std::uint32_t error, std::uint32_t result);

// What could not leave is left alone for so long by those who lack room. By who has waited since
// before that it is left alone as long as it waits.
inline constexpr Time kRests = std::chrono::seconds(10);

class Residency {
 public:
  Residency(Registry& registry, GpuAccounts& gpus, MemoryBroker& memory,
            std::uint64_t host_pool_bytes);

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
  void begin_move(Presence& presence, Time now) const;
  Time cost_of_move(const Presence& presence, Time now) const;
  bool observe(Job& job, Time now);
  bool crowded_out(const Client::Lane& lane);
  bool bring_about(Job& job, Time now);
  void tell_what_to_prepare(Job& job);
  bool tell_to_leave(Job& job, Time now);
  bool try_to_return(Job& job, Time now);
  void follow_room(Job& job, Time now);
  std::uint64_t leaves_anyway(std::size_t gpu) const;
  void give_up(Job& job, const std::string& why, Time now);
  void let_back(Job& job, Time now);
  void adopt(Job& job);
  void tell(Client& client, unsigned lane, Client::Lane& state, const ResidencyOrder& order);

  Registry& registry_;
  GpuAccounts& gpus_;
  MemoryBroker& memory_;
  Oversubscription oversubscription_;
  Time now_{0};  // of the last look
  Time due_{0};
  std::uint64_t pinned_bytes_ = 0;  // of it, by all clients, as of the last look
};

}  // namespace switchyard::monitor
