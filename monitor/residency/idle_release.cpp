#include "monitor/residency/idle_release.h"

#include <spdlog/spdlog.h>

#include "monitor/core/lanes.h"
#include "monitor/residency/contexts.h"
#include "monitor/residency/gangs.h"
#include "monitor/residency/oversubscription.h"
#include "monitor/scheduling/gate_controller.h"

namespace switchyard::monitor {

struct IdleRelease {
  static std::uint64_t& work_seen(Job& job) { return job.work_seen.write(); }
};

namespace {

// A job, as all its clients on all its GPUs show it.
struct Activity {
  std::uint64_t work = 0;
  std::uint64_t resident_bytes = 0;
  bool engaged = false;  // the GPU has something of it, its memory moves, or a gate holds it
  bool held = false;     // a thread stands before swap's admission, or asks for memory
};

Activity activity_of(const Registry& registry, const Job& job, Time now) {
  Activity out;
  for_lanes(registry, job, [&](const Client& client, unsigned lane, const Client::Lane& state) {
    const GateReport gate = client.page->gate(lane);
    out.work += client.page->report(lane).work();
    out.resident_bytes += state.residency.resident_bytes;
    // One long kernel moves no counter: its number tells, or NVML.
    const bool runs = state.load > 0 || (numbered(state, gate) && !gate.done);
    out.engaged = out.engaged || runs || !state.residency.resident() || gate.held_threads > 0;
    out.held = out.held || state.residency.held_threads > 0 || asks(state, now);
  });
  return out;
}

}  // namespace

void follow_idleness(const Registry& registry, Job& job, Time now) {
  using residency::Reason;
  using residency::State;
  const residency::JobResidency& memory = *job.memory;
  const bool yields = memory.wanted_out.has(Reason::kYield);
  if (job.knobs.idle_release.after == Time{0} && !yields) return;
  const Activity seen = activity_of(registry, job, now);
  // Held by a pause it has no use for its memory; and who yields room leaves all the way.
  const bool may = !job.pause->on && (!yields || memory.state == State::kSwappedOut);
  const bool gone = yields || memory.wanted_out.has(Reason::kIdle);
  if (gone && seen.held && may) want_back(job, now);
  if (job.knobs.idle_release.after == Time{0} || memory.wanted_out.has(Reason::kIdle)) return;
  const bool works = seen.work != *job.work_seen || seen.engaged || seen.held;
  IdleRelease::work_seen(job) = seen.work;
  // The person who paused it decided about its memory, too.
  const bool stands = seen.resident_bytes == 0 || released(memory.state) || job.pause->on;
  if (works || stands || memory.worked_at == Time{0}) {
    job.memory.take({.event = residency::Event::kWorks}, now);
  }
  if (now - memory.worked_at < job.knobs.idle_release.after || gangs::waits(job)) return;
  spdlog::info("job '{}' has not worked for {} s", job.name, seconds(job.knobs.idle_release.after));
  // Without them its memory leaves all the same.
  const bool contexts = job.knobs.idle_release.contexts && why_contexts_stay(registry, job).empty();
  gangs::want_out(registry, job, Reason::kIdle, contexts, now);
}

void want_back(Job& job, Time now) {
  job.memory.take({.event = residency::Event::kWantedIn, .reasons = residency::kUntilItWorks}, now);
}

}  // namespace switchyard::monitor
