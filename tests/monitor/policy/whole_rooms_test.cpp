// Turns of memory of jobs that need several GPUs: room on all of them at once, or on none.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/monitor/policy/room.h"
#include "tests/support/seeds.h"

namespace switchyard::monitor::policy {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

using Gpus = std::vector<std::vector<Oversubscriber>>;

Oversubscriber waiting(std::uint64_t job, Time since, std::uint64_t lacks = kGiB) {
  return {.job = job, .out = true, .wants_room = true, .lacks_bytes = lacks, .waits_since = since};
}

TEST(WholeRooms, RoomIsGivenOnAllGpusInOneLook) {
  const Gpus gpus = {{resident(1), waiting(3, seconds(99))},
                     {resident(2), waiting(3, seconds(99))}};
  const auto plans = plan_rooms(gpus, kNow);
  EXPECT_EQ(plans[0].giver, 1u);
  EXPECT_EQ(plans[1].giver, 2u);
  EXPECT_EQ(plans[0].gives_bytes, kGiB);
  EXPECT_EQ(plans[1].gives_bytes, kGiB);
}

TEST(WholeRooms, NothingIsGivenBeforeTheLastStayIsOver) {
  Gpus gpus = {{resident(1), waiting(3, seconds(99))}, {resident(2), waiting(3, seconds(99))}};
  gpus[1][0].resident_since = kNow - milliseconds(100);
  const auto plans = plan_rooms(gpus, kNow);
  EXPECT_EQ(plans[0].gives_bytes, 0u) << "its GPU would wait for the other";
  EXPECT_EQ(plans[1].gives_bytes, 0u);
  EXPECT_EQ(plans[1].look_again, kNow + milliseconds(100));
  EXPECT_EQ(plan_rooms(gpus, kNow + milliseconds(100))[0].gives_bytes, kGiB);
}

TEST(WholeRooms, NothingComesInPartsBeforeThere) {
  Gpus gpus = {{waiting(3, seconds(99), 0)}, {resident(2, kNow), waiting(3, seconds(99))}};
  EXPECT_FALSE(plan_rooms(gpus, kNow)[0].arrives) << "the room stays free for others";
  gpus[1][0].leaving = true;
  EXPECT_TRUE(plan_rooms(gpus, kNow)[0].arrives);
  EXPECT_TRUE(plan_rooms(gpus, kNow)[1].arrives);
}

TEST(WholeRooms, WhoseRanksAreBeingStoppedIsAwaited) {
  Gpus gpus = {{resident(1), waiting(3, seconds(99))}, {resident(2), waiting(3, seconds(99))}};
  gpus[1][0].stopping = true;
  const auto plans = plan_rooms(gpus, kNow);
  EXPECT_EQ(plans[0].gives_bytes, 0u);
  EXPECT_EQ(plans[1].giver, 2u);
  EXPECT_FALSE(plans[1].arrives);
}

TEST(WholeRooms, WhoWaitsForAGpuOfAnotherTakesNothingOnItsOther) {
  // 1 wants the first GPU, 2 both, 3 the second. They came in this order.
  const Gpus gpus = {
      {resident(8), waiting(1, seconds(97)), waiting(2, seconds(98))},
      {resident(9), waiting(2, seconds(98)), waiting(3, seconds(99))},
  };
  const auto plans = plan_rooms(gpus, kNow);
  EXPECT_EQ(plans[0].first, 1u);
  EXPECT_EQ(plans[1].first, 3u) << "2 could not use it yet";
}

TEST(WholeRooms, AllGpusAgreeWhoIsFirst) {
  // Each has waited longer on another GPU.
  const Gpus gpus = {
      {resident(8), waiting(1, seconds(97)), waiting(2, seconds(98))},
      {resident(9), waiting(1, seconds(99)), waiting(2, seconds(98))},
  };
  for (const RoomPlan& plan : plan_rooms(gpus, kNow)) EXPECT_EQ(plan.first, 1u);
}

// A gang at work that asks for memory, one that is out and has kept some, and one at work.
struct AskingGang {
  Gpus gpus = {{resident(1), resident(2), resident(3, seconds(2))}};
  Oversubscriber& asks = gpus[0][0];
  Oversubscriber& out = gpus[0][1];
  Oversubscriber& works = gpus[0][2];
  AskingGang() {
    make_ask(asks);
    out.out = out.wants_room = true;
    out.active = false;
    out.waits_since = seconds(98);
    out.lacks_bytes = kGiB;
  }
  static void make_ask(Oversubscriber& job) {
    job.gang = job.wants_room = job.asks = true;
    job.waits_since = seconds(99);
    job.lacks_bytes = kGiB / 2;
  }
  static void stop(Oversubscriber& job) { job.stopping = job.gathers = true; }
  RoomPlan plan() { return plan_rooms(gpus, kNow)[0]; }
};

TEST(WholeRooms, AGangThatAsksIsServedBeforeItGives) {
  AskingGang rig;
  EXPECT_EQ(rig.plan().first, 1u);
  EXPECT_EQ(rig.plan().giver, 2u) << "what is kept";
  EXPECT_EQ(rig.plan().gives_bytes, kGiB / 2);
  rig.asks.gang = false;
  EXPECT_EQ(rig.plan().first, 2u) << "it can leave with a thread that waits";
  rig.asks.gang = true;
  rig.out.priority = Priority::kHigh;
  EXPECT_EQ(rig.plan().first, 2u);
}

TEST(WholeRooms, AGangForWhichNotEnoughIsKeptHasItsPlaceAndGivesLast) {
  AskingGang rig;
  rig.asks.lacks_bytes = 2 * kGiB;
  EXPECT_EQ(rig.plan().first, 2u) << "it has waited longer";
  EXPECT_EQ(rig.plan().giver, 3u);
  rig.works.priority = Priority::kHigh;
  EXPECT_EQ(rig.plan().giver, 1u) << "who works in a higher class gives nothing";
}

TEST(WholeRooms, AGangThatIsBeingStoppedGetsWhatItNeedsToComeToTheCut) {
  AskingGang rig;
  rig.stop(rig.asks);
  rig.out.priority = Priority::kHigh;
  EXPECT_EQ(rig.plan().first, 1u) << "the other waits for its memory";
  EXPECT_EQ(rig.plan().giver, 2u);
  EXPECT_EQ(rig.plan().gives_bytes, kGiB / 2);
  rig.works.stopping = true;
  EXPECT_EQ(rig.plan().gives_bytes, kGiB / 2) << "it waits for nobody's cut";
  rig.works.stopping = false;
  rig.asks.gathers = false;
  EXPECT_EQ(rig.plan().first, 2u) << "it is there";
  rig.stop(rig.asks);
  rig.out.resident_bytes = kGiB / 4;
  EXPECT_EQ(rig.plan().first, 2u) << "all that is kept would not help it";
  EXPECT_EQ(rig.plan().giver, 1u) << "it is awaited";
  EXPECT_EQ(rig.plan().gives_bytes, 0u);
}

TEST(WholeRooms, OfTwoGangsThatAskOneGivesToTheOther) {
  Gpus gpus = {{resident(1), resident(2)}, {resident(1), resident(2)}};
  AskingGang::make_ask(gpus[0][0]);
  AskingGang::make_ask(gpus[1][1]);
  gpus[1][0].gang = gpus[0][1].gang = true;
  const auto plans = plan_rooms(gpus, kNow);
  EXPECT_EQ(plans[0].giver, 2u);
  EXPECT_EQ(plans[0].gives_bytes, kGiB / 2);
  EXPECT_EQ(plans[1].first, 2u);
  EXPECT_EQ(plans[1].gives_bytes, 0u) << "neither would come to its cut";
}

// Gangs of random shapes and jobs on one GPU, which all work all the time, moved by the plan.
class Played {
 public:
  static constexpr std::uint64_t kCapacity = 10;
  static constexpr Time kMove = milliseconds(20);

  Played(std::size_t gpus, unsigned seed) : random_(seed), gpus_(gpus), used_(gpus) {
    // One gang has all GPUs, some have a part, and each GPU has a job of its own.
    add(0, gpus);
    for (std::size_t at = 0; at + 1 < gpus;) {
      const std::size_t size = 2 + random_() % std::min<std::size_t>(8, gpus - at - 1);
      add(at, std::min(size, gpus - at));
      at += size;
    }
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) add(gpu, 1);
  }
  void run(Time span) {
    for (Time now = seconds(1); now < seconds(1) + span; now += milliseconds(10)) step(now);
    for (const auto& [key, job] : jobs_) {
      EXPECT_GE(job.had, span / 12) << "job " << key << " on " << job.gpus.size() << " GPUs";
    }
  }

 private:
  struct Job {
    std::vector<std::size_t> gpus;
    std::uint64_t size = 0;
    bool out = true;
    Time since{0};  // it is there, or waits
    Time had{0};
    std::map<std::size_t, std::uint64_t> has = {};
  };
  void add(std::size_t from, std::size_t count) {
    Job& job = jobs_[jobs_.size() + 1];
    for (std::size_t i = 0; i < count; ++i) job.gpus.push_back(from + i);
    job.size = 6 + random_() % 4;
    job.since = Time(jobs_.size());
  }
  std::vector<std::vector<Oversubscriber>> views(Time now) {
    std::vector<std::vector<Oversubscriber>> out(gpus_);
    for (auto& [key, job] : jobs_) {
      for (const std::size_t gpu : job.gpus) {
        Oversubscriber view{.job = key, .resident_bytes = job.has[gpu], .move_cost = kMove};
        view.active = true;
        view.out = view.wants_room = job.out;
        view.returning = !job.out && now < job.since;
        (job.out ? view.waits_since : view.resident_since) = job.since;
        const std::uint64_t would = used_[gpu] - job.has[gpu] + job.size;
        if (job.out) view.lacks_bytes = would - std::min(would, kCapacity);
        out[gpu].push_back(view);
      }
    }
    return out;
  }
  void step(Time now) {
    for (auto& [key, job] : jobs_) {
      if (!job.out && now >= job.since) job.had += milliseconds(10);
    }
    const auto plans = plan_rooms(views(now), now);
    for (const auto& [key, job] : jobs_) expect_whole(key, job, plans);
    for (std::size_t gpu = 0; gpu < gpus_; ++gpu) give(gpu, plans[gpu], now);
    for (auto& [key, job] : jobs_) come(key, job, plans, now);
    for (const std::uint64_t used : used_) ASSERT_LE(used, kCapacity);
  }
  // No hold-and-wait: who is served on one of its GPUs is on all.
  static void expect_whole(std::uint64_t key, const Job& job, const std::vector<RoomPlan>& plans) {
    if (!job.out) return;
    std::size_t first = 0;
    std::size_t served = 0;
    bool moves = false;
    for (const std::size_t gpu : job.gpus) {
      first += plans[gpu].first == key ? 1 : 0;
      served += plans[gpu].first == key && plans[gpu].served ? 1 : 0;
      moves = moves || (plans[gpu].first == key &&
                        (plans[gpu].gives_bytes != 0 || (plans[gpu].arrives && plans[gpu].served)));
    }
    ASSERT_TRUE(first == 0 || first == job.gpus.size()) << key;
    ASSERT_TRUE(!moves || served == job.gpus.size()) << key;
  }
  void give(std::size_t gpu, const RoomPlan& plan, Time now) {
    if (plan.gives_bytes == 0) return;
    Job& giver = jobs_.at(plan.giver);
    if (!giver.out) {
      ASSERT_GE(now, giver.since + 20 * kMove) << "its stay was cut short";
      giver.out = true;
      giver.since = now;
    }
    used_[gpu] -= plan.gives_bytes;
    giver.has[gpu] -= plan.gives_bytes;
  }
  void come(std::uint64_t key, Job& job, const std::vector<RoomPlan>& plans, Time now) {
    const bool fits = std::all_of(job.gpus.begin(), job.gpus.end(), [&](std::size_t gpu) {
      return plans[gpu].first == key && used_[gpu] - job.has[gpu] + job.size <= kCapacity;
    });
    if (!job.out || !fits) return;
    job.out = false;
    job.since = now + kMove;
    for (const std::size_t gpu : job.gpus) {
      used_[gpu] += job.size - job.has[gpu];
      job.has[gpu] = job.size;
    }
  }

  std::mt19937 random_;
  std::size_t gpus_;
  std::vector<std::uint64_t> used_;
  std::map<std::uint64_t, Job> jobs_;
};

TEST(WholeRooms, GangsOfAllSizesAreServedWholeAndNobodyStarves) {
  for (const std::size_t gpus : {2, 3, 8, 64}) {
    for (unsigned seed = 1; seed <= test_support::seeds(5); ++seed) {
      SCOPED_TRACE(std::to_string(gpus) + " GPUs, seed " + std::to_string(seed));
      Played(gpus, seed).run(seconds(30));
    }
  }
}

}  // namespace
}  // namespace switchyard::monitor::policy
