// One user beside others: what each may take, and whose turn it is.
#include "monitor/platform/users.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "monitor/platform/process_watch.h"
#include "monitor/platform/processes.h"
#include "monitor/transport/request_turns.h"
#include "monitor/transport/session.h"
#include "switchyard/status.h"
#include "tests/monitor/rig.h"
#include "tests/monitor/transport/wire_client.h"

namespace switchyard::monitor {
namespace {

using namespace test;

constexpr uid_t kOwner = 500, kMe = 1000, kOther = 1001;

TEST(Turns, ServesOneOfEachUserInTurn) {
  Turns turns;
  std::string served;
  const auto add = [&](uid_t uid, char name) {
    turns.add(uid, [&served, name] { served += name; });
  };
  for (int i = 0; i < 5; ++i) add(kMe, 'm');
  add(0, 'r');
  add(kOther, 'o');
  add(0, 'r');
  while (!turns.empty()) turns.next()();
  EXPECT_EQ(served, "mromrmmm");
}

TEST(Turns, HowLongAUserWaitsDoesNotDependOnHowMuchAnotherAsks) {
  Turns turns;
  int served_before = 0;
  for (int i = 0; i < 100'000; ++i) turns.add(kMe, [&] { ++served_before; });
  bool served = false;
  turns.add(0, [&] { served = true; });
  while (!served) turns.next()();
  EXPECT_LE(served_before, 1);
}

TEST(Users, OneHasAsManyConnectionsAsItMayAndRootAndTheOwnerAreNotBounded) {
  Users users(kOwner, {3, 10, 100'000});
  std::vector<Users::Seat> seats;
  for (int i = 0; i < 3; ++i) seats.push_back(users.connect(kMe));
  for (const auto& seat : seats) EXPECT_NE(seat, nullptr);
  EXPECT_EQ(users.connect(kMe), nullptr);
  EXPECT_NE(users.connect(kOther), nullptr);
  for (const uid_t uid : {uid_t{0}, kOwner}) {
    for (int i = 0; i < 10; ++i) seats.push_back(users.connect(uid));
    EXPECT_NE(seats.back(), nullptr);
  }
  seats.clear();
  EXPECT_NE(users.connect(kMe), nullptr) << "all was given back";
}

TEST(Users, AllTogetherLeaveDescriptorsForRoot) {
  Users users(kOwner, {1'000'000, 10, 1000});
  std::vector<Users::Seat> seats;
  std::size_t connections = 0;
  for (uid_t uid = 1000; uid < 1010; ++uid) {
    while (auto seat = users.connect(uid)) {
      seats.push_back(std::move(seat));
      ASSERT_LT(++connections, 1000u);
    }
    EXPECT_TRUE(uid != 1000 || connections < 30) << "one has half of them at most";
  }
  EXPECT_LE(connections * 5, 500u) << "half is for shared memory, and more is root's";
  EXPECT_EQ(users.hold(2000, 300), nullptr);
}

TEST(Users, OnlySoManyAreToldWhyTheyAreRefused) {
  Users users(kOwner, {});
  std::vector<Users::Seat> told;
  while (auto seat = users.refuse(kMe)) {
    told.push_back(std::move(seat));
    ASSERT_LT(told.size(), 1000u);
  }
  EXPECT_NE(users.refuse(kOther), nullptr);
}

TEST(Users, OneHasAsManyJobsAsItMay) {
  Settings settings;
  settings.owner = kOwner;
  settings.users.jobs = 3;
  Rig rig(1, 4 * kGiB, settings);
  const auto create = [&](uid_t uid) { return rig.ask({{"op", "create"}}, uid); };
  for (int i = 0; i < 2; ++i) ASSERT_EQ(create(kMe)["ok"], true);
  const Joined third = rig.join({}, kMe);
  const json refused = create(kMe);
  EXPECT_EQ(refused["code"], kRefusedByPolicy);
  EXPECT_NE(refused["error"].get<std::string>().find("--jobs-per-user"), std::string::npos);
  EXPECT_NE(rig.refusal({}, kMe).find("3 jobs"), std::string::npos);
  const std::string id = rig.monitor.registry().find(third.client->job)->id;
  EXPECT_NO_THROW(rig.join({.job = id}, kMe))
      << "a process of a job that there is makes no new one";
  for (const uid_t uid : {uid_t{0}, kOwner, kOther}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(create(uid)["ok"], true) << uid;
  }
  EXPECT_EQ(create(kOther)["ok"], false);
}

// Else it could take all connections, jobs and turns of the host's monitor.
TEST(Users, RootInAContainerIsBoundedForEachContainer) {
  Settings settings;
  settings.owner = 0;
  settings.users = {2, 3, 100'000};
  Rig rig(1, 4 * kGiB, settings);
  const auto root_in = [](char digit) {
    return Peer{1, 0, "pid:[1]user:[2]/docker/" + std::string(64, digit)};
  };
  const auto create = [&](const Peer& peer) {
    return json::parse(answer_command(rig.monitor, peer, R"({"op":"create"})", rig.now).json);
  };
  for (int i = 0; i < 3; ++i) ASSERT_EQ(create(root_in('a'))["ok"], true);
  const json refused = create(root_in('a'));
  EXPECT_EQ(refused["code"], kRefusedByPolicy);
  EXPECT_NE(refused["error"].get<std::string>().find("root of this container has 3 jobs"),
            std::string::npos)
      << refused;
  EXPECT_EQ(create(root_in('b'))["ok"], true) << "another user";
  EXPECT_EQ(create({1, 0})["ok"], true) << "the host's";
  Users& users = rig.monitor.users();
  std::vector<Users::Seat> seats;
  for (int i = 0; i < 2; ++i) seats.push_back(users.connect(root_in('a').account()));
  EXPECT_EQ(users.connect(root_in('a').account()), nullptr);
  EXPECT_NE(users.connect(root_in('b').account()), nullptr);
  // The units of a tick, and memory that is shared.
  const Registry& registry = rig.monitor.registry();
  registry.work().spend(root_in('a').account(), Work::kMostOfUser);
  EXPECT_FALSE(registry.may_work(root_in('a').account()));
  EXPECT_TRUE(registry.may_work(0));
}

TEST(Wake, IsHeardAgainWithinAMillisecondWhileMemoryMoves) {
  Rig rig;
  const Joined a = rig.join({.swappable = "yes"});
  Client::Lane& lane = a.client->lanes.at(0);
  EXPECT_GT(pause_after_wake(*a.client), milliseconds(1));
  lane.residency.total_bytes = kGiB;
  lane.residency.phase = abi::kLeaving;
  EXPECT_LT(pause_after_wake(*a.client), milliseconds(1)) << "two rings 1 ms apart are both heard";
  lane.residency.phase = abi::kResident;
  EXPECT_GT(pause_after_wake(*a.client), milliseconds(1));
  lane.asked_to_wake = true;
  EXPECT_LT(pause_after_wake(*a.client), milliseconds(1));
  lane.asked_to_wake = false;
  lane.order.tell_waits = true;
  EXPECT_LT(pause_after_wake(*a.client), milliseconds(1)) << "it shall tell that it waits";
}

// --- watches ---

pid_t sleeper() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::sleep(kPatienceMs / 1000);
    ::_exit(0);
  }
  return child;
}

TEST(ProcessWatches, HaveOneDescriptorForAProcessHoweverManyThereAre) {
  asio::io_context io(1);
  ProcessWatches watches(io);
  const pid_t child = sleeper();
  int called = 0;
  std::vector<Watch> all;
  for (int i = 0; i < 100; ++i) all.push_back(watches.when_dead(child, {}, [&](int) { ++called; }));
  EXPECT_EQ(watches.processes(), 1u);
  all.resize(40);
  ::kill(child, SIGKILL);
  while (called < 40 && io.run_one_for(std::chrono::milliseconds(kPatienceMs)) > 0) {
  }
  io.poll();
  EXPECT_EQ(called, 40) << "those that have ended aren't called";
  int status = 0;
  ::waitpid(child, &status, 0);
  all.clear();
  EXPECT_EQ(watches.processes(), 0u);
  bool dead = false;
  const Watch late = watches.when_dead(child, {}, [&](int) { dead = true; });
  ASSERT_NE(late, nullptr);
  io.restart();
  io.poll();
  EXPECT_TRUE(dead);
}

// --- names ---

std::mutex g_mutex;
std::condition_variable g_answers;
bool g_may_answer = true;
std::atomic<bool> g_asked_here{false};
std::thread::id g_loop;

}  // namespace
}  // namespace switchyard::monitor

// In place of the C library's: a name service that takes its time.
extern "C" int getpwuid_r(uid_t uid, struct passwd* entry, char* room, size_t bytes,
                          struct passwd** found) {
  using namespace switchyard::monitor;
  if (std::this_thread::get_id() == g_loop) g_asked_here = true;
  std::unique_lock lock(g_mutex);
  g_answers.wait_for(lock, std::chrono::seconds(60), [] { return g_may_answer; });
  *found = nullptr;
  if (uid != 4'242'424 || bytes < 16) return 0;
  std::snprintf(room, bytes, "remote");
  entry->pw_name = room;
  *found = entry;
  return 0;
}

namespace switchyard::monitor {
namespace {

TEST(UserNames, ASlowNameServiceKeepsNobodyWaiting) {
  g_loop = std::this_thread::get_id();
  {
    const std::lock_guard lock(g_mutex);
    g_may_answer = false;
  }
  EXPECT_EQ(user_name(0), "root") << "known to the machine itself";
  EXPECT_EQ(user_name(4'242'424), "4242424");
  EXPECT_EQ(user_name(4'242'425), "4242425");
  {
    const std::lock_guard lock(g_mutex);
    g_may_answer = true;
  }
  g_answers.notify_all();
  EXPECT_TRUE(eventually([] { return user_name(4'242'424) == "remote"; }));
  EXPECT_EQ(user_name(4'242'425), "4242425");
  EXPECT_FALSE(g_asked_here);
}

}  // namespace
}  // namespace switchyard::monitor
