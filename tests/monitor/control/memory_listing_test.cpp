// What `ps` tells of memory adds up to what the account knows, whatever clients say.
#include "monitor/control/memory_listing.h"

#include <gtest/gtest.h>

#include "tests/monitor/rig.h"

namespace switchyard::monitor::test {
namespace {

MemoryReport swappable() {
  MemoryReport said;
  said.swappable = true;
  return said;
}

json listed(const MemoryListing& listing) {
  json gpu = json::object();
  listing.list(gpu);
  return gpu;
}

std::uint64_t& at(MemoryReport& said, Stays why) { return said.stays[static_cast<unsigned>(why)]; }

TEST(MemoryListing, AddsUpToWhatIsUsed) {
  MemoryReport said = swappable();
  at(said, Stays::kSmall) = 1 * kMiB;
  at(said, Stays::kIpcExported) = 4 * kMiB;
  MemoryListing listing;
  listing.add(said, 50 * kMiB, 40 * kMiB, kGiB);
  listing.add(said, 15 * kMiB, 10 * kMiB, kGiB);
  const json gpu = listed(listing);
  EXPECT_EQ(gpu["memory_swappable_bytes"], 50 * kMiB);
  EXPECT_EQ(
      gpu["memory_stays_bytes"],
      (json{{"small_allocations", 2 * kMiB}, {"ipc_exported", 8 * kMiB}, {"other", 5 * kMiB}}));
}

TEST(MemoryListing, OfAClientThatIsNotSwappableAllStaysForThatReason) {
  MemoryReport said;
  at(said, Stays::kSmall) = kMiB;
  MemoryListing listing;
  listing.add(said, 50 * kMiB, 40 * kMiB, kGiB);
  EXPECT_EQ(listed(listing)["memory_swappable_bytes"], 0);
  EXPECT_EQ(listed(listing)["memory_stays_bytes"], (json{{"not_swappable", 50 * kMiB}}));
}

TEST(MemoryListing, WhatIsImportedIsBesideWhatIsUsed) {
  MemoryReport said = swappable();
  at(said, Stays::kIpcImported) = 100 * kMiB;
  MemoryListing listing;
  listing.add(said, 50 * kMiB, 50 * kMiB, kGiB);
  EXPECT_EQ(listed(listing)["memory_stays_bytes"], (json{{"ipc_imported", 100 * kMiB}}));
}

TEST(MemoryListing, WhatMakesNoSenseIsTakenAsFarAsTheAccountGoes) {
  MemoryReport said = swappable();
  said.stays.fill(~0ull);
  MemoryListing listing;
  listing.add(said, 50 * kMiB, 20 * kMiB, kGiB);
  const json stays = listed(listing)["memory_stays_bytes"];
  EXPECT_EQ(stays, (json{{"small_allocations", 30 * kMiB}, {"ipc_imported", kGiB}}));
  MemoryListing another;
  another.add(said, 50 * kMiB, ~0ull, kGiB);
  EXPECT_EQ(listed(another)["memory_swappable_bytes"], 50 * kMiB);
}

TEST(MemoryListing, MovesAreAddedUp) {
  MemoryReport said = swappable();
  said.moved_out_bytes = 3;
  said.moved_in_bytes = 2;
  said.spared_bytes = 7;
  said.taken_bytes = 5;
  said.times_out = 1;
  MemoryListing listing;
  listing.add(said, 0, 0, 0);
  listing.add(said, 0, 0, 0);
  const json gpu = listed(listing);
  EXPECT_EQ(gpu["swap_moved_out_bytes"], 6);
  EXPECT_EQ(gpu["swap_moved_in_bytes"], 4);
  EXPECT_EQ(gpu["swap_spared_bytes"], 14);
  EXPECT_EQ(gpu["swap_taken_over_bytes"], 10);
  EXPECT_EQ(gpu["swap_times_out"], 2);
}

TEST(MemoryListing, EachReasonHasAKeyOfItsOwn) {
  std::set<std::string> keys = {kStaysOther.key, kStaysNotSwappable.key};
  for (const StaysText& each : kStaysTexts) {
    EXPECT_TRUE(keys.insert(each.key).second) << each.key;
    EXPECT_STRNE(each.text, "");
  }
}

TEST(MemoryListing, IsInPsForEachGpuOfAJob) {
  Rig rig;
  const Joined a = rig.runs({.name = "x", .swappable = "yes"});
  a.lane().attention |= abi::kSwappable;
  ASSERT_TRUE(rig.allocate(a, 100 * kMiB));
  a.shim.swappable(90 * kMiB);
  a.shim.memory().stays_bytes[static_cast<unsigned>(Stays::kGraphs)] = 6 * kMiB;
  a.shim.memory().moved_out_bytes = 11;
  rig.pass(std::chrono::seconds(1));
  const json gpu = rig.job()["gpus"][0];
  EXPECT_EQ(gpu["memory_swappable_bytes"], 90 * kMiB);
  EXPECT_EQ(gpu["memory_stays_bytes"], (json{{"graph_memory", 6 * kMiB}, {"other", 4 * kMiB}}));
  EXPECT_EQ(gpu["swap_moved_out_bytes"], 11);
  const std::uint64_t used = gpu["memory_used_bytes"];
  EXPECT_EQ(used, gpu["memory_overhead_bytes"].get<std::uint64_t>() + 100 * kMiB);
}

}  // namespace
}  // namespace switchyard::monitor::test
