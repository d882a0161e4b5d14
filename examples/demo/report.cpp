#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "recorded.h"

namespace demo {
namespace {

constexpr double kColumns[] = {0.50, 0.90, 0.99};

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

// The medians of `rounds`; without the end of the line.
std::string row_of(const std::string& name, const std::vector<Cell>& rounds, double solo) {
  std::string text = line("%-24s", name.c_str());
  for (const double column : kColumns) {
    const double us = latency(rounds, column);
    text += us > 0 ? line("%8.2f ms", us / 1e3) : line("%11s", "-");
  }
  const double rate = loop_rate(rounds);
  return text + (rate > 0 && solo > 0 ? line("%7.1f %%", rate / solo * 100) : line("%9s", "-"));
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

Verdict judge(const Results& results, double fraction) {
  Verdict verdict;
  const double default_latency = latency(results.by_default, fraction);
  const double default_loop = loop_rate(results.by_default);
  if (default_latency <= 0 || default_loop <= 0) return verdict;
  verdict.latency_ratio = latency(results.switchyard, fraction) / default_latency;
  verdict.loop_ratio = loop_rate(results.switchyard) / default_loop;
  verdict.better = verdict.latency_ratio > 0 && verdict.latency_ratio <= kMostLatencyRatio &&
                   verdict.loop_ratio >= kLeastLoopRatio;
  return verdict;
}

std::string heading() {
  std::string text = line("%-24s", "");
  for (const double column : kColumns) text += line("%9s%2d", "p", percent(column));
  return text + line("%9s\n", "loop");
}

std::string row(const std::string& name, const Cell& cell, double solo) {
  return row_of(name, {cell}, solo) + '\n';
}

std::string table(const Results& results, double fraction, bool unicode) {
  struct Row {
    const char* name;
    std::vector<Cell> rounds;
  };
  const Row rows[] = {{"requests alone", {results.requests_alone}},
                      {"loop alone", {results.loop_alone}},
                      {"both, driver's default", results.by_default},
                      {"both, Switchyard", results.switchyard}};
  double longest = 0;
  for (const Row& each : rows) longest = std::max(longest, latency(each.rounds, fraction));

  std::string text = heading();
  for (const Row& each : rows) {
    text += row_of(each.name, each.rounds, results.loop_alone.loop_per_second);
    if (const double judged = latency(each.rounds, fraction); judged > 0) {
      text += line("  p%d ", percent(fraction)) + bar(judged / longest * 24, unicode);
    }
    text += '\n';
  }
  return text;
}

std::string recorded() {
  std::string text = line("Recorded: %s (%s)\n", kRecordedMachine, kRecordedSource);
  for (const Recorded& each : kRecorded) {
    text += line("%-24s%30.2f ms%9s  p99, %.2f x alone, %s\n", each.name, each.p99_ms, "",
                 each.p99_ms / each.alone_p99_ms, each.date);
  }
  return text;
}

}  // namespace demo
