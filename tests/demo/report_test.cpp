// What the demo makes of its figures.
#include "examples/demo/report.h"

#include <gtest/gtest.h>

namespace demo {
namespace {

Cell cell(double fast_us, double slow_us, double loop) {
  // 97 fast requests and 3 slow ones: p50 is fast, p99 is slow.
  Cell made;
  made.request_us.assign(97, fast_us);
  made.request_us.insert(made.request_us.end(), 3, slow_us);
  made.loop_per_second = loop;
  return made;
}

Results results(const Cell& by_default, const Cell& switchyard) {
  return {cell(1000, 1100, 0), {{}, 10000}, {by_default, by_default}, {switchyard, switchyard}};
}

TEST(DemoReport, PercentileIsTheSmallestValueThatCoversTheFraction) {
  EXPECT_EQ(percentile({5, 1, 4, 2, 3}, 0.5), 3);
  EXPECT_EQ(percentile({1, 2}, 0.99), 2);
  EXPECT_EQ(percentile({7}, 0.01), 7);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

TEST(DemoReport, ShorterTailAndSameThroughputIsBetter) {
  const Verdict verdict = judge(results(cell(2000, 3000, 9400), cell(1100, 1300, 9450)), kTail);
  EXPECT_TRUE(verdict.better);
  EXPECT_NEAR(verdict.latency_ratio, 0.433, 0.001);
  EXPECT_NEAR(verdict.loop_ratio, 1.005, 0.001);
}

TEST(DemoReport, SameTailIsNotBetter) {
  EXPECT_FALSE(judge(results(cell(2000, 3000, 9400), cell(2000, 2900, 9400)), kTail).better);
}

TEST(DemoReport, ShorterTailPaidForByTheLoopIsNotBetter) {
  EXPECT_FALSE(judge(results(cell(2000, 3000, 9400), cell(1100, 1300, 8000)), kTail).better);
}

TEST(DemoReport, NothingMeasuredIsNotBetter) {
  EXPECT_FALSE(judge({}, kTail).better);
  EXPECT_FALSE(judge(results(cell(2000, 3000, 9400), {}), kTail).better);
}

TEST(DemoReport, OneDisturbedRoundDecidesNothing) {
  Results disturbed = results(cell(2000, 3000, 9400), cell(1100, 1300, 9450));
  disturbed.by_default.push_back(cell(2000, 3000, 9400));
  disturbed.switchyard.push_back(cell(9000, 90000, 100));
  EXPECT_TRUE(judge(disturbed, kTail).better);
}

TEST(DemoReport, TheMiddleIsJudgedWhateverTheTail) {
  const Results busy = results(cell(2000, 9000, 9400), cell(1100, 9900, 9450));
  EXPECT_FALSE(judge(busy, kTail).better);
  const Verdict verdict = judge(busy, kMiddle);
  EXPECT_TRUE(verdict.better);
  EXPECT_NEAR(verdict.latency_ratio, 0.55, 0.001);
}

TEST(DemoReport, TableNamesEveryCellAndDrawsTheLongestBarForTheWorst) {
  const std::string text =
      table(results(cell(2000, 3000, 9400), cell(1100, 1300, 9450)), kTail, false);
  EXPECT_NE(text.find("requests alone"), std::string::npos);
  EXPECT_NE(text.find("both, Switchyard"), std::string::npos);
  EXPECT_NE(text.find("2.00 ms    2.00 ms    3.00 ms   94.0 %  p99 ########################\n"),
            std::string::npos)
      << text;
}

TEST(DemoReport, ACellIsARowOfItsOwnUnderTheHeading) {
  EXPECT_EQ(row("requests alone", cell(1800, 2500, 0), 0),
            "requests alone              1.80 ms    1.80 ms    2.50 ms        -\n");
  EXPECT_EQ(row("1 of 4: default", cell(2000, 3000, 9400), 10000),
            "1 of 4: default             2.00 ms    2.00 ms    3.00 ms   94.0 %\n");
  EXPECT_EQ(heading().size(), row("loop alone", {{}, 10000}, 10000).size());
}

TEST(DemoReport, WhatWasRecordedIsToldWithItsMachineAndDates) {
  const std::string text = recorded();
  EXPECT_EQ(text.rfind("Recorded: ", 0), 0U);
  for (const char* part :
       {"H200", "docs/measurements/earlier.md", "alone", "Switchyard", " x alone, 20"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
}

}  // namespace
}  // namespace demo
