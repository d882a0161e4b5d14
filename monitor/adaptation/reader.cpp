#include "monitor/adaptation/reader.h"

#include <algorithm>
#include <initializer_list>

#include "monitor/core/lanes.h"
#include "monitor/status/snapshot.h"

namespace switchyard::monitor {

bool is_on(const Registry& registry, const Job& job, const std::set<std::size_t>& gpus) {
  const auto theirs = used_gpus(registry, job);
  return std::any_of(gpus.begin(), gpus.end(),
                     [&](std::size_t gpu) { return theirs.contains(gpu); });
}

namespace {

bool is_held_but_for(const Registry& registry, const Job& job,
                     std::initializer_list<stalls::Hold> ignored) {
  const GangHold::Stage stage = job.gang->stage;
  // Its ranks are stopped for another's turn.
  if (stage == GangHold::Stage::kTurnEnds || stage == GangHold::Stage::kTurnEnded) return false;
  const status::SeenJob seen = status::see(registry, job);
  return std::any_of(seen.processes.begin(), seen.processes.end(), [&](const auto& process) {
    const stalls::Hold hold = status::hold_of(seen, process);
    return hold != stalls::Hold::kNone &&
           std::find(ignored.begin(), ignored.end(), hold) == ignored.end();
  });
}

}  // namespace

bool is_held(const Registry& registry, const Job& job) {
  return is_held_but_for(registry, job, {stalls::Hold::kTurn});
}

bool is_held_beyond_gates(const Registry& registry, const Job& job) {
  return is_held_but_for(registry, job,
                         {stalls::Hold::kTurn, stalls::Hold::kLimit, stalls::Hold::kGuard});
}

std::optional<IterationReader::Begun> IterationReader::read(const Registry& registry,
                                                            Progress& progress,
                                                            const Client& client, Time now) {
  progress.read(registry, client, now);
  const Progress::Process* process = progress.find(client.id);
  if (process == nullptr || !process->records || !process->finder.known()) return std::nullopt;
  const iterations::Finder& finder = process->finder;
  const auto [at, first] = read_.try_emplace(client.id);
  const Read before = at->second;
  at->second = {finder.count(), finder.generation()};
  Begun out{.marker = *finder.marker(), .at = {}};
  const std::size_t kept = finder.marks().size();
  std::uint64_t came = finder.count() - before.count;
  // Of counts that don't compare, only that one has come is known.
  if (first || before.generation != finder.generation() || finder.count() < before.count) {
    out.broken = true;
    came = std::min<std::size_t>(kept, 1);
  }
  if (came > kept) {
    out.broken = true;
    came = kept;
  }
  for (std::size_t i = kept - came; i < kept; ++i) out.at.push_back(finder.marks()[i].at);
  return out;
}

void IterationReader::forget_all_but(const std::set<ClientId>& clients) {
  std::erase_if(read_, [&](const auto& each) { return !clients.contains(each.first); });
}

}  // namespace switchyard::monitor
