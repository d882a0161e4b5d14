// A job whose memory may be parked on another GPU, and what its library says.
//
// Threading: none.
#pragma once

#include <gtest/gtest.h>

#include <utility>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {

// a has 2 GiB on the first of two GPUs of 4 GiB, and sees both.
struct Parkable : Rig {
  Joined a;

  explicit Parkable(const char* where = "peer", unsigned sees = 2, Ask ask = {})
      : Rig(2, 4 * kGiB, with_host_pool(64 * kGiB)), a(joins(where, sees, std::move(ask))) {
    EXPECT_TRUE(allocate(a, 2 * kGiB));
    a.shim.swappable(2 * kGiB);
    a.lane().used_bytes = 2 * kGiB;
    pass(seconds(1));
  }

  Joined joins(const char* where, unsigned sees, Ask ask) {
    ask.name = "a";
    ask.swappable = "yes";
    ask.park = where;
    return runs(ask, sees);
  }
  // Another job that sees the second GPU alone.
  Joined on_second(const Ask& ask) {
    wire::Hello hello = hello_of(ask);
    const Uuid uuid = uuid_of(1);
    std::copy(uuid.begin(), uuid.end(), hello.uuid[0]);
    return join_as({next_pid++, 1000}, hello);
  }
  abi::Residency& words() const { return a.shim.residency(0); }
  void says_parked(std::uint64_t bytes) {
    a.lane(0).parked_lane = bytes != 0 ? 2 : 0;
    a.lane(0).parked_bytes = bytes;
    gpus.uses[1][a.client->peer.pid] = bytes;
  }
  // It is ordered out, parks so much, and the rest is in the host.
  void parks(std::uint64_t bytes) {
    tell("swap-out", "a");
    says_parked(bytes);
    a.shim.be_absent();
    listed(a) = 0;
    pass(milliseconds(50));
  }
  json gpu(unsigned at) { return job()["gpus"][at]; }
  json status_of(unsigned at) { return ask({{"op", "status"}})["gpus"][at]; }
};

// Kept free for contexts.
inline constexpr std::uint64_t kSpare = 4 * kGiB / kKeptForOverhead;

}  // namespace switchyard::monitor::test
