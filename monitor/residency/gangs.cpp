#include "monitor/residency/gangs.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "monitor/core/lanes.h"
#include "monitor/residency/pausing.h"
#include "monitor/residency/residency_state.h"
#include "switchyard/status.h"

namespace switchyard::monitor {

struct Gangs {
  static GangHold& hold_of(Job& job) { return job.gang.write(); }
  static GangKind& kind_of(Job& job) { return job.gang_kind.write(); }
};

namespace gangs {
namespace {

using Stage = GangHold::Stage;

constexpr Time kDrainsWithin = std::chrono::seconds(1);

// What a client says; nothing if it is in no communicator of several ranks.
cut::Process process_of(const Client& client, const CutReport& said) {
  cut::Process out;
  out.pid = client.peer.pid;
  out.launching = said.launching;
  out.stopped = said.stopped;
  out.stands = client.standing.why;
  for (const CommunicatorReport& each : said.communicators) {
    if (each.ranks < 2) continue;
    out.places.push_back({each.id, each.rank, each.ranks, each.launched});
    out.sends = out.sends || each.sent != 0;
  }
  return out;
}

std::vector<cut::Process> processes_of(const Registry& registry, const Job& job) {
  std::vector<cut::Process> out;
  for_clients(registry, job, [&](const Client& client) {
    cut::Process process = process_of(client, client.page->cut());
    if (!process.places.empty()) out.push_back(std::move(process));
  });
  return out;
}

void enter(Job& job, Stage stage, Time now) {
  GangHold& gang = Gangs::hold_of(job);
  gang.stage = stage;
  gang.since = now;
}

// All targets first: a rank that finds the new number compares with them.
void ask(Registry& registry, Job& job) {
  GangHold& gang = Gangs::hold_of(job);
  gang.number = gang.number + 1 != 0 ? gang.number + 1 : 1;
  for_clients(registry, job, [&](const Client& client) {
    for (const CommunicatorReport& each : client.page->communicators()) {
      const auto target = gang.cut.targets.find(each.id);
      client.page->set_target(each, target != gang.cut.targets.end() ? target->second : 0);
    }
  });
  for_clients(registry, job, [&](const Client& client) { client.page->ask_for_cut(gang.number); });
}

void release(Registry& registry, Job& job) {
  Gangs::hold_of(job).stage = Stage::kNone;
  for_clients(registry, job, [](const Client& client) { client.page->ask_for_cut(0); });
}

// Nobody waits for an answer to what the monitor wanted by itself.
bool a_person_asked(const GangHold& gang) {
  return gang.pauses || gang.reasons.has(residency::Reason::kUser);
}

void stays(Job& job, Time now) { job.memory.take({.event = residency::Event::kNotHeld}, now); }

void fail(Registry& registry, Job& job, Time now) {
  GangHold& gang = Gangs::hold_of(job);
  const std::string why = text_of(gang.cut.blame);
  spdlog::warn("job '{}' is not held: {}", job.name, why);
  if (a_person_asked(gang)) {
    const cut::Blame& blame = gang.cut.blame;
    const bool never = blame.why == cut::Blame::Why::kGone || blame.stands != Standstill::kNone;
    gang.code = never ? kRefusedByPolicy : kTimedOut;
    gang.failure = why;
  }
  if (gang.leaves) stays(job, now);
  release(registry, job);
}

void gather(Registry& registry, Job& job, Time now) {
  cut::State& state = Gangs::hold_of(job).cut;
  const bool raised = cut::next(state, processes_of(registry, job), now);
  if (state.phase == cut::Phase::kFailed) return fail(registry, job, now);
  if (raised) ask(registry, job);
  if (state.phase == cut::Phase::kThere) enter(job, Stage::kDraining, now);
}

// Whether nothing that has a number is left on its GPUs. Work that was launched without one can't
// be stopped by a gate either.
bool is_drained(const Registry& registry, const Job& job) {
  bool done = true;
  for_lanes(registry, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    done = done && (!state.order.numbered() || client.page->gate(lane).done);
  });
  return done;
}

void let_leave(Job& job, residency::Reasons reasons, Time now) {
  job.memory.take({.event = residency::Event::kWantedOut, .reasons = reasons}, now, job.gang->by);
  enter(job, Stage::kLeaving, now);
}

void act(Job& job, Time now) {
  spdlog::info("job '{}': all ranks are at one place", job.name);
  if (job.gang->pauses) {
    pause(job, {.until = job.gang->until, .at_cut = true, .by = job.gang->by}, now);
    enter(job, Stage::kClosing, now);
  } else {
    let_leave(job, job.gang->reasons, now);
  }
}

// The state that its processes carry over from another monitor is known, and none of them leaves.
bool is_closed(const Registry& registry, const Job& job) {
  bool leaves = false;
  for_clients(registry, job, [&](const Client& client) { leaves = leaves || leaving(client); });
  return !leaves && all_lanes(registry, job, [](const Client::Lane& lane) {
    return (lane.order.closed & abi::kClosedByPause) != 0 && !lane.noted->carried;
  });
}

// Its memory has left, or stays.
bool has_ended(const Job& job) {
  return !wanted_out(job) || job.memory->state == residency::State::kSwappedOut;
}

// For a pause, or for its memory to leave. The end of a turn is less than that.
bool is_held(Stage stage) {
  return stage != Stage::kNone && stage != Stage::kTurnEnds && stage != Stage::kTurnEnded;
}

void begin_turns_end(Job& job, Time now) {
  Gangs::hold_of(job).cut = {.since = now};
  enter(job, Stage::kTurnEnds, now);
}

// A rank that does not come is given up by the policy, and sooner than a cut fails.
void end_turn(Registry& registry, Job& job, Time now) {
  if (!*job.turn_ends) return release(registry, job);
  cut::State& state = Gangs::hold_of(job).cut;
  if (cut::next(state, processes_of(registry, job), now)) ask(registry, job);
  if (state.phase == cut::Phase::kThere) enter(job, Stage::kTurnEnded, now);
}

// A rank comes at its next collective.
Time next_look(const Job& job) { return job.gang->looked_at + look_pause(job.clients.size()); }

void follow(Registry& registry, Job& job, Time now) {
  if (job.gang->looked_at != Time{0} && now < next_look(job)) return;
  Gangs::hold_of(job).looked_at = now;
  switch (job.gang->stage) {
    case Stage::kNone:
      if (*job.turn_ends) begin_turns_end(job, now);
      return;
    case Stage::kTurnEnds:
      return end_turn(registry, job, now);
    case Stage::kTurnEnded:
      if (!*job.turn_ends) release(registry, job);
      return;
    case Stage::kGathering:
      return gather(registry, job, now);
    case Stage::kDraining:
      if (is_drained(registry, job) || now - job.gang->since >= kDrainsWithin) act(job, now);
      return;
    case Stage::kClosing:
      if (!job.pause->on) return release(registry, job);
      // Its memory may be leaving for another reason, which opens the gates.
      if (!is_closed(registry, job) || !has_ended(job)) return;
      return job.gang->leaves ? let_leave(job, job.gang->reasons, now) : release(registry, job);
    case Stage::kLeaving:
      if (has_ended(job)) release(registry, job);
      return;
  }
}

}  // namespace

bool is_gang(const Registry& registry, const Job& job) {
  bool gang = false;
  for_clients(registry, job, [&](const Client& client) {
    for (const CommunicatorReport& each : client.page->communicators()) {
      gang = gang || each.ranks > 1;
    }
  });
  return gang;
}

bool is_unseen(const Registry& registry, const Job& job) {
  constexpr Stays kShared[] = {Stays::kIpcExported, Stays::kIpcImported, Stays::kPeerMapped,
                               Stays::kMulticast};
  std::set<std::size_t> gpus;
  bool shares = false;
  for_contexts(registry, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    gpus.insert(state.gpu);
    const MemoryReport memory = client.page->memory(lane);
    for (const Stays why : kShared) {
      shares = shares || memory.stays[static_cast<unsigned>(why)] != 0;
    }
  });
  return shares && gpus.size() > 1 && !is_gang(registry, job);
}

void note(Registry& registry) {
  for (auto& [key, job] : registry.jobs()) {
    const bool ranks = is_gang(registry, job);
    const bool stops = ranks && why_no_cut(registry, job).empty();
    const bool waits = ranks || is_unseen(registry, job);
    Gangs::kind_of(job) = stops ? GangKind::kRanks : waits ? GangKind::kUnseen : GangKind::kNone;
  }
}

std::string why_no_cut(const Registry& registry, const Job& job) {
  std::string why;
  for_clients(registry, job, [&](const Client& client) {
    if (client.page->unwatched_communicators() == 0) return;
    why = fmt::format(
        "process {} is in NCCL communicators that are not watched: in more than {}, in one of "
        "ncclCommGrow, or in a child of one that does not block",
        client.peer.pid, client.page->most_communicators());
  });
  if (!why.empty()) return why;
  const cut::Blame gone = cut::missing(processes_of(registry, job));
  return gone.why != cut::Blame::Why::kNobody ? text_of(gone) : "";
}

void hold(Job& job, const Wish& wish, Time now) {
  GangHold& gang = Gangs::hold_of(job);
  // While its ranks are awaited, a wish adds to the one before.
  const bool adds = gang.gathers();
  gang.cut = {.since = now};
  gang.pauses = wish.pauses || (adds && gang.pauses);
  gang.leaves = wish.leaves || (adds && gang.leaves);
  gang.reasons = adds ? gang.reasons.with(wish.reasons) : wish.reasons;
  if (wish.pauses || !adds) gang.until = wish.until;
  gang.by = wish.by;
  gang.failure.clear();
  gang.looked_at = Time{0};
  enter(job, Stage::kGathering, now);
}

bool only_pauses(Job& job) {
  GangHold& gang = Gangs::hold_of(job);
  if (!gang.gathers() || !gang.pauses) return false;
  gang.leaves = false;
  gang.reasons = {};
  return true;
}

void keep_cut(Job& job, const Client& client, Time now) {
  GangHold& gang = Gangs::hold_of(job);
  if (gang.stage == Stage::kNone) {
    gang.leaves = false;
    gang.number = gang.number + 1 != 0 ? gang.number + 1 : 1;
    enter(job, Stage::kClosing, now);
  }
  // No target is known, so that every rank stops where it is.
  if (gang.stage == Stage::kClosing || gang.stage == Stage::kLeaving)
    client.page->ask_for_cut(gang.number);
}

bool left_at_cut(const Job& job) {
  return job.gang->stage == Stage::kLeaving || (job.pause->on && job.pause->at_cut);
}

void want_out(const Registry& registry, Job& job, residency::Reason reason, bool contexts,
              Time now) {
  if (released(job.memory->state) || !is_gang(registry, job)) {
    job.memory.take(
        {.event = residency::Event::kWantedOut, .reasons = reason, .contexts = contexts}, now);
  } else if (const std::string why = why_no_cut(registry, job); !why.empty()) {
    spdlog::info("the memory of job '{}' stays: {}", job.name, why);
    stays(job, now);
  } else if (!is_held(job.gang->stage)) {
    hold(job, {.leaves = true, .reasons = reason}, now);
  }
}

void forget_failure(Job& job) { Gangs::hold_of(job).failure.clear(); }

void cancel(Registry& registry, Job& job) {
  forget_failure(job);
  if (job.gang->stage != Stage::kNone) release(registry, job);
}

bool follow(Registry& registry, Time now) {
  bool changed = false;
  for (auto& [key, job] : registry.jobs()) {
    const Stage before = job.gang->stage;
    follow(registry, job, now);
    changed = changed || job.gang->stage != before;
  }
  return changed;
}

Time due(const Registry& registry) {
  Time next{0};
  for (const auto& [key, job] : registry.jobs()) {
    if (job.gang->stage != Stage::kNone || *job.turn_ends) next = earlier(next, next_look(job));
  }
  return next;
}

}  // namespace gangs
}  // namespace switchyard::monitor
