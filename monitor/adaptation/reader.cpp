#include "monitor/adaptation/reader.h"

#include <algorithm>

namespace switchyard::monitor {

std::optional<IterationReader::Begun> IterationReader::read(Progress& progress,
                                                            const Client& client, Time now) {
  progress.read(client, now);
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
