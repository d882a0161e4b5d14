// A rank that others wait for, as `ps` and `stats` print it.
#include "tools/base/stalls.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace switchyard::tools {
namespace {

using nlohmann::json;

json stall(const json& more) {
  json out = {{"rank", 1},       {"pid", 4711},          {"operation", 43},
              {"bytes", 4},      {"kind", "all_reduce"}, {"waiting_ranks", 1},
              {"seconds", 5},    {"does", "sleeping"},   {"held_by", nullptr},
              {"reason", "late"}};
  out.update(more);
  return out;
}
json held(const char* by) { return stall({{"held_by", by}, {"held_seconds", 40}}); }
bool says(const json& stall, const char* text) {
  return stall_text(stall).find(text) != std::string::npos;
}

TEST(Stalls, OneThatIsLateIsNamedWithWhatItLacksAndSinceWhen) {
  EXPECT_EQ(
      stall_text(stall(json::object())),
      "rank 1 (pid 4711) has not launched all_reduce number 43 (4 B), which 1 rank waits for, "
      "for 5 s: its CPU waits");
  EXPECT_TRUE(says(stall({{"waiting_ranks", 3}}), "which 3 ranks wait for"));
  EXPECT_TRUE(says(stall({{"kind", nullptr}}), "has not launched operation number 43, which"));
}

TEST(Stalls, EachThingThatItMayDoHasItsWords) {
  EXPECT_TRUE(says(stall({{"does", "gone"}}), ": its process has ended"));
  EXPECT_TRUE(says(stall({{"does", "stopped"}}), ": it is stopped by a signal"));
  EXPECT_TRUE(says(stall({{"does", "launching"}}), ": it is in a call of NCCL"));
  EXPECT_TRUE(says(stall({{"does", "waiting_for_gpu"}}), ": its CPU waits for its GPU"));
  EXPECT_TRUE(says(stall({{"does", "running"}}), ": its CPU is at work"));
  EXPECT_TRUE(says(stall({{"does", "waiting_for_disk"}}), ": it waits for a disk"));
  EXPECT_TRUE(says(stall({{"does", "unknown"}}), ": nobody knows what it does"));
}

TEST(Stalls, AHoldOfOursIsToldAsOneWithWhatTheOthersWaitFor) {
  EXPECT_EQ(stall_text(held("pause")),
            "rank 1 (pid 4711): paused by its owner, 40 s; 1 rank waits for its all_reduce number "
            "43 (4 B)");
  EXPECT_TRUE(says(held("swap"), ": its memory is in the host, or on its way, 40 s"));
  EXPECT_TRUE(says(held("memory"), ": it waits for memory of the GPU, 40 s"));
  EXPECT_TRUE(says(held("cut"), ": it is being paused or swapped out, 40 s"));
  EXPECT_TRUE(says(held("limit"), ": it has used up its --limit, 40 s"));
  EXPECT_TRUE(says(held("guard"), ": it is held back by another job's --guard, 40 s"));
  EXPECT_TRUE(says(held("turn"), ": another job has the GPU, 40 s"));
}

TEST(Stalls, AnotherOperationAndOneThatStandsStillAreToldApart) {
  EXPECT_TRUE(says(stall({{"reason", "other_operation"}}),
                   "launched another operation where 1 rank launched all_reduce number 43 (4 B), "
                   "5 s ago: its CPU waits"));
  EXPECT_TRUE(says(stall({{"reason", "stopped"}, {"does", "stopped"}}),
                   "has launched all_reduce number 43 (4 B) as 1 rank did, and stands still, for 5 "
                   "s: it is stopped by a signal"));
}

}  // namespace
}  // namespace switchyard::tools
