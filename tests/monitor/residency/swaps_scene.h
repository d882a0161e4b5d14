// Jobs whose memory leaves the device and comes back, over the whole monitor. The fake shim plays
// the client: one that obeys, that fails, that lies.
//
// Threading: one thread, the test's.
#pragma once

#include <gtest/gtest.h>

#include "monitor/control/commands.h"
#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

// A rig whose GPU has 4 GiB and whose jobs are moved by hand.
struct Swaps : Rig {
  explicit Swaps(unsigned count = 1, std::uint64_t bytes = 4 * kGiB)
      : Rig(count, bytes, with_host_pool(2 * bytes)) {}

  // A swappable job that works on `bytes`, all of them swappable.
  Joined with(Ask wanted, std::uint64_t bytes) {
    wanted.swappable = "yes";
    Joined joined = runs(wanted);
    EXPECT_TRUE(allocate(joined, bytes));
    joined.shim.swappable(bytes);
    pass(seconds(1));
    return joined;
  }
  // The same, told to swap out, and out.
  Joined leaving(const Ask& wanted, std::uint64_t bytes) {
    Joined joined = with(wanted, bytes);
    tell("swap-out");
    return joined;
  }
  Joined swapped_out(const Ask& wanted, std::uint64_t bytes) {
    Joined joined = leaving(wanted, bytes);
    is_absent(joined);
    return joined;
  }
  // One whose memory never leaves.
  Joined other_with(std::uint64_t bytes) {
    Joined joined = runs({.name = "y"});
    EXPECT_TRUE(allocate(joined, bytes));
    return joined;
  }
  using Rig::release;
  json release(const char* name = "x") {
    return ask({{"op", "pause"}, {"target", name}, {"release", true}});
  }
  // The answer that waits; null: it does still.
  json awaited(Awaits awaits, const Joined& who, bool last = false) {
    const auto text = answer_awaited(monitor, awaits, who.client->job, now, last);
    return text ? json::parse(*text) : json();
  }
  // Its mover has taken `bytes` off the device, or brought them back.
  void on_device(const Joined& who, std::uint64_t bytes) { listed(who) = bytes; }
  void leaves(const Joined& who, std::uint64_t rest) {
    who.shim.leave(rest);
    on_device(who, rest);
  }
  void is_absent(const Joined& who) {
    who.shim.be_absent();
    on_device(who, 0);
    pass(milliseconds(250));
  }
  void is_back(const Joined& who) {
    who.shim.be_resident();
    on_device(who, who.shim.residency().total_bytes);
    pass(milliseconds(250));
  }
  std::uint64_t free() {
    pass(seconds(1));
    pass(seconds(1));  // a fall of the overhead counts when two readings agree
    return account().free();
  }
};

}  // namespace switchyard::monitor::test
