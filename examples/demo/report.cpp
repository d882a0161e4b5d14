#include "report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace demo {
namespace {

struct Row {
  const char* name;
  double p50_us;
  double p99_us;
  double loop_ratio;  // of its rate alone; 0 where it didn't run
};

double of_rounds(const std::vector<Cell>& rounds, double (*figure)(const Cell&)) {
  std::vector<double> values;
  for (const Cell& cell : rounds) values.push_back(figure(cell));
  return median(values);
}

double p50(const Cell& cell) { return percentile(cell.request_us, 0.50); }
double p99(const Cell& cell) { return percentile(cell.request_us, 0.99); }
double loop(const Cell& cell) { return cell.loop_per_second; }

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

Verdict judge(const Results& results) {
  Verdict verdict;
  const double default_p99 = of_rounds(results.by_default, p99);
  const double default_loop = of_rounds(results.by_default, loop);
  if (default_p99 <= 0 || default_loop <= 0) return verdict;
  verdict.p99_ratio = of_rounds(results.switchyard, p99) / default_p99;
  verdict.loop_ratio = of_rounds(results.switchyard, loop) / default_loop;
  verdict.better = verdict.p99_ratio > 0 && verdict.p99_ratio <= kMostP99Ratio &&
                   verdict.loop_ratio >= kLeastLoopRatio;
  return verdict;
}

std::string table(const Results& results, bool unicode) {
  const double solo = results.loop_alone.loop_per_second;
  const auto share = [&](double rate) { return solo > 0 ? rate / solo : 0; };
  const Row rows[] = {
      {"requests alone", p50(results.requests_alone), p99(results.requests_alone), 0},
      {"loop alone", 0, 0, share(solo)},
      {"both, driver's default", of_rounds(results.by_default, p50),
       of_rounds(results.by_default, p99), share(of_rounds(results.by_default, loop))},
      {"both, Switchyard", of_rounds(results.switchyard, p50), of_rounds(results.switchyard, p99),
       share(of_rounds(results.switchyard, loop))},
  };
  double longest = 0;
  for (const Row& row : rows) longest = std::max(longest, row.p99_us);
  std::string text = line("%-24s%12s%12s%8s\n", "", "p50", "p99", "loop");
  for (const Row& row : rows) {
    text += line("%-24s", row.name);
    text += row.p99_us > 0 ? line("%9.2f ms%9.2f ms", row.p50_us / 1e3, row.p99_us / 1e3)
                           : line("%12s%12s", "-", "-");
    text += row.loop_ratio > 0 ? line("%6.1f %%", row.loop_ratio * 100) : line("%8s", "-");
    if (row.p99_us > 0) text += "  p99 " + bar(row.p99_us / longest * 24, unicode);
    text += '\n';
  }
  return text;
}

}  // namespace demo
