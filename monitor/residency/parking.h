// Parking: memory that leaves a GPU goes to another one instead of the host (--park).
//
// Concept. The table is ../policy/parking.h; here the accounts and pages are read, and what is
// allowed is written. The permission counts in the account of the other GPU before the client can
// see it (GpuAccounts::read_credits). It makes way for whatever is promised there or asked for; who
// asks waits meanwhile.
//
// A client parks on GPUs that it sees. The library keeps all memory where some of these cannot
// reach each other, so all of them can be reached.
//
// Threading: one thread.
#pragma once

#include <cstdint>

#include "monitor/accounting/gpu_accounts.h"
#include "monitor/core/registry.h"

namespace switchyard::monitor::parking {

struct Place {
  Client& client;
  unsigned lane;
  Client::Lane& state() const { return client.lanes.at(lane); }
};

// Whether its memory may stay on the GPU that the contexts of a job leave for another one, if it is
// there until then. The process must see both, and no job may take turns with it.
bool may_keep(const Job& job, const Place& place);

// The memory of a client's lane is ordered out by `order`. Where its last order let it stay, this
// says where it may be parked, and how much. A client whose contexts leave as well parks nothing:
// the driver would take that, too.
void leaves(const Registry& registry, GpuAccounts& gpus, const Job& job, const Place& place,
            ResidencyOrder& order, Time now);
// No more of it may be there.
void withdraw(Client::Lane& state, ResidencyOrder& order, Time now);

// What a client says. `anew`: it has been under another monitor. True: some has left.
bool hear(GpuAccounts& gpus, const Place& place, const ResidencyReport& said, bool anew, Time now);

// So much more of the GPU is needed than is held there now, so what is parked makes way as far as
// that is necessary. True: it is on its way. False: nothing is in the way, or it can't. A job that
// allocates may take `beyond` as well soon: for a part of that, way is made in advance.
bool make_way(Registry& registry, GpuAccounts& gpus, std::size_t gpu, std::uint64_t more, Time now,
              std::uint64_t beyond = 0);
// The same, at each look, for all that is promised and asked for.
void follow(Registry& registry, GpuAccounts& gpus, Time now);

}  // namespace switchyard::monitor::parking
