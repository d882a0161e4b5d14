// Where a job's memory is on one GPU, by what all of its processes say.
#include <gtest/gtest.h>

#include "tests/monitor/residency/swaps_scene.h"

namespace switchyard::monitor::test {
namespace {

// Two processes of one job, told to swap out.
struct TwoLeave : Swaps {
  Joined first = runs({.job = "j", .name = "x", .swappable = "yes"});
  Joined second = runs({.job = "j"});

  TwoLeave() {
    for (const Joined* each : {&first, &second}) EXPECT_TRUE(allocate(*each, kGiB));
    pass(milliseconds(10));
    tell("swap-out");
  }
  static void says(const Joined& who, std::uint32_t phase, std::uint64_t total,
                   std::uint64_t resident) {
    who.client->lanes.at(0).residency = {
        .phase = phase, .total_bytes = total, .resident_bytes = resident};
  }
  ResidencyState on_gpu(std::size_t gpu) {
    const Registry& registry = monitor.registry();
    return residency_on(registry, registry.jobs().begin()->second, gpu);
  }
};

TEST(ResidencyOnAGpu, WhatAnyProcessHasThereDecides) {
  TwoLeave rig;
  for (const auto& [one, other] :
       {std::pair(&rig.first, &rig.second), std::pair(&rig.second, &rig.first)}) {
    rig.says(*other, abi::kResident, 0, 0);
    rig.says(*one, abi::kLeaving, kGiB, kGiB);
    EXPECT_EQ(rig.on_gpu(0), ResidencyState::kMoving) << "it is to leave";
    rig.says(*one, abi::kLeaving, kGiB, kGiB / 2);
    EXPECT_EQ(rig.on_gpu(0), ResidencyState::kMoving);
    rig.says(*one, abi::kAbsent, kGiB, 0);
    EXPECT_EQ(rig.on_gpu(0), ResidencyState::kSwapped);
    rig.says(*other, abi::kLeaving, kGiB, 0);
    EXPECT_EQ(rig.on_gpu(0), ResidencyState::kMoving) << "one has not said that it is out";
    rig.says(*one, abi::kResident, 0, 0);
    rig.says(*other, abi::kResident, 0, 0);
    EXPECT_EQ(rig.on_gpu(0), ResidencyState::kResident) << "there is none";
    EXPECT_EQ(rig.on_gpu(1), ResidencyState::kResident);
  }
}

}  // namespace
}  // namespace switchyard::monitor::test
