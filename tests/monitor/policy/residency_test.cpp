// Turns of memory: who leaves, and when. No clock, no page.
#include "monitor/policy/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "tests/monitor/policy/room.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Oversubscriber waiting(std::uint64_t job, Time since = seconds(99)) {
  return {.job = job, .wants_room = true, .lacks_bytes = kGiB, .waits_since = since};
}

bool leaves(const RoomPlan& plan) { return plan.gives_bytes > 0; }

using Jobs = std::vector<Oversubscriber>;

// On one GPU.
RoomPlan plan_room(const Jobs& jobs, Time now) {
  const std::vector<Jobs> one = {jobs};
  return plan_rooms(one, now)[0];
}

TEST(PolicyResidency, NobodyLeavesWithoutNeed) {
  EXPECT_EQ(plan_room({}, kNow).first, 0u);
  const Jobs calm = {resident(1), resident(2)};
  EXPECT_FALSE(leaves(plan_room(calm, kNow)));
  Jobs fits = {resident(1), waiting(2)};
  fits[1].lacks_bytes = 0;
  EXPECT_EQ(plan_room(fits, kNow).first, 2u);
  EXPECT_FALSE(leaves(plan_room(fits, kNow)));
}

TEST(PolicyResidency, OneAtATime) {
  Jobs jobs = {resident(1), resident(2), waiting(3)};
  jobs[1].leaving = true;
  const RoomPlan plan = plan_room(jobs, kNow);
  EXPECT_FALSE(leaves(plan));
  EXPECT_EQ(plan.giver, 2u);
}

TEST(PolicyResidency, OneThatIdlesGoesBeforeOneThatWorks) {
  Jobs jobs = {resident(1), resident(2, seconds(50)), waiting(3)};
  jobs[1].active = false;
  EXPECT_EQ(plan_room(jobs, kNow).giver, 2u);
  EXPECT_TRUE(leaves(plan_room(jobs, kNow)));
  jobs[1].resident_since = kNow - milliseconds(199);
  jobs[0].resident_since = kNow;
  jobs[0].move_cost = seconds(1);
  EXPECT_FALSE(leaves(plan_room(jobs, kNow))) << "it has only just come";
  EXPECT_EQ(plan_room(jobs, kNow).look_again, kNow + milliseconds(1));
}

TEST(PolicyResidency, TheLowestClassGoesFirstThenTheLongestThere) {
  Jobs jobs = {resident(1, seconds(5)), resident(2, seconds(1)), resident(3, seconds(9)),
               waiting(4)};
  EXPECT_EQ(plan_room(jobs, kNow).giver, 2u);
  jobs[2].priority = Priority::kLow;
  EXPECT_EQ(plan_room(jobs, kNow).giver, 3u);
}

TEST(PolicyResidency, AStayIsTwentyTimesWhatMovingCosts) {
  Jobs jobs = {resident(1, kNow), waiting(2)};
  for (const Time cost :
       {Time(0), Time(milliseconds(1)), Time(milliseconds(50)), Time(seconds(1))}) {
    jobs[0].move_cost = cost;
    const Time end = kNow + std::max<Time>(20 * cost, milliseconds(200));
    const RoomPlan early = plan_room(jobs, end - Time(1));
    EXPECT_FALSE(leaves(early));
    EXPECT_EQ(early.giver, 1u);
    EXPECT_EQ(early.look_again, end);
    EXPECT_TRUE(leaves(plan_room(jobs, end)));
  }
}

TEST(PolicyResidency, WhoMustLeaveIsKnownAMomentBefore) {
  Jobs jobs = {resident(1, kNow), waiting(2)};
  jobs[0].move_cost = seconds(1);
  jobs[1].lacks_bytes = kGiB / 4;
  const Time end = kNow + seconds(20);
  const RoomPlan early = plan_room(jobs, kNow);
  EXPECT_EQ(early.soon_bytes, 0u);
  EXPECT_EQ(early.look_again, end - kKnownAhead);
  const RoomPlan ahead = plan_room(jobs, early.look_again);
  EXPECT_EQ(ahead.soon_bytes, kGiB / 4);
  EXPECT_EQ(ahead.giver, 1u);
  EXPECT_FALSE(leaves(ahead));
  EXPECT_EQ(ahead.look_again, end);
  const RoomPlan over = plan_room(jobs, end);
  EXPECT_EQ(over.soon_bytes, 0u);
  EXPECT_EQ(over.gives_bytes, kGiB / 4);
}

// One that idles, or is out, has only its rest.
TEST(PolicyResidency, WhoRestsIsNotAskedBeforeThat) {
  const Time rest = kNow + seconds(30);
  const Time first = kNow + seconds(2);
  const struct {
    bool active, out;
    Priority priority;
    Time rests_until, leaves_at;
  } rows[] = {
      {true, false, Priority::kNormal, Time{0}, kNow + seconds(20)},
      {true, false, Priority::kNormal, rest, rest},
      {true, false, Priority::kLow, Time{0}, kNow},
      {true, false, Priority::kLow, first, first},
      {false, false, Priority::kNormal, Time{0}, kNow + kShortestStay},
      {false, false, Priority::kNormal, first, first},
      {false, true, Priority::kNormal, Time{0}, kNow},
      {false, true, Priority::kNormal, first, first},
  };
  for (const auto& row : rows) {
    Jobs jobs = {resident(1, kNow), waiting(2)};
    jobs[0].move_cost = seconds(1);
    jobs[0].active = row.active;
    jobs[0].out = row.out;
    jobs[0].priority = row.priority;
    jobs[0].rests_until = row.rests_until;
    const Time at = row.leaves_at;
    EXPECT_TRUE(leaves(plan_room(jobs, at))) << &row - rows;
    const RoomPlan before = plan_room(jobs, at - Time(1));
    if (at == kNow) continue;
    EXPECT_FALSE(leaves(before)) << &row - rows;
    EXPECT_EQ(before.look_again, at) << &row - rows;
    EXPECT_EQ(before.soon_bytes, row.active ? kGiB : 0u) << "who idles may work, and stays";
  }
}

TEST(PolicyResidency, AStayIsBoundedWhateverAMoveIsSaidToHaveTaken) {
  Jobs jobs = {resident(1, kNow), waiting(2)};
  jobs[0].move_cost = seconds(3600);
  EXPECT_TRUE(leaves(plan_room(jobs, kNow + kLongestStay)));
}

TEST(PolicyResidency, WhatIsOnlyKeptGoesInPartsThatAreWorthIt) {
  Jobs jobs = {waiting(1), waiting(2, seconds(1))};
  jobs[0].out = true;
  jobs[0].resident_bytes = 8 * kGiB;
  jobs[1].lacks_bytes = 1;
  EXPECT_EQ(plan_room(jobs, kNow).gives_bytes, kGiB);
}

TEST(PolicyResidency, AHigherClassWaitsForNobodysStay) {
  Jobs jobs = {resident(1, kNow), waiting(2)};
  jobs[0].move_cost = seconds(10);
  jobs[1].priority = Priority::kHigh;
  EXPECT_TRUE(leaves(plan_room(jobs, kNow)));
  jobs[0].rests_until = kNow + seconds(3);
  EXPECT_FALSE(leaves(plan_room(jobs, kNow))) << "it could not";
  EXPECT_EQ(plan_room(jobs, kNow).look_again, kNow + seconds(3) - kKnownAhead);
}

TEST(PolicyResidency, ALowerClassGetsWhatAHigherOneLeavesIdle) {
  Jobs jobs = {resident(1), waiting(2)};
  jobs[0].priority = Priority::kHigh;
  EXPECT_EQ(plan_room(jobs, kNow).giver, 0u);
  jobs[0].active = false;
  EXPECT_TRUE(leaves(plan_room(jobs, kNow)));
}

TEST(PolicyResidency, TheLineIsByClassThenByWait) {
  Jobs jobs = {waiting(1, seconds(90)), waiting(2, seconds(80)), waiting(3, seconds(95))};
  EXPECT_EQ(plan_room(jobs, kNow).first, 2u);
  jobs[2].priority = Priority::kHigh;
  EXPECT_EQ(plan_room(jobs, kNow).first, 3u);
}

TEST(PolicyResidency, WhoWaitsGivesItsOwnRoomToWhoIsBeforeIt) {
  Jobs jobs = {waiting(1, seconds(90)), waiting(2, seconds(80))};
  for (Oversubscriber& job : jobs) job.resident_bytes = kGiB;
  const RoomPlan plan = plan_room(jobs, kNow);
  EXPECT_EQ(plan.first, 2u);
  EXPECT_EQ(plan.giver, 1u);
  EXPECT_TRUE(leaves(plan));
}

TEST(PolicyResidency, NoMoreLeavesThanIsLacking) {
  Jobs jobs = {resident(1), waiting(2)};
  jobs[1].lacks_bytes = kGiB / 4;
  EXPECT_EQ(plan_room(jobs, kNow).gives_bytes, kGiB / 4);
  jobs[1].lacks_bytes = 4 * kGiB;
  EXPECT_EQ(plan_room(jobs, kNow).gives_bytes, kGiB) << "it has no more";
}

TEST(PolicyResidency, WhatOneThatIsOutHasKeptGoesFirstAndAtOnce) {
  Jobs jobs = {resident(1), waiting(2), waiting(3)};
  jobs[2].out = true;
  jobs[2].resident_bytes = kGiB / 2;
  jobs[2].resident_since = kNow;
  jobs[2].move_cost = seconds(9);
  EXPECT_EQ(plan_room(jobs, kNow).giver, 3u);
  EXPECT_EQ(plan_room(jobs, kNow).gives_bytes, kGiB / 2);
  jobs[2].rests_until = kNow + seconds(1);
  EXPECT_EQ(plan_room(jobs, kNow).giver, 1u);
}

TEST(PolicyResidency, WhoNeedsMoreWithinItsStayIsBeforeWhoWaitsForATurn) {
  Jobs jobs = {resident(1, kNow), waiting(2)};
  jobs[0].move_cost = seconds(1);
  jobs[0].wants_room = true;
  jobs[0].waits_since = kNow;
  jobs[0].lacks_bytes = 1;
  jobs[1].out = true;
  jobs[1].resident_bytes = kGiB;
  EXPECT_EQ(plan_room(jobs, kNow).first, 1u);
  EXPECT_EQ(plan_room(jobs, kNow).giver, 2u);
  EXPECT_EQ(plan_room(jobs, kNow + seconds(20)).first, 2u) << "its stay is over";
}

TEST(PolicyResidency, ItComesWhileAnotherLeavesAndWhenItFits) {
  Jobs jobs = {resident(1), waiting(2)};
  EXPECT_FALSE(plan_room(jobs, kNow).arrives) << "what is free now is for who works";
  jobs[0].leaving = true;
  EXPECT_TRUE(plan_room(jobs, kNow).arrives);
  jobs[0].leaving = false;
  jobs[0].returning = true;
  EXPECT_FALSE(plan_room(jobs, kNow).arrives);
  jobs[1].lacks_bytes = 0;
  EXPECT_TRUE(plan_room(jobs, kNow).arrives);
}

TEST(PolicyResidency, WhoTakesNoTurnsGetsOnlyWhatIsKept) {
  Jobs jobs = {resident(1), waiting(2)};
  jobs[1].takes_turns = false;
  EXPECT_EQ(plan_room(jobs, kNow).giver, 0u);
  jobs[0].active = false;
  EXPECT_EQ(plan_room(jobs, kNow).giver, 0u) << "it idles, but may go on at any time";
  jobs[0].out = true;
  EXPECT_EQ(plan_room(jobs, kNow).giver, 1u);
  EXPECT_TRUE(leaves(plan_room(jobs, kNow)));
}

// Jobs of random sizes that work all the time on a GPU that holds some of them, moved by the plan.
TEST(PolicyResidency, NobodyStarvesAndMovingCostsATwentieth) {
  for (const std::uint64_t count : {2, 3, 5, 8}) {
    const std::uint64_t capacity = 10;
    std::map<std::uint64_t, std::uint64_t> sizes;
    std::map<std::uint64_t, Time> had;
    Jobs jobs;
    for (std::uint64_t id = 1; id <= count; ++id) {
      sizes[id] = 6 + id % 4;
      jobs.push_back(waiting(id, Time(id)));
      jobs.back().active = jobs.back().out = true;
      jobs.back().move_cost = milliseconds(20);
    }
    const Time step = milliseconds(10);
    Time moving_until{0};
    Time moved{0};
    const Time span = seconds(60);
    for (Time now = seconds(1); now < seconds(1) + span; now += step) {
      std::uint64_t used = 0;
      for (const auto& job : jobs) used += job.resident_bytes;
      for (Oversubscriber& job : jobs) {
        const std::uint64_t would = used - job.resident_bytes + sizes[job.job];
        job.lacks_bytes = would - std::min(would, capacity);
        job.returning = !job.out && now < moving_until;
        if (!job.out && !job.returning) had[job.job] += step;
      }
      const RoomPlan plan = plan_room(jobs, now);
      for (Oversubscriber& job : jobs) {
        if (leaves(plan) && job.job == plan.giver) {
          ASSERT_LE(plan.gives_bytes, job.resident_bytes);
          job.resident_bytes -= plan.gives_bytes;
          if (job.out) continue;
          EXPECT_GE(now - job.resident_since, stay_of(job));
          job.wants_room = job.out = true;
          job.waits_since = now;
          moved += job.move_cost;
        } else if (job.job == plan.first && job.lacks_bytes == 0) {
          job.resident_bytes = sizes[job.job];
          job.wants_room = job.out = false;
          moving_until = now + job.move_cost;
          job.resident_since = moving_until;
        }
      }
    }
    EXPECT_LE(moved, span / 20 + milliseconds(20));
    for (const auto& [id, size] : sizes) {
      EXPECT_GE(had[id], span / (2 * count)) << id << " of " << count;
    }
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
