#include "monitor/policy/residency.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace switchyard::monitor::policy {
namespace {

bool in_its_stay(const Oversubscriber& job, Time now) {
  return !job.out && job.resident_bytes > 0 && now < job.resident_since + stay_of(job);
}

bool asking_gang(const Oversubscriber& job) { return job.gang && job.asks; }

std::uint64_t gives_at_most(const Oversubscriber& job) {
  return std::min(job.resident_bytes, job.may_give_bytes);
}

bool can_give(const Oversubscriber& job, const Oversubscriber& first) {
  if (job.job == first.job || gives_at_most(job) == 0) return false;
  if (first.asks && job.stayed_at != Time{0} && job.stayed_at >= first.waits_since) return false;
  if (!first.takes_turns) return job.out;
  return !job.active || job.priority <= first.priority;
}

// Whether it is a gang that waits for memory, and what those who are out have kept is enough.
bool kept_serves(const Oversubscriber& first, std::span<const Oversubscriber> jobs, Time now) {
  if (!asking_gang(first)) return false;
  std::uint64_t kept = 0;
  for (const Oversubscriber& job : jobs) {
    if (job.out && now >= job.rests_until && can_give(job, first)) kept += gives_at_most(job);
  }
  return kept >= first.lacks_bytes;
}

// One who wants room, on all its GPUs.
struct InLine {
  const Oversubscriber* job = nullptr;  // as one of them sees it
  bool stays = false;                   // it is in its stay on one of them
  bool kept_serves = true;              // on all of them
  bool gathers = false;
  Time waits_since{0};
  std::vector<std::size_t> gpus = {};  // where it wants room

  bool goes_to_its_cut() const { return kept_serves && gathers; }
};

bool before(const InLine& a, const InLine& b) {
  if (a.goes_to_its_cut() != b.goes_to_its_cut()) return a.goes_to_its_cut();
  if (a.job->priority != b.job->priority) return a.job->priority > b.job->priority;
  // A job that works takes memory that no job works with: else each growth of it would cost a turn.
  const auto key = [](const InLine& each) {
    return std::tuple(each.job->takes_turns, !(each.stays || each.kept_serves), each.waits_since,
                      each.job->job);
  };
  return key(a) < key(b);
}

std::vector<InLine> line_of(std::span<const std::vector<Oversubscriber>> gpus, Time now) {
  std::map<std::uint64_t, InLine> jobs;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    for (const Oversubscriber& job : gpus[gpu]) {
      if (!job.wants_room) continue;
      InLine& place = jobs[job.job];
      place.waits_since =
          place.job == nullptr ? job.waits_since : std::min(place.waits_since, job.waits_since);
      place.job = &job;
      place.stays = place.stays || in_its_stay(job, now);
      place.kept_serves = place.kept_serves && kept_serves(job, gpus[gpu], now);
      place.gathers = place.gathers || job.gathers;
      place.gpus.push_back(gpu);
    }
  }
  std::vector<InLine> line;
  for (auto& [key, place] : jobs) line.push_back(std::move(place));
  std::sort(line.begin(), line.end(), before);
  return line;
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
  return std::clamp(job.stay_moves * job.move_cost, kShortestStay, kLongestStay);
}

namespace {

// What the first in line gets on one GPU, if it were its only one. `asking`: gangs before it in the
// line that wait for memory.
RoomPlan serve(std::span<const Oversubscriber> jobs, const InLine& next,
               const std::set<std::uint64_t>& asking, Time now) {
  const std::uint64_t who = next.job->job;
  const auto first = std::find_if(jobs.begin(), jobs.end(),
                                  [who](const Oversubscriber& job) { return job.job == who; });
  RoomPlan out;
  out.first = who;
  out.served = out.arrives = first->lacks_bytes == 0;
  if (out.arrives) return out;
  const auto moving = std::find_if(jobs.begin(), jobs.end(), [&](const auto& job) {
    return (job.stopping && !next.goes_to_its_cut()) || job.leaving || job.returning;
  });
  if (moving != jobs.end()) {
    out.giver = moving->job != first->job ? moving->job : 0;
    out.served = out.arrives = out.giver != 0 && moving->leaving;
    return out;
  }
  const Oversubscriber* giver = nullptr;
  const auto key = [&](const Oversubscriber& job) {
    const Time at = leaves_at(job, *first);
    // Of those who may not leave yet, the one that may first.
    return std::tuple(at > now, at > now ? at : Time{0}, !job.out, asking_gang(job), job.active,
                      job.priority, job.resident_since, job.job);
  };
  for (const Oversubscriber& job : jobs) {
    if (!can_give(job, *first) || asking.contains(job.job)) continue;
    if (giver == nullptr || key(job) < key(*giver)) giver = &job;
  }
  if (giver == nullptr) {
    // Free room lets it leave the host in part, where others need the room of it.
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
    // Memory that is only kept goes in larger parts, because a growing job asks again and again.
    const std::uint64_t part = giver->out ? gives_at_most(*giver) / 8 : 0;
    out.gives_bytes = std::max(lacks, part);
    out.served = true;
  }
  return out;
}

// Nothing is given and nothing comes on any GPU before it can on all of them.
void serve_whole(std::vector<RoomPlan>& plans, const std::vector<std::size_t>& gpus) {
  const auto served = [&](std::size_t gpu) { return plans[gpu].served; };
  if (std::all_of(gpus.begin(), gpus.end(), served)) return;
  for (const std::size_t gpu : gpus) {
    plans[gpu].gives_bytes = 0;
    plans[gpu].arrives = false;
  }
}

}  // namespace

std::vector<RoomPlan> plan_rooms(std::span<const std::vector<Oversubscriber>> gpus, Time now) {
  std::vector<RoomPlan> plans(gpus.size());
  std::vector<bool> wanted(gpus.size());
  std::set<std::uint64_t> asking;
  for (const InLine& next : line_of(gpus, now)) {
    const bool behind = std::any_of(next.gpus.begin(), next.gpus.end(),
                                    [&](std::size_t gpu) { return wanted[gpu]; });
    if (behind) continue;
    for (const std::size_t gpu : next.gpus) {
      wanted[gpu] = true;
      plans[gpu] = serve(gpus[gpu], next, asking, now);
    }
    if (next.gpus.size() > 1) serve_whole(plans, next.gpus);
    if (asking_gang(*next.job)) asking.insert(next.job->job);
  }
  return plans;
}

}  // namespace switchyard::monitor::policy
