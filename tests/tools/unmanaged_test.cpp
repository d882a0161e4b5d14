// How `ps` shows GPU processes that no job has.
#include "tools/ps/unmanaged.h"

#include <gtest/gtest.h>

namespace switchyard::tools {
namespace {

using nlohmann::json;

json process(int pid, int gpu, std::uint64_t bytes) {
  return {{"pid", pid},
          {"name", "python"},
          {"user", "ann"},
          {"container", std::string(64, 'c')},
          {"command", "python train.py"},
          {"gpu_uuid", "GPU-0123456789abcdef"},
          {"gpu_index", gpu},
          {"memory_used_bytes", bytes},
          {"share_got_ratio", 0.25},
          {"since_seconds", 65.0},
          {"hint", nullptr}};
}

TEST(UnmanagedView, ARowHasAllThatIsKnown) {
  const std::string table = unmanaged_table(json::array({process(77, 3, 1ull << 30)}));
  for (const char* part : {"77", "ann", "python", "~25%", "1 GiB", "1 min", "python train.py"}) {
    EXPECT_NE(table.find(part), std::string::npos) << part << "\n" << table;
  }
  EXPECT_NE(table.find(" " + std::string(12, 'c') + " "), std::string::npos) << table;
}

TEST(UnmanagedView, WhatIsNotKnownIsADash) {
  json one = process(77, 0, 1);
  for (const char* key : {"user", "container", "command", "share_got_ratio", "since_seconds"}) {
    one[key] = nullptr;
  }
  const std::string table = unmanaged_table(json::array({one}));
  EXPECT_EQ(table.find('~'), std::string::npos) << table;
  EXPECT_EQ(table.find("null"), std::string::npos) << table;
}

// A monitor of an older version.
TEST(UnmanagedView, WithoutAnIndexTheGpuIsNamedByItsUuid) {
  json one = process(77, 0, 1);
  one.erase("gpu_index");
  EXPECT_NE(unmanaged_table(json::array({one})).find("GPU-01234567"), std::string::npos);
}

TEST(UnmanagedView, OneLineCountsProcessesOnceAndTheirMemoryOnAllGpus) {
  EXPECT_EQ(unmanaged_line(json::array()), "");
  EXPECT_EQ(unmanaged_line(json::array({process(77, 0, 1ull << 30)})),
            "1 unmanaged GPU process holds 1 GiB: switchyard ps -a");
  EXPECT_EQ(unmanaged_line(json::array({process(77, 0, 1ull << 30), process(77, 1, 1ull << 30),
                                        process(78, 1, 1ull << 30)})),
            "2 unmanaged GPU processes hold 3 GiB: switchyard ps -a");
}

TEST(UnmanagedView, AHintIsALineOncePerProcess) {
  json one = process(77, 0, 1), other = process(77, 1, 1);
  one["hint"] = other["hint"] = "belongs to job 'x'";
  EXPECT_EQ(unmanaged_hints(json::array({one, other, process(78, 0, 1)})),
            "pid 77: belongs to job 'x'\n");
}

}  // namespace
}  // namespace switchyard::tools
