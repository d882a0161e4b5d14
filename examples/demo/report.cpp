#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace demo {
namespace {

constexpr double kColumns[] = {0.50, 0.90, 0.99};

// Later than this, compared with its own median, is a request that the CPUs delayed.
constexpr double kUndisturbed = 1.5;

double latency(const std::vector<Cell>& rounds, double fraction) {
  std::vector<double> values;
  for (const Cell& cell : rounds) values.push_back(percentile(cell.request_us, fraction));
  return median(values);
}

double loop_rate(const std::vector<Cell>& rounds) {
  std::vector<double> values;
  for (const Cell& cell : rounds) values.push_back(cell.loop_per_second);
  return median(values);
}

int percent(double fraction) { return static_cast<int>(std::lround(fraction * 100)); }

// A bar of `length` cells, drawn to an eighth where the terminal can.
std::string bar(double length, bool unicode) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  const int eighths = std::max(1, static_cast<int>(std::lround(length * 8)));
  if (!unicode) return std::string(static_cast<std::size_t>((eighths + 7) / 8), '#');
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

template <typename... Values>
std::string line(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

}  // namespace

double percentile(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(fraction * static_cast<double>(values.size()));
  const auto index = static_cast<std::size_t>(std::max(1.0, rank)) - 1;
  return values[std::min(index, values.size() - 1)];
}

double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

double telling_percentile(const Cell& requests_alone) {
  const double middle = percentile(requests_alone.request_us, 0.50);
  for (const double fraction : {0.99, 0.90}) {
    if (percentile(requests_alone.request_us, fraction) <= kUndisturbed * middle) return fraction;
  }
  return 0.50;
}

Verdict judge(const Results& results) {
  Verdict verdict;
  verdict.fraction = telling_percentile(results.requests_alone);
  const double default_tail = latency(results.by_default, verdict.fraction);
  const double default_loop = loop_rate(results.by_default);
  if (default_tail <= 0 || default_loop <= 0) return verdict;
  verdict.tail_ratio = latency(results.switchyard, verdict.fraction) / default_tail;
  verdict.loop_ratio = loop_rate(results.switchyard) / default_loop;
  verdict.better = verdict.tail_ratio > 0 && verdict.tail_ratio <= kMostTailRatio &&
                   verdict.loop_ratio >= kLeastLoopRatio;
  return verdict;
}

std::string table(const Results& results, bool unicode) {
  struct Row {
    const char* name;
    std::vector<Cell> rounds;
  };
  const Row rows[] = {{"requests alone", {results.requests_alone}},
                      {"loop alone", {results.loop_alone}},
                      {"both, driver's default", results.by_default},
                      {"both, Switchyard", results.switchyard}};
  const double judged = telling_percentile(results.requests_alone);
  double longest = 0;
  for (const Row& row : rows) longest = std::max(longest, latency(row.rounds, judged));

  std::string text = line("%-24s", "");
  for (const double fraction : kColumns) text += line("%9s%2d", "p", percent(fraction));
  text += line("%9s\n", "loop");
  for (const Row& row : rows) {
    text += line("%-24s", row.name);
    for (const double fraction : kColumns) {
      const double us = latency(row.rounds, fraction);
      text += us > 0 ? line("%8.2f ms", us / 1e3) : line("%11s", "-");
    }
    const double rate = loop_rate(row.rounds);
    const double solo = results.loop_alone.loop_per_second;
    text += rate > 0 && solo > 0 ? line("%7.1f %%", rate / solo * 100) : line("%9s", "-");
    if (const double tail = latency(row.rounds, judged); tail > 0) {
      text += line("  p%d ", percent(judged)) + bar(tail / longest * 24, unicode);
    }
    text += '\n';
  }
  return text;
}

}  // namespace demo
