// The figures by which jobs that take turns are granted memory: tables, each row of which has one
// term that decides. The clients' words are put where a look would leave them.
#include "monitor/residency/way_back.h"

#include <gtest/gtest.h>

#include "tests/monitor/plants.h"
#include "tests/monitor/residency/crowd.h"

namespace switchyard::monitor::test {
namespace {

using policy::usable_part;

TEST(WayBack, WhoCouldNotLeaveRestsAndIsLeftAloneByThoseWhoWaitSinceThen) {
  const Time stayed = seconds(100);
  const Time rested = stayed + residency::kRests;
  const struct {
    bool turns, stayed;
    Time waits_since, now;
    bool could;
  } rows[] = {
      {true, false, seconds(1), seconds(2), true},
      {false, false, seconds(1), seconds(2), false},
      {true, true, stayed + Time(1), rested, true},
      {false, true, stayed + Time(1), rested, false},
      {true, true, stayed + Time(1), rested - Time(1), false},
      {true, true, stayed, rested, false},
      {true, true, stayed - Time(1), rested, false},
      {true, true, Time::max(), rested, true},
  };
  for (const auto& row : rows) {
    Job job;
    job.knobs.oversubscribe = row.turns;
    if (row.stayed) job.memory.take({.event = residency::Event::kNotHeld}, stayed);
    EXPECT_EQ(could_leave(job, row.waits_since, row.now), row.could) << &row - rows;
  }
}

TEST(WayBack, WhatOtherGpusHaveTakenIsNotLeft) {
  const HostRoom host{10, {3, 4}};
  EXPECT_EQ(host.left_for(0), 6u);
  EXPECT_EQ(host.left_for(1), 7u);
  EXPECT_EQ((HostRoom{10, {3, 12}}).left_for(0), 0u);
}

TEST(WayBack, OfWhatAClientSaysOfTheHostNoMoreCountsThanItCanHave) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a");
  rig.account().granted(a.id, 6 * kGiB);
  const Job& job = *rig.monitor.registry().find(a.client->job);
  const ResidencyReport said{.phase = abi::kAbsent,
                             .total_bytes = 6 * kGiB,
                             .resident_bytes = 4 * kGiB,
                             .host_bytes = 8 * kGiB};
  const auto check = [&](auto change, std::uint64_t total, std::uint64_t pinned, std::uint64_t away,
                         const char* what) {
    Client::Lane lane = a.client->lanes.at(0);
    lane.residency = said;
    lane.residency_order = {};
    Plants::in(lane.noted).most_pinned = 8 * kGiB;
    change(lane);
    const policy::HostUser user = host_user(rig.monitor.gpus(), job, *a.client, lane);
    EXPECT_EQ(user.total_bytes, total) << what;
    EXPECT_EQ(user.pinned_bytes, pinned) << what;
    EXPECT_EQ(user.away_bytes, away) << what;
    EXPECT_TRUE(user.takes_turns);
  };
  using Lane = Client::Lane;
  check([](Lane&) {}, 6 * kGiB, 8 * kGiB, 2 * kGiB, "as it says");
  check([](Lane& lane) { lane.residency.total_bytes = 9 * kGiB; }, 6 * kGiB, 8 * kGiB, 5 * kGiB,
        "what it was granted");
  check([](Lane& lane) { Plants::in(lane.noted).most_pinned = kGiB; }, 6 * kGiB, kGiB,
        usable_part(kGiB), "what it was permitted to pin");
  check([](Lane& lane) { lane.residency.host_bytes = kGiB; }, 6 * kGiB, kGiB, usable_part(kGiB),
        "what it has pinned");
  check(
      [](Lane& lane) {
        lane.residency.host_bytes = 0;
        lane.residency_order.host_limit_bytes = 8 * kGiB;
      },
      6 * kGiB, 0, 2 * kGiB, "what it may pin yet");
  check(
      [](Lane& lane) {
        lane.residency_order = {true, kGiB, 0};
      },
      6 * kGiB, 8 * kGiB, 5 * kGiB, "what is on its way there");
}

// a has memory on both GPUs, and another process on the second alone.
struct WayBackOnTwo : Crowd {
  Joined a, b;
  WayBackOnTwo()
      : Crowd(8 * kGiB, 2),
        a(join({.job = "a", .name = "a", .oversubscribe = "yes"}, 1000, 2)),
        b(join({.job = "a", .name = "a"}, 1000, 2)) {
    pass(milliseconds(10));
  }
  Job& job() { return *monitor.registry().find(a.client->job); }
  static Client::Lane& lane(const Joined& who, unsigned gpu) { return who.client->lanes.at(gpu); }
};

TEST(WayBack, WhatMayStillLeaveIsThatOfAllProcessesOnThatGpuAlone) {
  WayBackOnTwo rig;
  const auto permits = [&](const Joined& who, unsigned gpu, std::uint64_t limit,
                           std::uint64_t away) {
    rig.lane(who, gpu).residency_order.host_limit_bytes = limit;
    rig.lane(who, gpu).residency = {.total_bytes = 4 * kGiB, .resident_bytes = 4 * kGiB - away};
  };
  permits(rig.a, 0, 4 * kGiB, kGiB);
  permits(rig.b, 0, kGiB, 0);
  permits(rig.a, 1, 2 * kGiB, 0);
  permits(rig.b, 1, kGiB, 2 * kGiB);
  const Registry& registry = rig.monitor.registry();
  EXPECT_EQ(may_still_leave(0, registry, rig.job()),
            usable_part(4 * kGiB) - kGiB + usable_part(kGiB));
  EXPECT_EQ(may_still_leave(1, registry, rig.job()), usable_part(2 * kGiB))
      << "what one has too much does not count for another";
}

TEST(WayBack, AJobsRoomIsWhatItHasWithItsPromiseAndWhatOfThatCanLeave) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a", {.memory = "3GiB"});
  const Joined plain = rig.runs({.name = "p"});
  ASSERT_TRUE(rig.gets(a, kGiB));
  ASSERT_TRUE(rig.allocate(plain, kGiB / 2));
  rig.listed(a) += kGiB / 8;  // its context
  rig.pass(seconds(1));
  GpuAccounts& gpus = rig.monitor.gpus();
  const Registry& registry = rig.monitor.registry();
  const JobKey key = a.client->job;
  gpus.read_credits(0);
  const Account::Holding& holding = *rig.account().holding(a.id);
  ASSERT_EQ(holding.overhead, kGiB / 8);
  const auto crowd = [&](Leaves leaves) {
    return crowd_of(0, registry, gpus, leaves, Time::max(), rig.now);
  };
  const monitor::Crowd::Has has = crowd(Leaves::kAsTheySay).in_turns.at(key);
  EXPECT_EQ(has.granted, holding.granted);
  EXPECT_EQ(has.all, holding.granted + kGiB / 8);
  EXPECT_EQ(has.full, 3 * kGiB) << "with what was promised to it";
  EXPECT_EQ(has.can_leave, holding.granted) << "its idle credit is taken back";
  EXPECT_EQ(has.stay, kGiB / 8);
  EXPECT_EQ(crowd(Leaves::kAsTheySay).plain, rig.account().held(plain.client->job));
  EXPECT_EQ(crowd(Leaves::kAsTheySay).room, 4 * kGiB);
  // Half of it is plain memory, as far as the library has said.
  a.client->lanes.at(0).residency.total_bytes = kGiB / 2;
  EXPECT_EQ(crowd(Leaves::kAsTheySay).in_turns.at(key).can_leave, holding.credit + kGiB / 2);
  EXPECT_EQ(crowd(Leaves::kAllThatTheyUse).in_turns.at(key).can_leave, holding.granted);
}

// Of a crowd of which all but one term fits.
TEST(WayBack, ARequestFitsAloneWhereNothingThatStaysIsInItsWayAndTheHostTakesTheRest) {
  Crowd rig;
  const Joined a = rig.oversubscriber("a", {.memory = "3GiB"});
  const Job& job = *rig.monitor.registry().find(a.client->job);
  const Request request{0, job, 2 * kGiB};
  // Two others have 3 GiB, of which one stays, and a plain job has half of one.
  monitor::Crowd fits;
  fits.all = 3 * kGiB;
  fits.stay = kGiB;
  fits.plain = kGiB / 2;
  fits.room = 4 * kGiB;
  const HostRoom host{3 * kGiB, {kGiB, kGiB / 4}};
  const auto alone = [&](const monitor::Crowd& crowd, const HostRoom& room) {
    return fits_alone(rig.monitor.gpus(), request, room, crowd);
  };
  EXPECT_TRUE(alone(fits, host));
  monitor::Crowd crowd = fits;
  crowd.stay = 3 * kGiB / 2;
  EXPECT_TRUE(alone(crowd, host)) << "just so";
  crowd.stay += 1;
  EXPECT_FALSE(alone(crowd, host));
  crowd = fits;
  crowd.plain = kGiB + 1;
  EXPECT_FALSE(alone(crowd, host));
  crowd = fits;
  crowd.room = 2 * kGiB - 1;
  EXPECT_FALSE(alone(crowd, host));
  EXPECT_TRUE(alone(fits, {3 * kGiB / 2, {0, 0}})) << "so much must be away";
  EXPECT_FALSE(alone(fits, {3 * kGiB / 2 - 1, {0, 0}}));
  EXPECT_FALSE(alone(fits, {3 * kGiB / 2, {0, 1}})) << "another GPU has that of the host";
  // The job's own memory is in nobody's way.
  crowd = fits;
  monitor::Crowd::Has& its = crowd.in_turns[job.key];
  its.all = its.stay = kGiB;
  crowd.all += kGiB;
  crowd.stay += kGiB;
  EXPECT_TRUE(alone(crowd, {3 * kGiB / 2, {0, 0}}));
  EXPECT_FALSE(fits_alone(rig.monitor.gpus(), {0, job, 3 * kGiB + 1}, host, fits)) << "its quota";
}

// The more one that takes turns has, the less of the pool is kept for one that takes none.
TEST(WayBack, WhatIsAskedForCountsForTheHostsRoom) {
  Crowd rig(8 * kGiB);
  const Joined a = rig.oversubscriber("a");
  const Joined other = rig.runs({.name = "s", .swappable = "yes"});
  rig.account().granted(a.id, kGiB);
  rig.account().granted(other.id, 4 * kGiB);
  const Job& job = *rig.monitor.registry().find(a.client->job);
  const GpuAccounts& gpus = rig.monitor.gpus();
  const Registry& registry = rig.monitor.registry();
  other.client->lanes.at(0).residency.total_bytes = 4 * kGiB;
  const std::uint64_t before = host_room(registry, gpus).bytes;
  EXPECT_EQ(host_room_with(registry, gpus, {0, job, 0}).bytes, before);
  EXPECT_GT(host_room_with(registry, gpus, {0, job, 3 * kGiB}).bytes, before);
}

}  // namespace
}  // namespace switchyard::monitor::test
