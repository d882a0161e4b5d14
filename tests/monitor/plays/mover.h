// The memory of a made-up process on one GPU: what its library answers to the words of its page.
//
// Threading: one thread, the test's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/monitor/fake_shim.h"

namespace switchyard::monitor::test {

class MadeUpMover {
 public:
  MadeUpMover(const FakeShim& shim, unsigned lane) : shim_(shim), lane_(lane) {}

  // `fails`: what it tries in this step.
  void step(bool fails) {
    abi::Residency& mine = words();
    const bool limited = mine.limited != abi::kUnlimited;
    const std::uint32_t phase = mine.phase;
    const std::uint64_t limit = mine.limit_bytes;
    if (mine.total_bytes == 0 && phase == abi::kResident) {
      pin(mine);
    } else if (limited && phase == abi::kResident) {
      shim_.say(abi::kLeaving, abi::kSwapFine, lane_);
    } else if (limited && phase == abi::kLeaving) {
      if (fails) return shim_.say(abi::kResident, abi::kSwapBusy, lane_);
      leaves(limit);
      shim_.say(abi::kAbsent, abi::kSwapFine, lane_);
    } else if (limited && phase == abi::kAbsent) {
      if (limit > mine.resident_bytes) comes(limit);
      if (fails) return shim_.say(abi::kAbsent, abi::kSwapNoHostRoom, lane_);
      leaves(limit);
      const bool detaches = mine.limited == abi::kContextsToo;
      if (detaches && fails) return shim_.say(abi::kAbsent, abi::kSwapContextsStay, lane_);
      shim_.say(detaches ? abi::kDetached : abi::kAbsent, abi::kSwapFine, lane_);
    } else if (phase == abi::kDetached && mine.limited != abi::kContextsToo) {
      attach(fails);
    } else if (!limited && phase == abi::kAbsent) {
      shim_.say(abi::kReturning, fails ? abi::kSwapNoDeviceRoom : abi::kSwapFine, lane_);
    } else if (!limited && phase == abi::kReturning) {
      if (fails) return shim_.say(abi::kReturning, abi::kSwapFailed, lane_);
      comes(mine.total_bytes);
      shim_.say(abi::kResident, abi::kSwapFine, lane_);
    }
    pin(mine);
  }

 private:
  abi::Residency& words() const { return shim_.residency(lane_); }

  // The contexts come, where they shall be or where they were.
  void attach(bool fails) {
    const std::uint32_t to = shim_.lane(lane_).shall_be_on;
    if (to != 0 && fails) return shim_.say(abi::kAbsent, abi::kSwapNotMoved, lane_);
    if (to != 0) {
      shim_.be_on(to - 1, lane_);
      shim_.lane(lane_).places += 1;
    }
    shim_.say(abi::kAbsent, abi::kSwapFine, lane_);
  }
  static void pin(abi::Residency& mine) {
    mine.host_bytes = std::min<std::uint64_t>(mine.total_bytes, mine.host_limit_bytes);
  }
  void leaves(std::uint64_t limit) const {
    abi::Residency& mine = words();
    abi::Lane& place = shim_.lane(lane_);
    if (mine.resident_bytes <= limit) return;
    const std::uint64_t bytes = mine.resident_bytes - limit;
    if (mine.park_lane != 0) {
      const std::uint64_t most = mine.park_bytes;
      const std::uint64_t there = place.parked_bytes;
      place.parked_lane = mine.park_lane.load();
      place.parked_bytes = there + std::min(bytes, most - std::min(most, there));
    }
    mine.resident_bytes -= bytes;
    mine.moved_bytes += bytes;
    shim_.memory(lane_).moved_out_bytes += bytes;
    shim_.memory(lane_).times_out += 1;
  }
  void comes(std::uint64_t limit) const {
    abi::Residency& mine = words();
    const std::uint64_t to = std::min<std::uint64_t>(limit, mine.total_bytes);
    if (to <= mine.resident_bytes) return;
    shim_.memory(lane_).moved_in_bytes += to - mine.resident_bytes;
    mine.moved_bytes += to - mine.resident_bytes;
    mine.moves += 1;
    mine.resident_bytes = to;
    shim_.lane(lane_).parked_bytes = 0;
    shim_.lane(lane_).parked_lane = 0;
  }

  const FakeShim& shim_;
  unsigned lane_;
};

}  // namespace switchyard::monitor::test
