#include "monitor/policy/suspects.h"

#include <algorithm>
#include <cmath>

namespace switchyard::monitor::guard {
namespace {

constexpr std::size_t kUndecided = 2;
constexpr double kForgottenOverS = 30;
constexpr double kMoreWork = 1.5;
constexpr double kLeastMore = 0.05;
constexpr double kManyTimes = 4;
// Below so many a second the number of launches says nothing.
constexpr double kFewLaunches = 20;

Activity faded(const Activity& usual, double span_s) {
  const double left = std::exp(-span_s / kForgottenOverS);
  return Activity::of_each([&](auto sum) { return usual.*sum * left; });
}

Activity most(const Activity& a, const Activity& b) {
  return Activity::of_each([&](auto sum) { return std::max(a.*sum, b.*sum); });
}

bool many_more(double now, double before) {
  return now >= kFewLaunches && now >= kManyTimes * before;
}

bool moves_more(const Growth& growth) {
  const double now = growth.now.moving_s, before = growth.before.moving_s;
  return now - before >= kLeastMore && now >= kManyTimes * before;
}

}  // namespace

Activity Suspects::rate(std::uint64_t job, const Activities& all, Time now) const {
  const auto found = all.find(job);
  const double span_s = seconds(now - last_at_);
  if (found == all.end() || last_at_ == Time{0} || span_s <= 0) return {};
  const auto before = last_.find(job);
  const Activity was = before != last_.end() ? before->second : Activity{};
  const Activity& is = found->second;
  // Sums begin anew with a job's next context.
  return Activity::of_each([&](auto sum) { return std::max(0.0, is.*sum - was.*sum) / span_s; });
}

void Suspects::commit(const Rates& rates) {
  for (const auto& [job, rate] : rates.rates) {
    Seen& seen = seen_[job];
    seen = {most(rate, faded(seen.usual, seconds(rates.at - seen.at))), rates.at};
  }
}

void Suspects::usual(const Activities& all, const std::set<std::uint64_t>& but, Time now) {
  Rates fresh{now, {}};
  for (const auto& [job, sums] : all) {
    if (!but.contains(job)) fresh.rates[job] = rate(job, all, now);
  }
  pending_.push_back(std::move(fresh));
  while (pending_.size() > kUndecided) {
    commit(pending_.front());
    pending_.pop_front();
  }
  std::erase_if(seen_, [&](const auto& each) { return !all.contains(each.first); });
  last_ = all;
  last_at_ = now;
}

void Suspects::accept(std::uint64_t job, const Activities& all, Time now) {
  Seen& seen = seen_[job];
  seen = {most(rate(job, all, now), seen.usual), now};
}

std::optional<Growth> Suspects::grown(std::uint64_t job, const Activities& all, Time now) const {
  Growth out;
  out.now = rate(job, all, now);
  if (const auto seen = seen_.find(job); seen != seen_.end()) {
    out.before = faded(seen->second.usual, seconds(now - seen->second.at));
  }
  const double more = out.now.worked_s - out.before.worked_s;
  const bool works_more = more >= kLeastMore && out.now.worked_s >= kMoreWork * out.before.worked_s;
  out.kernels = many_more(out.now.kernels, out.before.kernels);
  out.copies = many_more(out.now.copies, out.before.copies) || moves_more(out);
  if (!works_more && !out.kernels && !out.copies) return std::nullopt;
  // Its work grew, but by the number of neither: both may be the reason, as far as it does both.
  if (!out.kernels && !out.copies) {
    out.kernels = out.now.kernels > 0;
    out.copies = out.now.copies > 0;
  }
  return out;
}

}  // namespace switchyard::monitor::guard
