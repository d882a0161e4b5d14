#include "monitor/status/job_status.h"

#include <algorithm>

#include "monitor/core/lanes.h"

namespace switchyard::monitor::status {
namespace {

using stalls::Hold;
using Stage = GangHold::Stage;

Reason reason_of(Standstill why) {
  switch (why) {
    case Standstill::kTraced:
      return Reason::kDebugger;
    case Standstill::kDumping:
      return Reason::kCoreDump;
    case Standstill::kFrozen:
      return Reason::kFrozen;
    case Standstill::kDisk:
      return Reason::kDisk;
    case Standstill::kStopped:
    case Standstill::kNone:
      break;
  }
  return Reason::kSignal;
}

Reason reason_of(residency::Reasons wanted_out) {
  return wanted_out.has(residency::Reason::kUser)    ? Reason::kSwapOut
         : wanted_out.has(residency::Reason::kIdle)  ? Reason::kIdleRelease
         : wanted_out.has(residency::Reason::kYield) ? Reason::kYield
                                                     : Reason::kNone;
}

By person(const std::optional<Peer>& who) {
  return who ? By{.uid = who->uid, .pid = who->pid} : By{};
}

std::optional<Status> status_of_stop(const SeenJob& job, const SeenProcess* process) {
  if (process != nullptr ? process->stands == Standstill::kNone : !job.stands) return std::nullopt;
  const SeenProcess* stopped = process;
  bool others = false;
  for (const SeenProcess& each : job.processes) {
    const bool stands = each.stands != Standstill::kNone;
    others = others || !stands;
    if (stands && stopped == nullptr) stopped = &each;
  }
  Status out{.code = {State::kStopped, Reason::kSignal}};
  if (stopped == nullptr) return out;
  out.code.reason = reason_of(stopped->stands);
  out.since = stopped->stands_since;
  if (others) out.pid = stopped->pid;
  return out;
}

std::optional<Status> status_of_memory(const SeenJob& job) {
  Status out{.since = job.memory_since};
  switch (job.where) {
    case ResidencyState::kResident:
      return std::nullopt;
    case ResidencyState::kWaiting:
      out.code = {State::kWaiting, Reason::kRoom};
      out.by.job = job.waits_for;
      out.bytes = job.away_bytes;
      break;
    case ResidencyState::kSwapped:
      out.code = {State::kSwapped, reason_of(job.wanted_out)};
      break;
    case ResidencyState::kMoving:
      out.code = {State::kMoving,
                  job.wanted_out.any() ? reason_of(job.wanted_out) : Reason::kReturns};
      break;
  }
  if (out.code.reason == Reason::kSwapOut) out.by = person(job.out_by);
  return out;
}

std::optional<Status> status_of_allocations(const SeenJob& job, const SeenProcess* process) {
  Status out{.code = {State::kWaiting, Reason::kAllocation}};
  bool asks = false;
  for (const SeenProcess& each : job.processes) {
    if (process != nullptr && each.client != process->client) continue;
    for (const SeenLane& lane : each.lanes) {
      if (lane.asks_since == Time{0}) continue;
      out.since = asks ? std::min(out.since, lane.asks_since) : lane.asks_since;
      out.bytes += lane.asks_bytes;
      asks = true;
    }
  }
  out.by.job = job.waits_for;
  return asks ? std::optional(out) : std::nullopt;
}

std::uint32_t held_by(const SeenProcess& process) {
  std::uint32_t bits = 0;
  for (const SeenLane& lane : process.lanes) bits |= lane.held_by;
  return bits;
}

std::optional<Status> status_of_cut(const SeenJob& job) {
  if (job.stage == Stage::kNone) return std::nullopt;
  const bool turn = job.stage == Stage::kTurnEnds || job.stage == Stage::kTurnEnded;
  const bool closed = std::any_of(job.processes.begin(), job.processes.end(),
                                  [](const auto& each) { return held_by(each) != 0; });
  if (job.stage == Stage::kTurnEnded && closed) return std::nullopt;
  return Status{.code = {State::kHeld, turn ? Reason::kTurnEnds : Reason::kCut},
                .since = job.stage_since,
                .leaves = job.leaves_at_cut};
}

// The first table. `process`: of one of its processes alone.
std::optional<Status> status_of_all(const SeenJob& job, const SeenProcess* process) {
  if (job.paused) {
    return Status{.code = {State::kPaused, Reason::kPause},
                  .by = person(job.paused_by),
                  .since = job.paused_since};
  }
  if (auto stop = status_of_stop(job, process)) return stop;
  if (job.moves) {
    return Status{.code = {State::kMoving, job.prepares ? Reason::kMovePrepares : Reason::kMove},
                  .since = job.moves_since};
  }
  if (auto memory = status_of_memory(job)) return memory;
  if (auto allocation = status_of_allocations(job, process)) return allocation;
  return status_of_cut(job);
}

// One GPU, or several, as far as the second table goes.
struct Gates {
  std::uint32_t held_by = 0;
  bool works = false, used = false;
  void add(const SeenLane& lane) {
    held_by |= lane.held_by;
    works = works || lane.works;
    used = used || lane.used;
  }
};

Status status_of_gates(const SeenJob& job, const Gates& gates) {
  switch (hold_of_gate(gates.held_by)) {
    case Hold::kPause:
      return {.code = {State::kPaused, Reason::kPause}, .by = person(job.paused_by)};
    case Hold::kGuard:
      return {.code = {State::kHeld, Reason::kGuard}, .by = {.job = job.guarded}};
    case Hold::kLimit:
      return {.code = {State::kHeld, Reason::kLimit}};
    case Hold::kTurn:
      return {.code = {State::kWaiting, Reason::kTurn}};
    default:
      break;
  }
  if (gates.works) return {.code = {State::kRunning, Reason::kNone}};
  if (gates.used) return {.code = {State::kIdle, Reason::kNone}};
  if (job.processes.empty() && job.old_layout != 0) {
    return {.code = {State::kUnmanaged, Reason::kOldLibrary}};
  }
  return {.code = {State::kIdle, Reason::kNoCuda}};
}

std::vector<unsigned> indices_of(const Snapshot& snapshot, const std::vector<std::size_t>& gpus) {
  std::vector<unsigned> out;
  out.reserve(gpus.size());
  for (const std::size_t gpu : gpus) out.push_back(snapshot.indices[gpu]);
  return out;
}

// What every text of the job may need.
void describe(const Snapshot& snapshot, const SeenJob& job, Status& status) {
  status.where = job.where;
  status.limit = job.limit;
  status.layout = job.old_layout;
  status.back = job.back;
  if (job.moves) status.goal = snapshot.indices[job.goal];
  if (job.where != ResidencyState::kResident) {
    status.places = indices_of(snapshot, job.places);
    status.parked_on = indices_of(snapshot, job.parked_on);
  }
  if (status.since == Time{0} || status.since > snapshot.now) status.since = snapshot.now;
}

// For each GPU, the job that works on it. Where several do, the one with most of its time.
using Workers = std::map<std::size_t, std::pair<double, JobKey>>;

void note_worker(const SeenJob& job, const JobStatus::OnGpu& on, double share, Workers& workers) {
  if (on.status.code.state != State::kRunning) return;
  const auto [at, first] = workers.try_emplace(on.gpu, share, job.key);
  if (!first && share > at->second.first) at->second = {share, job.key};
}

JobStatus status_of(const Snapshot& snapshot, const SeenJob& job, Workers& workers) {
  const std::optional<Status> all = status_of_all(job, nullptr);
  std::map<std::size_t, std::pair<Gates, double>> on_gpus;
  for (const std::size_t gpu : job.gpus) on_gpus[gpu];
  JobStatus out;
  for (const SeenProcess& process : job.processes) {
    out.processes.push_back({process.client, hold_of(job, process)});
    for (const SeenLane& lane : process.lanes) {
      auto& [gates, share] = on_gpus[lane.gpu];
      gates.add(lane);
      share += lane.share;
    }
  }
  Gates whole;
  bool runs = false;
  for (const auto& [gpu, on] : on_gpus) {
    const Gates& gates = on.first;
    Status status = all && gates.used ? *all : status_of_gates(job, gates);
    describe(snapshot, job, status);
    runs = runs || status.code.state == State::kRunning;
    whole.held_by |= gates.held_by;
    whole.used = whole.used || gates.used;
    out.gpus.push_back({gpu, std::move(status)});
    note_worker(job, out.gpus.back(), on.second, workers);
  }
  if (runs) whole = {.works = true, .used = true};
  out.job = all ? *all : status_of_gates(job, whole);
  describe(snapshot, job, out.job);
  return out;
}

void name(const Snapshot& snapshot, Status& status) {
  const auto found = snapshot.jobs.find(status.by.job);
  if (found == snapshot.jobs.end()) {
    status.by.job = 0;
  } else {
    status.by.name = found->second.name;
    status.by.uid = found->second.uid;
  }
}

}  // namespace

Hold hold_of(Code code) {
  switch (code.state) {
    case State::kPaused:
      return Hold::kPause;
    case State::kSwapped:
      return Hold::kSwap;
    case State::kMoving:
      return code.reason == Reason::kMovePrepares ? Hold::kNone : Hold::kSwap;
    case State::kWaiting:
      return code.reason == Reason::kTurn ? Hold::kTurn : Hold::kMemory;
    case State::kHeld:
      return code.reason == Reason::kGuard   ? Hold::kGuard
             : code.reason == Reason::kLimit ? Hold::kLimit
                                             : Hold::kCut;
    default:
      return Hold::kNone;
  }
}

Hold hold_of(const SeenJob& job, const SeenProcess& process) {
  if (const auto all = status_of_all(job, &process)) return hold_of(all->code);
  return hold_of_gate(held_by(process));
}

std::map<JobKey, JobStatus> statuses_of(const Snapshot& snapshot) {
  std::map<JobKey, JobStatus> out;
  Workers workers;
  std::map<JobKey, JobKey> needs;  // by a job that gives room: the job that needs it
  for (const auto& [key, job] : snapshot.jobs) {
    out.emplace(key, status_of(snapshot, job, workers));
    if (job.waits_for != 0) needs.try_emplace(job.waits_for, key);
  }
  for (auto& [key, status] : out) {
    for (auto& [gpu, on] : status.gpus) {
      const auto worker = workers.find(gpu);
      if (on.code.reason == Reason::kTurn && worker != workers.end()) {
        on.by.job = worker->second.second;
        if (status.job.code.reason == Reason::kTurn && !status.job.by.known()) {
          status.job.by.job = on.by.job;
        }
      }
    }
    const auto needed = needs.find(key);
    const auto add_names = [&](Status& one) {
      if (one.code.reason == Reason::kYield && needed != needs.end()) one.by.job = needed->second;
      if (one.by.job != 0) name(snapshot, one);
    };
    for (auto& [gpu, on] : status.gpus) add_names(on);
    add_names(status.job);
  }
  return out;
}

void keep_since(const JobStatus& before, JobStatus& after) {
  const auto keep = [](const Status& was, Status& is) {
    if (was.code == is.code) is.since = std::min(was.since, is.since);
  };
  keep(before.job, after.job);
  for (auto& [gpu, status] : after.gpus) {
    for (const auto& was : before.gpus) {
      if (was.gpu == gpu) keep(was.status, status);
    }
  }
}

}  // namespace switchyard::monitor::status
