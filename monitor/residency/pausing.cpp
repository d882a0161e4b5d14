#include "monitor/residency/pausing.h"

#include <spdlog/spdlog.h>

namespace switchyard::monitor {

struct Pausing {
  static Pause& of(Job& job) { return job.pause.write(); }
};

namespace {

// Work that was queued before the first number has ended after so long.
constexpr Time kNumberedFor = std::chrono::seconds(2);
constexpr Time kStandsStill = std::chrono::milliseconds(50);

void tell_pause(const Job& job, Time now) {
  HistoryEvent event = event_of(EventKind::kPaused, job.key, job.pause->by, now);
  event.value = static_cast<std::uint64_t>(job.pause->until.count());
  job.tap.tell(event);
}

}  // namespace

void pause(Job& job, const PauseWish& wish, Time now) {
  Pause& pause = Pausing::of(job);
  if (!pause.on) pause.since = pause.moved_at = now;
  pause.on = true;
  pause.until = wish.until;
  pause.decided = true;
  pause.at_cut = pause.at_cut || wish.at_cut;
  if (wish.by) pause.by = wish.by;
  if (wish.releases != Releases::kNothing) {
    job.memory.take({.event = residency::Event::kWantedOut,
                     .reasons = residency::Reason::kPause,
                     .contexts = wish.releases == Releases::kContextsToo},
                    now, wish.by);
  }
  tell_pause(job, now);
  spdlog::info("job '{}' is paused", job.name);
}

void resume(Job& job, const std::optional<Peer>& by, Time now) {
  const residency::Reasons ends = residency::kUntilItWorks.with(residency::Reason::kPause);
  job.memory.take({.event = residency::Event::kWantedIn, .reasons = ends}, now);
  if (job.pause->on) {
    job.tap.tell(event_of(EventKind::kResumed, job.key, by, now));
    spdlog::info("job '{}' is resumed", job.name);
  }
  // A process that is heard later shall not restore it.
  Pausing::of(job) = {.decided = true};
}

void want_out(Job& job, const std::optional<Peer>& by, Time now) {
  job.memory.take({.event = residency::Event::kWantedOut, .reasons = residency::Reason::kUser}, now,
                  by);
}

void want_in(Job& job, const std::optional<Peer>& by, Time now) {
  // Whatever a process that is heard later remembers of its pause.
  Pausing::of(job).decided = true;
  job.memory.take({.event = residency::Event::kWantedIn, .reasons = residency::kAllReasons}, now,
                  by);
}

void restore_pause(Job& job, const wire::Hello& hello, Time now) {
  if ((hello.flags & wire::kRejoin) == 0 || hello.paused == 0 || job.pause->decided) return;
  const Time until(static_cast<Time::rep>(hello.pause_until_ns & ~(1ull << 63)));
  if (until != Time{0} && until <= now) return;
  // Of several clients the longest pause counts.
  if (job.pause->on &&
      (job.pause->until == Time{0} || (until != Time{0} && until < job.pause->until)))
    return;
  Pause& pause = Pausing::of(job);
  if (!pause.on) pause.since = now;
  pause.on = true;
  pause.until = until;
  tell_pause(job, now);
  spdlog::info("job '{}' was paused before this monitor came, and stays so", job.name);
}

bool end_pauses(Registry& registry, Time now) {
  bool ended = false;
  for (auto& [key, job] : registry.jobs()) {
    if (!job.pause->on || job.pause->until == Time{0} || job.pause->until > now) continue;
    resume(job, std::nullopt, now);
    ended = true;
  }
  return ended;
}

Time next_pause_end(const Registry& registry) {
  Time next{0};
  for (const auto& [key, job] : registry.jobs()) {
    if (job.pause->on) next = earlier(next, job.pause->until);
  }
  return next;
}

Drained drained(Registry& registry, Job& job, Time now) {
  bool known = true;
  bool done = true;
  std::uint64_t progress = 0;
  for (const ClientId id : job.clients) {
    const Client* client = registry.client(id);
    if (client == nullptr || client->observer) continue;
    for (const auto& [lane, state] : client->lanes) {
      const LaneReport report = client->page->report(lane);
      if (!report.has_context()) continue;
      // Memory leaves only when its process has nothing on the GPU any more.
      const bool told = state.residency_order.limited;
      const ResidencyReport said = client->page->residency(lane);
      if (told && (said.phase == abi::kAbsent || said.detached()) &&
          answers(said, state.residency_order))
        continue;
      const GateReport gate = client->page->gate(lane);
      progress += gate.progress;
      done = done && gate.done;
      known = known && gate.state == abi::kGateReady && state.numbered_since != Time{0} &&
              state.numbered_since + kNumberedFor <= job.pause->since;
    }
  }
  Pause& pause = Pausing::of(job);
  if (progress != pause.progress) pause.moved_at = now;
  pause.progress = progress;
  if (!known) return Drained::kUnknown;
  return done || now - pause.moved_at >= kStandsStill ? Drained::kYes : Drained::kNo;
}

}  // namespace switchyard::monitor
