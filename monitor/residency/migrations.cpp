#include "monitor/residency/migrations.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "monitor/core/lanes.h"
#include "monitor/residency/parking.h"
#include "monitor/residency/residency_state.h"
#include "switchyard/status.h"

namespace switchyard::monitor {
namespace {

// No work of it is held by the move, or its memory does not stay where it is.
bool is_held(const Job& job) {
  return job.pause->on || wanted_out(job) || job.memory->state != residency::State::kResident;
}

// The contexts are somewhere, in answer to the order to come back.
bool has_landed(const ResidencyReport& said, const ResidencyOrder& order) {
  return !order.contexts && !said.detached() && said.away() && answers(said, order);
}

bool finds_no_room(const ResidencyReport& said) {
  return said.error == abi::kSwapNoDeviceRoom && !said.resident();
}

// The driver refuses its memory.
bool is_refused(const ResidencyReport& said, const ResidencyOrder& order) {
  return said.error == abi::kSwapFailed && !said.resident() && answers(said, order);
}

// Its memory that stayed behind cannot be read from where its contexts are.
bool is_cut_off(const ResidencyReport& said, const ResidencyOrder& order) {
  return is_refused(said, order) && said.parked_bytes != 0;
}

std::optional<EventKind> kind_of(migration::Action action) {
  switch (action) {
    case migration::Action::kNothing:
      return std::nullopt;
    case migration::Action::kPrepare:
      return EventKind::kMovePrepares;
    case migration::Action::kLeave:
      return EventKind::kMoveLeaves;
    case migration::Action::kLand:
      return EventKind::kMoveLands;
    case migration::Action::kArrive:
      return EventKind::kMoveArrives;
    case migration::Action::kEnd:
      return EventKind::kMoveEnded;
  }
  return std::nullopt;
}

void tell(const Job& job, migration::Action action, Time now) {
  const Migration& move = *job.migration;
  const auto kind = kind_of(action);
  if (!kind) return;
  const bool ends = action == migration::Action::kEnd;
  const bool failed = ends && !move.failure.empty();
  HistoryEvent event = event_of(*kind, job.key, move.by, now);
  set_gpu(event, failed ? move.from : ends ? move.to : move.goal());
  event.value = failed ? static_cast<unsigned>(move.code) : move.state.back && !ends ? 1 : 0;
  job.tap.tell(event);
}

}  // namespace

Migrations::Migrations(Registry& registry, GpuAccounts& gpus, MemoryBroker& memory,
                       SliceController& slices)
    : registry_(registry), gpus_(gpus), memory_(memory), slices_(slices) {}

// All that is away needs its pool pinned, and so does what goes by the host without a copy before.
// Of a job that takes turns something is away most of the time.
template <typename Each>
void Migrations::for_spare_pools(Job& job, Each each) {
  if (is_held(job) || job.knobs.oversubscribe) return;
  for_contexts(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    const ResidencyReport said = client.page->residency(lane);
    const bool knows = client.page->unpinned(lane) != 0;
    const bool stays = parking::may_keep(job, {client, lane});
    if (knows && said.host_bytes != 0 && said.resident() &&
        (stays || client.page->precopies(lane))) {
      each(client, lane, state, !stays);
    }
  });
}

void Migrations::begin(Job& job, std::size_t to, const std::optional<Peer>& by, Time now) {
  // Its page may say by now that it has no context anywhere.
  const std::set<std::size_t> used = used_gpus(registry_, job);
  const std::size_t from = used.empty() ? *job.gpus.seen().begin() : *used.begin();
  spdlog::info("job '{}' goes from GPU {} to GPU {}", job.name, gpus_[from].info.index,
               gpus_[to].info.index);
  Migration& move = job.migration.write();
  move = {{}, from, to, "", kOk, by, 0};
  bool spare = false;
  for_spare_pools(job, [&](const Client&, unsigned, const Client::Lane&, bool) { spare = true; });
  const migration::Step step = migration::begin(spare, now);
  move.state = step.to;
  keep_room(job);
  act(job, step.action, now);
}

void Migrations::keep_room(const Job& job) {
  const Migration& move = *job.migration;
  gpus_[move.from].account.keep(job.key, gpus_[move.from].account.held(job.key));
  gpus_[move.to].account.keep(job.key, gpus_[move.from].account.in_full(job.key));
}

bool Migrations::follow(Time now) {
  bool ended = false;
  for (auto& [key, job] : registry_.jobs()) {
    Migration& move = job.migration.write();
    if (!migration::is_under_way(move.state)) continue;
    migration::Seen seen = see(job);
    const bool prepares = move.state.stage == migration::Stage::kPreparing;
    if (prepares && seen.any && migration::leaves_now(move.state, seen, now)) {
      note_prepared(job, seen, now);
      move.failure = why_not_now(job, now);
      seen.refused = !move.failure.empty();
    }
    const migration::Step step = migration::next(move.state, seen, now);
    const bool fails = step.to.back && !move.state.back;
    if (fails || seen.refused || !seen.any) note_failure(job, seen, now);
    move.state = step.to;
    act(job, step.action, now);
    ended = ended || step.action == migration::Action::kEnd;
  }
  for (auto& [id, client] : registry_.clients()) {
    if (client->exchanges) settle(*client, now);
  }
  return ended;
}

migration::Seen Migrations::see(Job& job) const {
  migration::Seen seen;
  std::uint64_t bytes = 0;
  const residency::JobResidency& memory = *job.memory;
  seen.away = true;
  for_contexts(registry_, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    const ResidencyReport said = client.page->residency(lane);
    const ResidencyOrder& order = state.residency_order;
    seen.any = true;
    bytes += said.resident_bytes;
    seen.prepares =
        seen.prepares || (*state.unpin != 0 && client.page->unpinned(lane) != *state.unpin);
    seen.away = seen.away && order.contexts && has_left(said, order);
    seen.does_not_come = seen.does_not_come || finds_no_room(said) || is_refused(said, order);
    seen.cut_off = seen.cut_off || is_cut_off(said, order);
    if (!has_landed(said, order)) {
      seen.on_its_way = true;
    } else if (is_on(client, lane, job.migration->goal())) {
      seen.there = true;
    } else {
      seen.elsewhere = true;
    }
  });
  std::uint64_t& most = job.migration.write().most;
  seen.comes = bytes > most;
  most = std::max(most, bytes);
  seen.held = is_held(job);
  seen.stays = !memory.wanted_out.has(residency::Reason::kMove);
  const bool out = released(memory.state);
  seen.in = memory.state == residency::State::kResident || (out && wanted_out(job));
  seen.does_not_come = seen.does_not_come || (out && !wanted_out(job));
  return seen;
}

// pre: it has just failed.
void Migrations::note_failure(Job& job, const migration::Seen& seen, Time now) const {
  Migration& move = job.migration.write();
  move.code = kRefusedByPolicy;
  if (!seen.any) {
    move.failure = "nothing of it uses a GPU any more";
  } else if (seen.refused) {
    // The code that found it has said it.
  } else if (move.state.stage == migration::Stage::kLeaving) {
    if (job.memory->failure.overdue) move.code = kTimedOut;
    move.failure = failure_text(job.memory->failure);
  } else if (move.state.stage == migration::Stage::kArriving) {
    move.failure = "there is no room for its memory";
    for_contexts(registry_, job,
                 [&](const Client& client, unsigned lane, const Client::Lane& state) {
                   const ResidencyReport said = client.page->residency(lane);
                   if (is_refused(said, state.residency_order))
                     move.failure = failure_text(said.error, said.swap_result);
                 });
  } else {
    if (now - move.state.since >= migration::kLandsWithin) move.code = kTimedOut;
    move.failure = "the driver did not restore it in time";
    for_contexts(registry_, job, [&](const Client& client, unsigned lane, const Client::Lane&) {
      const ResidencyReport said = client.page->residency(lane);
      if (said.error == abi::kSwapNotMoved)
        move.failure = failure_text(said.error, said.swap_result);
    });
  }
  spdlog::warn("job '{}' does not get to GPU {}: {}", job.name, gpus_[move.to].info.index,
               move.failure);
}

void Migrations::note_prepared(const Job& job, const migration::Seen& seen, Time now) const {
  spdlog::info("job '{}' {} its host memory before it is held, in {:.3f} s", job.name,
               seen.prepares ? "has not prepared all of" : "has prepared",
               seconds(now - job.migration->state.since));
}

void Migrations::act(Job& job, migration::Action action, Time now) {
  tell(job, action, now);
  switch (action) {
    case migration::Action::kNothing:
      return;
    case migration::Action::kPrepare:
      return prepare(job);
    case migration::Action::kLeave:
      return leave(job, now);
    case migration::Action::kLand:
      return land(job, now);
    case migration::Action::kArrive:
      return arrive(job, now);
    case migration::Action::kEnd:
      return end(job, now);
  }
}

void Migrations::prepare(Job& job) {
  // Neither "none" nor "not yet answered".
  unpin_ = unpin_ + 1 < abi::kAnswersNone ? unpin_ + 1 : 1;
  for_spare_pools(job, [&](Client& client, unsigned lane, Client::Lane& state, bool precopy) {
    state.unpin.write() = unpin_;
    client.page->write_unpin(lane, unpin_, precopy);
    client.page->ring();
  });
}

void Migrations::leave(Job& job, Time now) {
  if (!job.migration->state.back) keep_room(job);
  for_contexts(registry_, job, [&](Client& client, unsigned, const Client::Lane&) {
    if (client.exchanges) settle(client, now);
  });
  job.memory.take({.event = residency::Event::kWantedOut,
                   .reasons = residency::Reason::kMove,
                   .contexts = true},
                  now);
}

bool Migrations::is_on(const Client& client, unsigned lane, std::size_t gpu) const {
  return client.page->place(lane).uuid == gpus_[gpu].info.uuid;
}

// Its contexts are away, or have just come and have the driver's own slices.
void Migrations::exchange(Client& client, std::size_t a, std::size_t b, Time now) {
  const auto of_a = gpus_[a].account.take_out(client.id);
  const auto of_b = gpus_[b].account.take_out(client.id);
  if (of_a) gpus_[b].account.put_in(client.id, *of_a);
  if (of_b) gpus_[a].account.put_in(client.id, *of_b);
  for (auto& [lane, state] : client.lanes) {
    if (state.gpu == a || state.gpu == b) state.gpu = a + b - state.gpu;
  }
  for (const std::size_t gpu : {a, b}) gpus_[gpu].stale = true;
  slices_.moved(client, now);
}

std::vector<Uuid> Migrations::uuids() const {
  std::vector<Uuid> out;
  for (const auto& gpu : gpus_.all()) out.push_back(gpu.info.uuid);
  return out;
}

void Migrations::land(Job& job, Time now) {
  const Migration& move = *job.migration;
  spdlog::info("job '{}' has nothing on GPU {} any more", job.name, gpus_[move.start()].info.index);
  const std::vector<Uuid> machine = uuids();
  std::set<Client*> moving;
  for_contexts(registry_, job, [&](Client& client, unsigned lane, const Client::Lane& state) {
    client.page->write_place(lane, machine, move.goal());
    if (state.gpu == move.start()) moving.insert(&client);
  });
  for (Client* client : moving) {
    exchange(*client, move.from, move.to, now);
    client->exchanges = {move.from, move.to};
  }
  job.gpus.see(move.goal());
  // A small allocation may come before the memory does.
  if (const auto quota = gpus_[move.start()].account.quota(job.key)) {
    const bool returns = quota->reserved || quota->returns;
    gpus_[move.goal()].account.set_quota(job.key, {quota->bytes, false, quota->ceiling, returns});
  }
  memory_.write_pages(move.goal(), job.key);
}

void Migrations::settle(Client& client, Time now) {
  const auto [a, b] = *client.exchanges;
  for (auto& [lane, state] : client.lanes) {
    if ((state.gpu != a && state.gpu != b) || !client.page->report(lane).has_context()) continue;
    const Job* job = registry_.find(client.job);
    const bool lands = job != nullptr && job->migration->state.stage == migration::Stage::kLanding;
    const ResidencyReport said = client.page->residency(lane);
    if (lands || said.detached() || !answers(said, state.residency_order)) return;
    client.exchanges.reset();
    if (is_on(client, lane, a + b - state.gpu)) exchange(client, a, b, now);
    return;
  }
  client.exchanges.reset();  // it has no context any more
}

void Migrations::arrive(Job& job, Time now) {
  Migration& move = job.migration.write();
  move.most = 0;
  if (!move.state.back) {
    spdlog::info("job '{}' has its contexts on GPU {}", job.name, gpus_[move.to].info.index);
  }
  for_lanes(registry_, job, [&](Client& client, unsigned, const Client::Lane&) {
    if (client.exchanges) settle(client, now);
  });
  // Where each is now is where its next checkpoint brings it back, also after a move that failed.
  const std::vector<Uuid> machine = uuids();
  for_contexts(registry_, job, [&](Client& client, unsigned lane, const Client::Lane& state) {
    if (!client.exchanges) client.page->write_place(lane, machine, state.gpu);
  });
  if (!move.state.back) {
    job.gpus.move(move.from, move.to, used_gpus(registry_, job));
  }
  settle_gpus(job, now);
  job.memory.take({.event = residency::Event::kWantedIn, .reasons = residency::Reason::kMove}, now);
}

void Migrations::settle_gpus(Job& job, Time now) {
  const Migration& move = *job.migration;
  std::set<std::size_t> there;
  for_lanes(registry_, job,
            [&](const Client&, unsigned, const Client::Lane& state) { there.insert(state.gpu); });
  for (const std::size_t gpu : {move.from, move.to}) {
    if (there.count(gpu) != 0) {
      job.gpus.see(gpu);
    } else {
      job.gpus.lose(gpu);
    }
  }
  std::string ignored;
  memory_.reserve(job, now, ignored);
  for (const std::size_t gpu : {move.from, move.to}) memory_.write_pages(gpu, job.key);
}

void Migrations::end(Job& job, Time now) {
  const Migration& move = *job.migration;
  // Nothing of it may be left to arrive. What comes to it next shall not find it on a move.
  job.memory.take({.event = residency::Event::kWantedIn, .reasons = residency::Reason::kMove}, now);
  settle_gpus(job, now);
  for (const std::size_t gpu : {move.from, move.to}) gpus_[gpu].account.keep(job.key, 0);
  for_lanes(registry_, job, [&](Client& client, unsigned lane, Client::Lane& state) {
    if (*state.unpin == 0) return;
    state.unpin.write() = 0;
    client.page->write_unpin(lane, 0);
    client.page->ring();
  });
  if (move.failure.empty()) {
    spdlog::info("job '{}' is on GPU {} now", job.name, gpus_[move.to].info.index);
  }
}

}  // namespace switchyard::monitor
