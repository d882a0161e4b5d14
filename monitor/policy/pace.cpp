#include "monitor/policy/pace.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace switchyard::monitor::guard {
namespace {

// Of a normal scatter, about 2.7 times its standard deviation.
constexpr double kDeviations = 4;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation(const std::deque<double>& usual, double middle) {
  std::vector<double> off;
  for (const double each : usual) off.push_back(std::abs(each - middle));
  return median(std::move(off));
}

}  // namespace

double Pace::usual_ns() const {
  return usual_.empty() ? 0 : median({usual_.begin(), usual_.end()});
}

double Pace::accident() const {
  if (!known()) return 0;
  const double usual = usual_ns();
  const double off = kDeviations * deviation(usual_, usual);
  return off / (usual + off);
}

void Pace::learn(double period_ns) {
  usual_.push_back(period_ns);
  if (usual_.size() > kMostUsual) usual_.pop_front();
}

void Pace::excuse() {
  for (const double each : slow_) learn(each);
  slow_.clear();
}

double Pace::slowdown() const { return slow_.empty() ? 0 : 1 - usual_ns() / mean(slow_); }

void Pace::measure(Time from) {
  measured_from_ = from;
  measured_.clear();
}

std::optional<double> Pace::measured() const {
  if (!known() || measured_.size() < kSlowRounds) return std::nullopt;
  return 1 - usual_ns() / mean(measured_);
}

void Pace::end_round(double period_ns, Time began, double guard, bool may_learn) {
  ++rounds_;
  if (began >= measured_from_ && measured_.size() < kSlowRounds) measured_.push_back(period_ns);
  const bool slow = known() && 1 - usual_ns() / period_ns > std::max(guard, accident());
  if (slow) {
    // So many of them tell as much as more would.
    if (slow_.size() < kMostUsual) slow_.push_back(period_ns);
    return;
  }
  slow_.clear();
  if (may_learn) learn(period_ns);
}

void Pace::add(Time at, double guard, bool may_learn) {
  if (!begun_) {
    begun_ = {at, 0};
    return;
  }
  ++begun_->iterations;
  const Time span = at - begun_->at;
  if (span < kShortestRound) return;
  end_round(static_cast<double>(span.count()) / begun_->iterations, begun_->at, guard, may_learn);
  begun_ = {at, 0};
}

}  // namespace switchyard::monitor::guard
