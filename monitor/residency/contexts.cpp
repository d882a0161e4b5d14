#include "monitor/residency/contexts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "monitor/core/lanes.h"
#include "monitor/islands/members.h"
#include "monitor/residency/gangs.h"

namespace switchyard::monitor {
namespace {

bool keeps_contexts(const MemoryReport& memory) {
  return std::any_of(std::begin(kKeepsContexts), std::end(kKeepsContexts),
                     [&](Stays why) { return memory.stays[static_cast<unsigned>(why)] != 0; });
}

unsigned gpus_in_use(const Client& client) {
  return static_cast<unsigned>(std::count_if(
      client.lanes.begin(), client.lanes.end(),
      [&](const auto& each) { return client.page->report(each.first).contexts != 0; }));
}

std::string why_contexts_stay(const Client& client, const MemoryReport& memory) {
  const pid_t pid = client.peer.pid;
  if (gpus_in_use(client) > 1) return fmt::format("its process {} uses several GPUs", pid);
  if (memory.contexts == abi::kContextsNoCalls) {
    return "the driver has no checkpoint: 570 and newer have";
  }
  if (memory.contexts != abi::kContextsMayLeave) {
    return fmt::format("its process {} is not swappable, or its library is older", pid);
  }
  if (!keeps_contexts(memory)) return {};
  return fmt::format(
      "its process {} has managed memory, or shares memory with other processes or GPUs: see "
      "'switchyard ps --memory'",
      pid);
}

}  // namespace

std::string why_contexts_stay(const Registry& registry, const Job& job) {
  if (islands::is_member(job)) return "it runs in an island, whose server has its contexts";
  if (gangs::is_gang(registry, job)) return "its ranks share memory through NCCL";
  std::string why;
  for_contexts(registry, job, [&](const Client& client, unsigned lane, const Client::Lane&) {
    const std::string here = why_contexts_stay(client, client.page->memory(lane));
    if (!here.empty()) why = here;
  });
  return why;
}

}  // namespace switchyard::monitor
