// Why a job cannot move to another GPU: asked before anything is touched, and once it is prepared.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "monitor/core/ancestry.h"
#include "monitor/core/lanes.h"
#include "monitor/residency/contexts.h"
#include "monitor/residency/migrations.h"
#include "monitor/residency/oversubscription.h"
#include "monitor/residency/residency_state.h"
#include "monitor/residency/way_back.h"

namespace switchyard::monitor {
namespace {

// Another job that waits for memory of that GPU: the room is its.
const Job* who_waits(const Registry& registry, std::size_t gpu, const Job& except, Time now) {
  for (const auto& each : registry.jobs()) {
    const Job& job = each.second;  // clang 14 lets no lambda capture a structured binding
    const bool comes = released(job.memory->state) && !wanted_out(job);
    const auto has_what_it_needs = [&](const Client::Lane& lane) {
      return lane.gpu != gpu || !(asks(lane, now) || (comes && lane.residency.away_bytes() != 0));
    };
    if (job.key != except.key && !all_lanes(registry, job, has_what_it_needs)) return &job;
  }
  return nullptr;
}

}  // namespace

std::string Migrations::why_not(const Job& job, std::size_t to, Time now) {
  if (migration::is_under_way(job.migration->state)) return "it is on its way already";
  if (!job.knobs.swappable) return "start the job with 'switchyard run --swappable'";
  const std::set<std::size_t> used = used_gpus(registry_, job);
  if (used.empty()) return "it uses no GPU yet";
  if (used.size() > 1) return "its processes use several GPUs";
  const std::size_t from = *used.begin();
  if (from == to) return "it is there already";
  if (std::string why = standing::why_it_stands(registry_, job); !why.empty()) return why;
  if (std::string why = why_it_stays(job); !why.empty()) return why;
  return why_no_room(job, from, to, now);
}

std::string Migrations::why_it_stays(const Job& job) const {
  const std::set<std::size_t> used = used_gpus(registry_, job);
  if (used.size() != 1) return "its processes use several GPUs";
  const bool mig = std::any_of(gpus_.all().begin(), gpus_.all().end(),
                               [](const auto& gpu) { return gpu.info.mig; });
  if (mig) return "the driver moves no process where GPUs are divided into MIG instances";
  if (gpus_.size() > abi::kMaxGpus) {
    return fmt::format("this machine has more than {} GPUs", abi::kMaxGpus);
  }
  if (std::string why = why_contexts_stay(registry_, job); !why.empty()) return why;
  std::string why;
  for_contexts(registry_, job, [&](const Client& client, unsigned lane, const Client::Lane&) {
    if (client.page->place(lane).movable) return;
    why = fmt::format("the driver or the library of its process {} cannot: 580 and newer can",
                      client.peer.pid);
  });
  for (const GpuAccounts::ForeignProcess& each : gpus_[*used.begin()].foreign_processes) {
    // It may have joined since NVML was asked.
    const bool joined =
        std::any_of(registry_.clients().begin(), registry_.clients().end(),
                    [&](const auto& client) { return client.second->peer.pid == each.pid; });
    if (joined || job_by_descent(registry_, each.pid) != &job) continue;
    why = fmt::format("its process {} runs without the library", each.pid);
  }
  return why;
}

std::string Migrations::why_no_room(const Job& job, std::size_t from, std::size_t to, Time now) {
  gpus_.read_credits(from);
  const std::uint64_t bytes = gpus_[from].account.in_full(job.key);
  if (const Job* first = who_waits(registry_, to, job, now)) {
    return fmt::format("job '{}' waits for memory there", first->name);
  }
  std::string why;
  if (!memory_.has_room(job, to, bytes, now, why) || !job.knobs.oversubscribe) return why;
  const Request request{to, job, bytes};
  const HostRoom host = host_room_with(registry_, gpus_, request);
  if (leaves_a_way_back(registry_, gpus_, request, host, Leaves::kAllThatTheyUse)) return {};
  return "the jobs that take turns there could then never have all of their memory on it again: a "
         "larger 'switchyardd --host-pool' may help";
}

// Its room is kept, but it may have grown, share memory or use another GPU by now.
std::string Migrations::why_not_now(const Job& job, Time now) {
  const Migration& move = *job.migration;
  if (std::string why = why_it_stays(job); !why.empty()) return why;
  if (!used_gpus(registry_, job).contains(move.from)) return "it uses another GPU by now";
  gpus_.read_credits(move.from);
  std::string why;
  memory_.has_room(job, move.to, gpus_[move.from].account.in_full(job.key), now, why);
  return why;
}

}  // namespace switchyard::monitor
