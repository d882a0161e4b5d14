#include "monitor/policy/islands.h"

#include <algorithm>
#include <set>
#include <vector>

namespace switchyard::monitor::policy {
namespace {

using Places = std::vector<std::size_t>;  // in the snapshot

// One island, as this look finds it.
struct Island {
  Places members, servers;
  Snapshot snapshot;  // of its members alone
  Plan plan;          // of the members among themselves
};
using Found = std::map<std::uint64_t, Island>;

// A member that found no MPS daemon has channel groups of its own, and is like any client.
bool stands_alone(const ClientView& view) {
  return view.island == 0 || (!view.serves && view.compute_groups != 0);
}

Found find_islands(const Snapshot& snapshot) {
  Found out;
  for (std::size_t i = 0; i < snapshot.clients.size(); ++i) {
    const ClientView& view = snapshot.clients[i];
    if (stands_alone(view)) continue;
    Island& island = out[view.island];
    (view.serves ? island.servers : island.members).push_back(i);
  }
  return out;
}

void decide_inside(const Snapshot& snapshot, Island& island, IslandState& state, Time now) {
  island.snapshot.rules = snapshot.rules;
  island.snapshot.rules.kind = Kind::kFair;
  island.snapshot.rules.slices = island.snapshot.rules.foresee = false;
  island.snapshot.rules.part = state.part;
  for (const std::size_t at : island.members) {
    ClientView view = snapshot.clients[at];
    view.grant = Grant::kLocal;
    view.gang = view.stops = false;
    view.sliceable = false;
    island.snapshot.clients.push_back(view);
  }
  island.plan = decide(island.snapshot, now, state.members);
}

// What shuts out one member alone: nothing of it counts for the others meanwhile.
constexpr std::uint32_t kShutInside =
    abi::kClosedByLimit | abi::kClosedByGuard | abi::kClosedByPause;

// Adds a member; `progressed`: its GPU got on since the last look; `only`: it is the only one, so
// the island is paused when it is.
void add_member(ClientView& sum, const ClientView& member, std::uint32_t closed, bool progressed,
                bool only) {
  const bool shut = (closed & kShutInside) != 0;
  const bool away = shut && !(only && member.paused);
  sum.contexts += member.contexts;
  sum.work += member.work;
  sum.copies += member.copies;
  sum.progress += member.progress;
  sum.busy = sum.busy || (member.busy && (!away || progressed));
  sum.held = sum.held || (member.held && !away);
  sum.gateable = sum.gateable && member.gateable;
  sum.numbered = sum.numbered && member.numbered;
  sum.paused = sum.paused && member.paused;
  sum.stands = sum.stands && member.stands;
  sum.moves = sum.moves || member.moves;
  sum.leaves = sum.leaves || member.leaves;
  sum.short_copies = sum.short_copies || member.short_copies;
  sum.short_slices = sum.short_slices || member.short_slices;
  sum.restrained = sum.restrained || member.restrained;
  sum.priority = std::max(sum.priority, member.priority);
  sum.grant = member.grant;
  const bool sooner = sum.deadline == Time{0} || member.deadline < sum.deadline;
  if (member.deadline != Time{0} && sooner) sum.deadline = member.deadline;
}

// The weights of its jobs that work together; of all while none does.
double weight_of(const Island& island) {
  double active = 0, all = 0;
  std::set<std::uint64_t> counted, counted_active;
  for (std::size_t i = 0; i < island.members.size(); ++i) {
    const ClientView& view = island.snapshot.clients[i];
    if (view.paused) continue;
    if (counted.insert(view.job).second) all += view.weight;
    const bool works = island.plan.clients[i].active;
    if (works && counted_active.insert(view.job).second) active += view.weight;
  }
  return active > 0 ? active : all > 0 ? all : 1;
}

ClientView fold(const Snapshot& snapshot, std::uint64_t key, const Island& island,
                const IslandState& state) {
  ClientView sum;
  sum.client = sum.job = key;
  sum.priority = Priority::kLow;
  sum.numbered = sum.paused = sum.stands = !island.members.empty();
  for (std::size_t i = 0; i < island.members.size(); ++i) {
    const ClientView& member = snapshot.clients[island.members[i]];
    const auto known = state.members.clients.find(member.client);
    const bool progressed = known != state.members.clients.end() && known->second.progressed;
    add_member(sum, member, island.plan.clients[i].closed, progressed, island.members.size() == 1);
  }
  sum.weight = weight_of(island);
  if (island.members.size() == 1) sum.bursts = snapshot.clients[island.members[0]].bursts;
  sum.sliceable = !island.servers.empty();
  for (const std::size_t at : island.servers) {
    const ClientView& server = snapshot.clients[at];
    sum.compute_groups += server.compute_groups;
    sum.sliceable = sum.sliceable && server.sliceable;
    sum.slices_in_force = sum.slices_in_force && server.slices_in_force;
  }
  return sum;
}

// What the island's place among the others means for one member.
ClientPlan member_plan(const ClientPlan& inside, const ClientPlan& whole, bool only) {
  ClientPlan out = inside;
  out.slices = {};
  out.closed |= whole.closed & ~abi::kClosedByPause;
  out.armed = inside.armed || whole.armed;
  out.watch = inside.watch || whole.watch;
  out.linger = whole.linger;
  out.time_bursts = only && whole.time_bursts;
  out.tell_waits = only && whole.tell_waits;
  out.wait_foreseen = only && whole.wait_foreseen;
  out.ring_after = only ? whole.ring_after : 0;
  if (whole.spacing_us != 0) out.spacing_us = whole.spacing_us;
  out.wake = inside.wake || whole.wake;
  out.share_asked = inside.share_asked * whole.share_asked;
  out.cpu_burst_us = only ? whole.cpu_burst_us : -1;
  out.divided = inside.had_ns >= 0 && (inside.divided || whole.divided);
  out.lost_ns = inside.had_ns > 0 ? whole.lost_ns : 0;
  return out;
}

ClientPlan server_plan(const ClientView& server, const ClientPlan& whole, bool only) {
  ClientPlan out;
  out.client = server.client;
  // Of several servers only those with a group count as groups of the island.
  if (server.sliceable && (only || server.compute_groups != 0)) out.slices = whole.slices;
  out.active = whole.active;
  return out;
}

void unfold(const Snapshot& snapshot, const Island& island, const ClientPlan& whole, Plan& plan) {
  for (std::size_t i = 0; i < island.members.size(); ++i) {
    plan.clients[island.members[i]] =
        member_plan(island.plan.clients[i], whole, island.members.size() == 1);
  }
  for (const std::size_t at : island.servers) {
    plan.clients[at] = server_plan(snapshot.clients[at], whole, island.servers.size() == 1);
  }
  const Time inside = island.plan.look_again;
  if (inside != Time{0} && (plan.look_again == Time{0} || inside < plan.look_again)) {
    plan.look_again = inside;
  }
}

void note_part(const ClientState& whole, IslandState& island) {
  if (whole.worked_ns > 0) island.part = std::min(1.0, whole.had_ns / whole.worked_ns);
}

}  // namespace

Plan decide_with_islands(const Snapshot& snapshot, Time now, State& state, IslandStates& islands) {
  Found found = find_islands(snapshot);
  std::erase_if(islands, [&found](const auto& each) { return !found.contains(each.first); });
  if (found.empty()) return decide(snapshot, now, state);
  Snapshot folded;
  folded.rules = snapshot.rules;
  Places plain;
  for (std::size_t i = 0; i < snapshot.clients.size(); ++i) {
    if (!stands_alone(snapshot.clients[i])) continue;
    plain.push_back(i);
    folded.clients.push_back(snapshot.clients[i]);
  }
  for (auto& [key, island] : found) {
    decide_inside(snapshot, island, islands[key], now);
    folded.clients.push_back(fold(snapshot, key, island, islands[key]));
  }
  const Plan whole = decide(folded, now, state);
  Plan out = whole;
  out.clients.assign(snapshot.clients.size(), {});
  for (std::size_t i = 0; i < plain.size(); ++i) out.clients[plain[i]] = whole.clients[i];
  std::size_t at = plain.size();
  for (auto& [key, island] : found) {
    unfold(snapshot, island, whole.clients[at++], out);
    note_part(state.clients[key], islands[key]);
  }
  return out;
}

}  // namespace switchyard::monitor::policy
