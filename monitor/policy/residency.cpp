#include "monitor/policy/residency.h"

#include <algorithm>
#include <tuple>

namespace switchyard::monitor::policy {
namespace {

bool in_its_stay(const Oversubscriber& job, Time now) {
  return !job.out && job.resident_bytes > 0 && now < job.resident_since + stay_of(job);
}

// Of those who want room: whether `a` is before `b`.
bool before(const Oversubscriber& a, const Oversubscriber& b, Time now) {
  if (a.priority != b.priority) return a.priority > b.priority;
  // Who works takes what nobody works with: else each growth of it would cost a turn.
  return std::tuple(a.takes_turns, !in_its_stay(a, now), a.waits_since, a.job) <
         std::tuple(b.takes_turns, !in_its_stay(b, now), b.waits_since, b.job);
}

std::uint64_t gives_at_most(const Oversubscriber& job) {
  return std::min(job.resident_bytes, job.may_give_bytes);
}

bool can_give(const Oversubscriber& job, const Oversubscriber& first) {
  if (job.job == first.job || gives_at_most(job) == 0) return false;
  if (first.asks && job.stayed_at != Time{0} && job.stayed_at >= first.waits_since) return false;
  if (!first.takes_turns) return job.out;
  return !job.active || job.priority <= first.priority;
}

// From when on it may be made to leave for `first`.
Time leaves_at(const Oversubscriber& job, const Oversubscriber& first) {
  if (job.out || job.priority < first.priority) return job.rests_until;
  // One that has just come has not begun to work yet.
  const Time stay = job.active ? stay_of(job) : kShortestStay;
  return std::max(job.rests_until, job.resident_since + stay);
}

}  // namespace

Time stay_of(const Oversubscriber& job) {
  return std::clamp(20 * job.move_cost, kShortestStay, kLongestStay);
}

RoomPlan plan_room(std::span<const Oversubscriber> jobs, Time now) {
  const Oversubscriber* first = nullptr;
  for (const Oversubscriber& job : jobs) {
    if (job.wants_room && (first == nullptr || before(job, *first, now))) first = &job;
  }
  if (first == nullptr) return {};
  RoomPlan out;
  out.first = first->job;
  out.arrives = first->lacks_bytes == 0;
  if (out.arrives) return out;
  const auto moving = std::find_if(jobs.begin(), jobs.end(), [](const auto& job) {
    return job.stopping || job.leaving || job.returning;
  });
  if (moving != jobs.end()) {
    out.giver = moving->job != first->job ? moving->job : 0;
    out.arrives = out.giver != 0 && moving->leaving;
    return out;
  }
  const Oversubscriber* giver = nullptr;
  const auto key = [&](const Oversubscriber& job) {
    const Time at = leaves_at(job, *first);
    // Of those who may not leave yet, the one that may first.
    return std::tuple(at > now, at > now ? at : Time{0}, !job.out, job.active, job.priority,
                      job.resident_since, job.job);
  };
  for (const Oversubscriber& job : jobs) {
    if (can_give(job, *first) && (giver == nullptr || key(job) < key(*giver))) giver = &job;
  }
  if (giver == nullptr) {
    // What is free lets it leave the host in part, where others need the room of it.
    out.arrives = first->out;
    return out;
  }
  out.giver = giver->job;
  const Time at = leaves_at(*giver, *first);
  const std::uint64_t lacks = std::min(gives_at_most(*giver), first->lacks_bytes);
  if (at > now + kKnownAhead) {
    out.look_again = at - kKnownAhead;
  } else if (at > now) {
    out.look_again = at;
    // One that idles may begin to work, and then stays.
    if (giver->active) out.soon_bytes = lacks;
  } else {
    // What is only kept goes in larger parts: who grows asks again and again.
    const std::uint64_t part = giver->out ? gives_at_most(*giver) / 8 : 0;
    out.gives_bytes = std::max(lacks, part);
  }
  return out;
}

}  // namespace switchyard::monitor::policy
