// Jobs that oversubscribe a GPU of 4 GiB, and what their libraries would say.
//
// Threading: none.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

struct Crowd : Rig {
  // 4 GiB, and what is kept for overhead.
  explicit Crowd(std::uint64_t host_pool = 64 * kGiB, unsigned gpu_count = 1)
      : Rig(gpu_count, 4 * kGiB + 4 * kGiB / (kKeptForOverhead - 1), with_host_pool(host_pool)) {}

  Joined oversubscriber(const std::string& name, Ask wanted = {}, uid_t uid = 1000) {
    wanted.name = name;
    wanted.oversubscribe = "yes";
    Joined joined = join(wanted, uid);
    joined.shim.open_context();
    joined.shim.launch();
    return joined;
  }
  // Allocates, all of it swappable.
  bool gets(const Joined& who, std::uint64_t bytes) {
    if (!allocate(who, bytes)) return false;
    who.shim.residency().total_bytes += bytes;
    who.shim.residency().resident_bytes += bytes;
    return true;
  }
  // It asks again, as it does while it waits, and works or not.
  void live(Time span, std::initializer_list<const Joined*> working = {}) {
    for (Time end = now + span; now < end;) {
      for (const Joined* each : working) each->shim.launch();
      pass(milliseconds(50));
    }
  }
  // It works until it is told to leave, for a minute at most. How long that took.
  Time works_until_told(const Joined& who) {
    const Time began = now;
    while (!who.shim.told_to_leave() && now - began < seconds(60)) {
      live(milliseconds(50), {&who});
    }
    return now - began;
  }
  void is_absent(const Joined& who) {
    who.shim.be_absent();
    shows(who);
  }
  // The same, and a thread of it waits to go on.
  void is_absent_and_waits(const Joined& who) {
    who.shim.residency().held_threads = 1;
    is_absent(who);
  }
  // Its memory is what the limit permits, some steps on the way.
  void comes_to(const Joined& who, std::uint64_t bytes) {
    who.shim.residency().resident_bytes = bytes;
    shows(who);
  }
  void shows(const Joined& who) {
    listed(who) = who.shim.residency().resident_bytes;
    pass(milliseconds(50));
  }
  std::uint64_t may_have(const Joined& who) { return who.shim.residency().limit_bytes; }
  void is_back(const Joined& who) {
    who.shim.residency().held_threads = 0;
    who.shim.be_resident();
    listed(who) = who.shim.residency().total_bytes;
    pass(milliseconds(50));
  }
};

// Of 4 GiB a has 3 and b wants 3.
struct TwoOfThree : Crowd {
  Joined a = oversubscriber("a");
  Joined b;
  explicit TwoOfThree(uid_t uid_of_b = 1000, std::uint64_t host_pool = 64 * kGiB,
                      unsigned gpu_count = 1)
      : Crowd(host_pool, gpu_count), b(oversubscriber("b", {}, uid_of_b)) {
    EXPECT_TRUE(gets(a, 3 * kGiB));
    live(seconds(1), {&a});
    EXPECT_EQ(charge(b, 3 * kGiB).verdict, wire::kWait);
    live(milliseconds(50), {&a});
  }
  void b_works() {
    is_absent(a);
    a.shim.residency().held_threads = 1;
    ASSERT_TRUE(gets(b, 3 * kGiB));
  }
  void b_leaves_in_its_turn() {
    works_until_told(b);
    EXPECT_TRUE(b.shim.told_to_leave());
    b.shim.residency().held_threads = 1;
    b.shim.leave(3 * kGiB);
    pass(milliseconds(1));
  }
};

// b works on its 3 GiB. a has kept one of its own, and waits for its turn.
struct TurnOfB : TwoOfThree {
  explicit TurnOfB(uid_t uid_of_b = 1000, unsigned gpu_count = 1)
      : TwoOfThree(uid_of_b, 64 * kGiB, gpu_count) {
    b_works();
  }
  void b_has_left_in_its_turn() {
    b_leaves_in_its_turn();
    is_absent(b);
    is_back(a);
  }
  // A GiB of b's has left, the rest is still on its way.
  void b_leaves_in_part() {
    b_leaves_in_its_turn();
    b.shim.leave(2 * kGiB);
    shows(b);
  }
  void b_stays_after_all() {
    b.shim.residency().error = abi::kSwapFailed;
    b.shim.residency().phase = abi::kReturning;
    pass(milliseconds(50));
  }
};

// Beside them an ordinary process, which has no memory yet.
struct BesidePlain : TurnOfB {
  Joined plain = runs({});
};

// a has 3 GiB of 4 and does not work. b has none yet.
struct BesideAnIdleJob : Crowd {
  Joined a = oversubscriber("a");
  Joined b;
  explicit BesideAnIdleJob(std::uint64_t host_pool = 64 * kGiB, const Ask& wanted = {})
      : Crowd(host_pool), b(oversubscriber("b", wanted)) {
    EXPECT_TRUE(gets(a, 3 * kGiB));
    live(seconds(10));
  }
};

}  // namespace switchyard::monitor::test
