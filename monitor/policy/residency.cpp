#include "monitor/policy/residency.h"

#include <algorithm>
#include <tuple>

namespace switchyard::monitor::policy {
namespace {

// Of those who want room: whether `a` is before `b`.
bool before(const Oversubscriber& a, const Oversubscriber& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return std::tie(a.waits_since, a.job) < std::tie(b.waits_since, b.job);
}

bool can_give(const Oversubscriber& job, const Oversubscriber& first) {
  if (job.job == first.job || job.resident_bytes == 0) return false;
  return !job.active || job.priority <= first.priority;
}

// From when on it may be made to leave for `first`.
Time leaves_at(const Oversubscriber& job, const Oversubscriber& first) {
  if (job.priority < first.priority) return job.rests_until;
  // One that has just come has not begun to work yet.
  const Time stay = job.active ? stay_of(job) : kShortestStay;
  return std::max(job.rests_until, job.resident_since + stay);
}

}  // namespace

Time stay_of(const Oversubscriber& job) { return std::max(20 * job.move_cost, kShortestStay); }

RoomPlan plan_room(std::span<const Oversubscriber> jobs, Time now) {
  const Oversubscriber* first = nullptr;
  for (const Oversubscriber& job : jobs) {
    if (job.wants_room && (first == nullptr || before(job, *first))) first = &job;
  }
  if (first == nullptr) return {};
  RoomPlan out;
  out.first = first->job;
  if (first->fits) return out;
  const auto moving =
      std::find_if(jobs.begin(), jobs.end(), [](const auto& job) { return job.moves; });
  if (moving != jobs.end()) {
    out.giver = moving->job != first->job ? moving->job : 0;
    return out;
  }
  const Oversubscriber* giver = nullptr;
  const auto key = [&](const Oversubscriber& job) {
    const Time at = leaves_at(job, *first);
    // Of those who may not leave yet, the one that may first.
    return std::tuple(at > now, at > now ? at : Time{0}, job.active, job.priority,
                      job.resident_since, job.job);
  };
  for (const Oversubscriber& job : jobs) {
    if (can_give(job, *first) && (giver == nullptr || key(job) < key(*giver))) giver = &job;
  }
  if (giver == nullptr) return out;
  out.giver = giver->job;
  const Time at = leaves_at(*giver, *first);
  out.leaves = at <= now;
  if (!out.leaves) out.look_again = at;
  return out;
}

}  // namespace switchyard::monitor::policy
