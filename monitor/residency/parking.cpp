#include "monitor/residency/parking.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "monitor/accounting/nvml_sampler.h"
#include "monitor/core/minus.h"
#include "monitor/platform/text.h"
#include "monitor/residency/oversubscription.h"

namespace switchyard::monitor::parking {
namespace {

constexpr char kSeesOne[] = "its process sees no other GPU";
constexpr char kNoRoom[] = "no other GPU that it sees has unreserved room";

// Those whose memory is on a GPU, or may be. What a job leaves behind while it moves follows soon.
std::vector<Place> parked_on(Registry& registry, std::size_t gpu) {
  std::vector<Place> places;
  for (auto& [id, client] : registry.clients()) {
    const Job* job = registry.find(client->job);
    if (job != nullptr && migration::is_under_way(job->migration->state)) continue;
    for (auto& [lane, state] : client->lanes) {
      if (state.parker.held() != 0 && state.parker.on == gpu) {
        places.push_back({*client, lane});
      }
    }
  }
  return places;
}

// Somebody waits for so much of the GPU's room beyond what is promised.
std::uint64_t asked_for(const Registry& registry, const GpuAccounts& gpus, std::size_t gpu,
                        Time now) {
  std::uint64_t bytes = 0;
  const Account& account = gpus[gpu].account;
  for (const auto& [id, client] : registry.clients()) {
    const auto quota = account.quota(client->job);
    if (quota && quota->reserved) continue;
    const std::uint64_t most =
        quota ? minus(quota->bytes, account.charged(client->job)) : ~std::uint64_t{0};
    for (const auto& [lane, state] : client->lanes) {
      if (state.gpu != gpu || !asks(state, now)) continue;
      // No sum of these wraps around, whatever they ask for.
      bytes += std::min({state.wait->lacks_bytes, most, account.capacity().value_or(0)});
    }
  }
  return bytes;
}

std::optional<unsigned> lane_on(const Client& client, std::size_t gpu) {
  for (const auto& [lane, state] : client.lanes) {
    if (state.gpu == gpu) return lane;
  }
  return std::nullopt;
}

// Contexts come unasked, there as well: a part stays free for them.
std::uint64_t room_on(const Registry& registry, GpuAccounts& gpus, std::size_t gpu, Time now) {
  gpus.read_credits(gpu);
  const Account& account = gpus[gpu].account;
  if (!account.capacity()) return 0;
  const std::uint64_t spare = *account.capacity() / kKeptForOverhead;
  return minus(account.free(), spare + asked_for(registry, gpus, gpu, now));
}

bool fails(const ResidencyReport& said) {
  return said.away() && said.error != abi::kSwapFine && said.error != abi::kSwapNoDeviceRoom;
}

// Where so much could be parked beside what is there already.
std::vector<policy::Spot> spots_for(const Registry& registry, GpuAccounts& gpus, const Place& place,
                                    Time now) {
  const policy::Parker& parker = place.state().parker;
  std::vector<policy::Spot> spots;
  for (const auto& [other, beside] : place.client.lanes) {
    // All that is parked is on one GPU.
    if (other == place.lane || (parker.there != 0 && parker.on != beside.gpu)) continue;
    const std::uint64_t held = parker.on == beside.gpu ? parker.held() : 0;
    spots.push_back({beside.gpu, room_on(registry, gpus, beside.gpu, now) + held});
  }
  return spots;
}

// Brings what is allowed into the order.
void write(const Client& client, const policy::Parker& parker, ResidencyOrder& order) {
  const auto lane = lane_on(client, parker.on);
  order.park_bytes = lane ? parker.allowed : 0;
  order.park_lane = lane && parker.held() != 0 ? *lane + 1 : 0;
}

void assign(const Registry& registry, GpuAccounts& gpus, const Job& job, const Place& place,
            ResidencyOrder& order, Time now) {
  Client::Lane& state = place.state();
  policy::Parker& parker = state.parker;
  state.not_parked = nullptr;
  order.park_only = job.knobs.park == Park::kPeer && !job.knobs.oversubscribe;
  const std::uint64_t there =
      std::min(state.residency.resident_bytes, gpus.granted(place.client, state));
  const std::uint64_t leaves = minus(there, order.limit_bytes);
  const bool parks = job.knobs.park != Park::kHost && leaves != 0;
  const std::vector<policy::Spot> spots =
      parks ? spots_for(registry, gpus, place, now) : std::vector<policy::Spot>();
  const auto spot = policy::choose(spots, leaves + parker.there);
  parker = policy::allowed(parker, spot ? spot->gpu : parker.on, spot ? spot->room : 0, now);
  write(place.client, parker, order);
  gpus.read_credits(parker.on);  // it counts there from now on
  if (!parks) return;
  if (parker.allowed < leaves + parker.there) state.not_parked = spots.empty() ? kSeesOne : kNoRoom;
  spdlog::info("job '{}' may park {} of {}{}{}", job.name, bytes_text(parker.allowed),
               bytes_text(leaves),
               spot ? fmt::format(" on GPU {}", gpus[parker.on].info.index) : "",
               state.not_parked != nullptr ? fmt::format(": {}", state.not_parked) : "");
}

// It stays on the GPU that its contexts leave, and follows them: it comes back at once.
bool may_stay(const Job& job, const Place& place) {
  const Migration& move = *job.migration;
  const auto& out = job.memory->wanted_out;
  return move.state.stage == migration::Stage::kLeaving && !move.state.back &&
         out == residency::Reason::kMove && may_keep(job, place);
}

// It leaves for another GPU. True: what it keeps where it is needs no host.
bool moves(GpuAccounts& gpus, const Job& job, const Place& place, ResidencyOrder& order, Time now) {
  policy::Parker& parker = place.state().parker;
  const Migration& move = *job.migration;
  if (!migration::is_under_way(move.state)) return false;
  const bool kept = parker.held() != 0 && parker.on == move.from;
  if (!kept && (parker.held() != 0 || order.limited || !may_stay(job, place))) return false;
  // On the way back nothing more stays, and what is there waits for the contexts.
  const std::uint64_t bytes = move.state.back ? parker.there
                              : kept          ? parker.allowed
                                              : place.state().residency.resident_bytes;
  parker = policy::allowed(parker, move.from, bytes, now);
  order.park_only = false;
  write(place.client, parker, order);
  gpus.read_credits(move.from);
  return true;
}

}  // namespace

bool may_keep(const Job& job, const Place& place) {
  const Migration& move = *job.migration;
  return !job.knobs.oversubscribe && place.state().gpu == move.from &&
         lane_on(place.client, move.to);
}

void leaves(const Registry& registry, GpuAccounts& gpus, const Job& job, const Place& place,
            ResidencyOrder& order, Time now) {
  if (moves(gpus, job, place, order, now)) return;
  if (order.contexts || job.memory->contexts_out.any()) {
    withdraw(place.state(), order, now);
  } else if (!order.limited) {
    assign(registry, gpus, job, place, order, now);
  }
}

void withdraw(Client::Lane& state, ResidencyOrder& order, Time now) {
  state.parker = policy::allowed(state.parker, state.parker.on, 0, now);
  order.park_bytes = 0;
  order.park_only = false;
}

bool hear(GpuAccounts& gpus, const Place& place, const ResidencyReport& said, bool anew, Time now) {
  Client& client = place.client;
  Client::Lane& state = place.state();
  policy::Parker& parker = state.parker;
  const auto there = client.lanes.find(said.parked_lane - 1);
  // Parked memory is in use where it left. More than that is made up.
  const Account::Holding* holding = gpus[state.gpu].account.holding(client.id);
  const std::uint64_t parked =
      holding != nullptr ? std::min(said.parked_bytes, holding->used()) : 0;
  if (anew && parked != 0 && parker.held() == 0 && there != client.lanes.end()) {
    const std::size_t on = there->second.gpu;
    parker = policy::found(on, std::min(parked, gpus[on].memory.total_bytes));
    write(client, parker, state.residency_order);
  }
  const std::uint64_t before = parker.there;
  parker = policy::reported(parker, parked, fails(said), now);
  // Memory that has left needs no more room than it took. Without an order to leave it needs none.
  const bool left = said.away() && has_left(said, state.residency_order);
  if (parker.allowed > parker.there && (left || !state.residency_order.limited)) {
    parker = policy::allowed(parker, parker.on, parker.there, now);
    write(client, parker, state.residency_order);
    client.page->write_residency(place.lane, state.residency_order);
  }
  return parker.there < before;
}

bool make_way(Registry& registry, GpuAccounts& gpus, std::size_t gpu, std::uint64_t more, Time now,
              std::uint64_t beyond) {
  gpus.read_credits(gpu);
  const std::uint64_t way = gpus[gpu].account.in_the_way(more);
  if (way == 0) return false;
  const std::vector<Place> places = parked_on(registry, gpu);
  std::vector<policy::Parker*> parkers;
  for (const Place& each : places) {
    policy::Parker& parker = each.state().parker;
    const ResidencyReport said = each.client.page->residency(each.lane);
    parker = policy::reported(parker, said.parked_bytes, fails(said), now);
    parkers.push_back(&parker);
  }
  const bool can = policy::make_way(parkers, {way, beyond}, now);
  for (const Place& each : places) {
    ResidencyOrder& order = each.state().residency_order;
    if (order.park_bytes == each.state().parker.allowed) continue;
    write(each.client, each.state().parker, order);
    each.client.page->write_residency(each.lane, order);
    each.client.page->ring();
    spdlog::info("client {} may have {} parked on GPU {}: a job needs room there", each.client.id,
                 bytes_text(order.park_bytes), gpus[gpu].info.index);
  }
  return can;
}

void follow(Registry& registry, GpuAccounts& gpus, Time now) {
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    if (parked_on(registry, gpu).empty()) continue;
    const std::uint64_t asked = asked_for(registry, gpus, gpu, now);
    gpus.read_credits(gpu);
    // Nobody is disturbed for what would not fit all the same.
    const bool fits = gpus[gpu].account.overdrawn(asked) == 0;
    make_way(registry, gpus, gpu, fits ? asked : 0, now);
  }
}

}  // namespace switchyard::monitor::parking
