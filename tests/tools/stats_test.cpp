// Rates of collectives between two listings.
#include <gtest/gtest.h>

#include "tools/stats/rates.h"

namespace switchyard::tools {
namespace {

using nlohmann::json;

json rank(int number, long launched, long bytes) {
  return {{"rank", number}, {"pid", 100 + number}, {"launched", launched},
          {"bytes", bytes}, {"point_to_point", 0}, {"last_seconds", 0.5}};
}
json process(int number, const json& kinds) {
  return {{"pid", 100 + number}, {"collectives", kinds}};
}
json listing(const json& ranks, const json& processes) {
  return {{"jobs",
           {{{"job", "j1"},
             {"name", "train"},
             {"processes", processes},
             {"communicators", {{{"id", "aa"}, {"size", 2}, {"ranks", ranks}}}}}}}};
}

TEST(Stats, ARateIsThatOfTheBusiestRankAndProcess) {
  const json before = listing({rank(0, 10, 1000), rank(1, 10, 1000)},
                              {process(0, {{"all_reduce", 10}}), process(1, {{"all_reduce", 10}})});
  const json after = listing(
      {rank(0, 30, 5000), rank(1, 20, 3000)},
      {process(0, {{"all_reduce", 26}, {"broadcast", 4}}), process(1, {{"all_reduce", 20}})});
  const json job = rates(before, after, 2)["jobs"][0];
  EXPECT_EQ(job["collectives_per_second"], 10.0);
  EXPECT_EQ(job["bytes_per_second"], 2000.0);
  EXPECT_EQ(job["kinds_per_second"], (json{{"all_reduce", 8.0}, {"broadcast", 2.0}}));
  const json communicator = job["communicators"][0];
  EXPECT_EQ(communicator["collectives_per_second"], 10.0);
  EXPECT_EQ(communicator["bytes_per_second"], 2000.0);
  EXPECT_EQ(communicator["behind"],
            (json{{{"rank", 1}, {"pid", 101}, {"operations", 10}, {"last_seconds", 0.5}}}));
}

TEST(Stats, EqualRanksAreNotBehind) {
  const json same = listing({rank(0, 10, 0), rank(1, 10, 0)}, json::array());
  const json job = rates(same, same, 1)["jobs"][0];
  EXPECT_EQ(job["communicators"][0]["behind"], json::array());
  EXPECT_EQ(job["collectives_per_second"], 0.0);
}

TEST(Stats, AProcessThatCameOrWasReplacedHasNoRateYet) {
  const json before = listing({rank(0, 100, 100)}, {process(0, {{"all_reduce", 100}})});
  const json after = listing({rank(0, 5, 5), rank(1, 5, 5)},
                             {process(0, {{"all_reduce", 5}}), process(1, {{"all_reduce", 5}})});
  const json job = rates(before, after, 1)["jobs"][0];
  EXPECT_EQ(job["collectives_per_second"], 0.0);
  EXPECT_EQ(job["communicators"][0]["collectives_per_second"], 0.0);
  EXPECT_EQ(job["kinds_per_second"], json::object());
}

TEST(Stats, AJobThatCameMeanwhileIsLeftOut) {
  const json after = listing(json::array(), json::array());
  EXPECT_EQ(rates({{"jobs", json::array()}}, after, 1)["jobs"], json::array());
}

}  // namespace
}  // namespace switchyard::tools
