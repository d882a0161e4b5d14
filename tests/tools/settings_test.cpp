// What a person may write for a setting: the same parsers serve options, variables and requests.
#include "switchyard/settings.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

TEST(Settings, SizesTakeUnitsInAnyCase) {
  const struct {
    const char* text;
    std::uint64_t bytes;
  } cases[] = {
      {"10g", 10240 * kMiB},   {"10G", 10240 * kMiB},   {"10GiB", 10240 * kMiB},
      {"10gib", 10240 * kMiB}, {"10gb", 10000000000},   {"512m", 512 * kMiB},
      {"1.5g", 1536 * kMiB},   {"2048k", 2 * kMiB},     {"1t", 1048576 * kMiB},
      {"1048576", kMiB},       {"1073741824", 1 << 30}, {"10B", 10},
      {"4KiB", 4096},
  };
  for (const auto& each : cases) EXPECT_EQ(parse_bytes(each.text), each.bytes) << each.text;
}

TEST(Settings, ASmallNumberOfBytesWithoutAUnitIsRefused) {
  for (const char* text : {"10", "0", "1", "40", "1048575", "0.5"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(Settings, ASizeIsOneNumberWithOneUnit) {
  for (const char* text : {"", "g", "10gg", "10 g", "1g500m", "-1g", "1e3m", "10kg", "none"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

TEST(Settings, AQuotaIsASizeOrAPartOfEachGpu) {
  EXPECT_EQ(**parse_quota("2GiB"), (MemoryQuota{2048 * kMiB}));
  EXPECT_EQ(**parse_quota("45%"), (MemoryQuota{0, 0.45}));
  EXPECT_EQ((*parse_quota("12.5%"))->of(80), 10u);
  EXPECT_EQ((*parse_quota("100%"))->of(80), 80u);
  EXPECT_FALSE(*parse_quota("none"));
  for (const char* text : {"0%", "0.9%", "101%", "%", "-5%", "45 %", "0.45", "45%%", "1GiB%"}) {
    EXPECT_FALSE(parse_quota(text)) << text;
  }
  EXPECT_TRUE(same_value<kind::Memory>("50%", "50.0%"));
  EXPECT_FALSE(same_value<kind::Memory>("50%", "none"));
}

TEST(Settings, TimesTakeSeveralUnitsFromTheLargerToTheSmaller) {
  const struct {
    const char* text;
    double seconds;
  } cases[] = {
      {"90", 90},       {"90s", 90},       {"10m", 600},   {"1.5h", 5400},  {"1h30m", 5400},
      {"1H30M", 5400},  {"2m5s", 125},     {"1h5s", 3605}, {"250ms", 0.25}, {"1s250MS", 1.25},
      {"1h1m1s", 3661}, {"23h60m", 86400}, {"0", 0},       {"0s", 0},
  };
  for (const auto& each : cases) {
    ASSERT_TRUE(parse_seconds(each.text)) << each.text;
    const std::chrono::duration<double> span = *parse_seconds(each.text);
    EXPECT_DOUBLE_EQ(span.count(), each.seconds) << each.text;
  }
}

TEST(Settings, ATimeInAnotherOrderOrWithAPartWithoutAUnitIsRefused) {
  for (const char* text : {"", "h", "1h30", "30m1h", "1m1m", "1h 30m", "1x", "1h-5m", "25h",
                           "24h1s", "86401", "1hm", "1..5h"}) {
    EXPECT_FALSE(parse_seconds(text)) << text;
  }
}

TEST(Settings, MemoryIsParkedAtOneOfThreePlaces) {
  EXPECT_EQ(parse_park("host"), Park::kHost);
  EXPECT_EQ(parse_park("peer"), Park::kPeer);
  EXPECT_EQ(parse_park("auto"), Park::kAuto);
  for (const char* wrong : {"", "Host", "gpu", "none", "peer,auto"}) {
    EXPECT_FALSE(parse_park(wrong)) << wrong;
  }
}

TEST(Settings, AShareMayBeLeftToTheMonitor) {
  EXPECT_EQ(parse_share("4"), (Share{4, false}));
  EXPECT_EQ(parse_share("auto"), (Share{1, true}));
  EXPECT_EQ(parse_share("AUTO"), (Share{1, true}));
  for (const char* wrong : {"automatic", "", "auto 2", "0", "1001"}) {
    EXPECT_FALSE(parse_share(wrong)) << wrong;
  }
  EXPECT_FALSE(parse_weight("auto")) << "a cap is a weight";
}

TEST(Settings, StepsAreCountedByANumberOrByYesAndNo) {
  EXPECT_EQ(parse_every("yes"), 1U);
  EXPECT_EQ(parse_every("no"), 0U);
  EXPECT_EQ(parse_every("8"), 8U);
  EXPECT_EQ(parse_every("999999"), 999999U);
  for (const char* wrong : {"", "0", "-1", "1.5", "1000000", "Yes", "8 ", "none"}) {
    EXPECT_FALSE(parse_every(wrong)) << wrong;
  }
}

TEST(Settings, AnIslandIsNamedOrTheDefaultOne) {
  EXPECT_EQ(parse_island("yes"), "default");
  EXPECT_EQ(parse_island("no"), "");
  EXPECT_EQ(parse_island("none"), "");
  EXPECT_EQ(parse_island("trainings.2"), "trainings.2");
  EXPECT_EQ(parse_island(std::string(31, 'a')), std::string(31, 'a'));
  for (const std::string& wrong : {std::string(), std::string("a b"), std::string(32, 'a')}) {
    EXPECT_FALSE(parse_island(wrong)) << wrong;
  }
}

TEST(Settings, AGuardIsAPartOfTheRate) {
  EXPECT_EQ(parse_guard("5%"), 0.05);
  EXPECT_EQ(parse_guard("0.5"), 0.5);
  for (const char* wrong : {"0", "0.9%", "51%", "5", "auto", "-5%"}) {
    EXPECT_FALSE(parse_guard(wrong)) << wrong;
  }
}

TEST(Settings, ASliceIsOf2To100Milliseconds) {
  EXPECT_EQ(parse_slice("2ms"), 2'000u);
  EXPECT_EQ(parse_slice("4.5ms"), 4'500u);
  EXPECT_EQ(parse_slice("0.1s"), 100'000u);
  for (const char* wrong : {"", "1.9ms", "101ms", "4us", "none", "-4ms"}) {
    EXPECT_FALSE(parse_slice(wrong)) << wrong;
  }
}

TEST(Settings, NoneClearsWhatAJobMayBeWithout) {
  for (const char* none : {"none", "None", "NONE"}) {
    ASSERT_TRUE(parse_quota(none));
    EXPECT_FALSE(*parse_quota(none));
    EXPECT_EQ(parse_limit(none), 0.0);
    EXPECT_EQ(parse_deadline(none), std::chrono::seconds(0));
    EXPECT_EQ(parse_pause(none), std::chrono::seconds(0));
    EXPECT_EQ(parse_minimum(none), 0.0);
    EXPECT_EQ(parse_guard(none), 0.0);
  }
  EXPECT_FALSE(parse_pause("0")) << "a pause of no time is a slip";
  EXPECT_EQ(parse_idle_release("10m"), (IdleRelease{std::chrono::minutes(10), false}));
  EXPECT_EQ(parse_idle_release("1h,contexts"), (IdleRelease{std::chrono::hours(1), true}));
  EXPECT_EQ(parse_idle_release("none"), IdleRelease());
  for (const char* wrong :
       {"none,contexts", ",contexts", "1h,", "1h,all", "contexts", "0,contexts"}) {
    EXPECT_FALSE(parse_idle_release(wrong)) << wrong;
  }
  EXPECT_FALSE(parse_share("none")) << "every job has a weight";
  EXPECT_FALSE(parse_quota("nothing"));
}

}  // namespace
}  // namespace switchyard
