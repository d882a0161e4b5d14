// Coming back: what the account has room for, and who finds none on the device.
#include <algorithm>
#include <map>

#include "monitor/core/lanes.h"
#include "monitor/residency/parking.h"
#include "monitor/residency/residency.h"

namespace switchyard::monitor {

// Once in a look: to read what all clients show, for each of those that ask, would be their square.
void Residency::read_account(std::size_t gpu) {
  if (!read_.insert(gpu).second) return;
  gpus_.read_credits(gpu);
  memory_.rebalance(gpu);
}

// It is wanted in, and finds no room because more was promised than there is: without a monitor all
// come at once. So it waits for its turn like the others.
bool Residency::crowded_out(const Client::Lane& lane) {
  if (lane.residency.phase != abi::kReturning || lane.residency.error != abi::kSwapNoDeviceRoom) {
    return false;
  }
  read_account(lane.gpu);
  return gpus_[lane.gpu].account.overdrawn() > 0;
}

// The memory that is on its way out of a GPU already, because limits fell.
std::uint64_t Residency::leaves_anyway(std::size_t gpu) const {
  std::uint64_t bytes = 0;
  for (const auto& [key, job] : registry_.jobs()) {
    for_lanes(registry_, job, [&](const Client& client, unsigned, const Client::Lane& lane) {
      if (lane.gpu != gpu) return;
      const std::uint64_t says = excess_bytes(lane.residency, lane.residency_order);
      bytes += std::min(says, gpus_.granted(client, lane));
    });
  }
  return bytes;
}

// Follows how much may be there of a job that is out and wants to come back.
void Residency::follow_room(Job& job) {
  std::map<std::size_t, std::uint64_t> room;
  std::map<std::size_t, std::uint64_t> overdrawn;
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (room.count(state.gpu) == 0) {
      read_account(state.gpu);
      room[state.gpu] = gpus_[state.gpu].account.free();
      const std::uint64_t over = gpus_[state.gpu].account.overdrawn();
      overdrawn[state.gpu] = over == 0 ? 0 : over - std::min(over, leaves_anyway(state.gpu));
    }
    const ResidencyReport& said = state.residency;
    if (job.turn->arrives.count(state.gpu) != 0) {
      const std::uint64_t lacks = said.total_bytes - std::min(said.total_bytes, state.kept_bytes);
      const std::uint64_t more = std::min(room[state.gpu], lacks);
      state.kept_bytes += more;
      room[state.gpu] -= more;
    }
    // The job that gave it room may stay after all: that comes first.
    const std::uint64_t less = std::min(overdrawn[state.gpu], state.kept_bytes);
    state.kept_bytes -= less;
    overdrawn[state.gpu] -= less;
    ResidencyOrder order = state.residency_order;
    order.limit_bytes = state.kept_bytes;
    // Contexts that are away come with the first memory.
    order.contexts = order.contexts && said.detached() && state.kept_bytes == 0;
    order.gives = handovers_.gives(state.gpu, client.id);
    order.takes = handovers_.takes(state.gpu, client.id);
    tell(client, lane, state, order);
  });
}

void Residency::let_in(Job& job) {
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    order.limited = order.contexts = false;
    parking::withdraw(state, order, now_);
    state.noted.write().told_to_leave = Time{0};
    state.kept_bytes = 0;
    handovers_.returns(state.gpu, client.id);
    order.gives = order.takes = order.soon_bytes = 0;
    tell(client, lane, state, order);
  });
}

void Residency::limit_there(Job& job) {
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    ResidencyOrder order = state.residency_order;
    if (order.limited) return;
    order.limited = true;
    order.limit_bytes = state.kept_bytes = state.residency.resident_bytes;
    tell(client, lane, state, order);
  });
}

}  // namespace switchyard::monitor
