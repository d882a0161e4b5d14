#include "monitor/policy/gradient_noise.h"

#include <algorithm>
#include <cmath>

namespace switchyard::monitor::noise {
namespace {

// |G|² below so many of its standard errors is not told apart from 0.
constexpr double kClear = 2;

void smooth(double& old, double fresh) { old = kDecay * old + (1 - kDecay) * fresh; }

// Its step was not measured, so the library tells of all steps.
bool not_due(const Bucket& bucket) { return bucket.squares && std::isnan(bucket.squares->local); }

bool finite(const Squares& squares) {
  return std::isfinite(squares.local) && std::isfinite(squares.mean);
}

// Of one number for each step: the square root of the mean of its squares.
template <typename Value>
double root_mean_square(const std::deque<Estimate>& steps, Value value) {
  double sum = 0;
  for (const Estimate& step : steps) sum += value(step) * value(step);
  return std::sqrt(sum / static_cast<double>(steps.size()));
}

}  // namespace

Estimate estimate(const Squares& squares, unsigned ranks) {
  const double n = ranks;
  return {(n * squares.mean - squares.local) / (n - 1),
          (squares.local - squares.mean) / (1 - 1 / n)};
}

void Estimator::bound(std::size_t most) {
  most_ = most;
  finder_.bound(most);
}

void Estimator::restart() {
  marker_ = finder_.marker();
  cadence_ = {};
  last_marker_.reset();
  distances_.clear();
  in_round_ = false;
  rounds_.clear();
  shape_.clear();
  smoothed_.clear();
  steps_.clear();
  step_count_ = 0;
}

// The least distance is that of two steps. Where the library tells of all steps it is the least of
// the last ones. A single short step would change the stride for good.
void Estimator::find_cadence(const Bucket& marker) {
  if (last_marker_ && marker.number > last_marker_->number) {
    std::uint64_t distance = marker.number - last_marker_->number;
    const bool all_told = not_due(marker) || not_due(*last_marker_);
    if (all_told) {
      distances_.push_back(distance);
      if (distances_.size() > kShapeRounds) distances_.pop_front();
      distance = *std::min_element(distances_.begin(), distances_.end());
    }
    const bool better = cadence_.stride == 0 || distance < cadence_.stride ||
                        (all_told && distances_.size() == kShapeRounds);
    if (better && distance <= ~0u) {
      cadence_ = {marker.elements, static_cast<std::uint32_t>(distance)};
    }
  }
  last_marker_ = marker;
}

// Of each size as many as the middle one of the last rounds had.
void Estimator::find_shape() {
  shape_.clear();
  if (rounds_.size() < kFewestShapes) return;
  std::map<std::uint32_t, std::vector<std::uint32_t>> counts;
  for (const Shape& round : rounds_) {
    for (const auto& [what, count] : round) counts[what].push_back(count);
  }
  for (auto& [what, each] : counts) {
    each.resize(rounds_.size());  // 0 for those that lack it
    const auto middle = each.begin() + static_cast<std::ptrdiff_t>(each.size() / 2);
    std::nth_element(each.begin(), middle, each.end());
    if (*middle != 0) shape_[what] = *middle;
  }
  std::erase_if(smoothed_, [&](const auto& each) { return !counts_at(each.first); });
}

bool Estimator::counts_at(const Place& place) const {
  const auto found = shape_.find(place.first);
  return found != shape_.end() && place.second < found->second;
}

void Estimator::close_round() {
  std::size_t size = 0;
  for (const auto& [what, count] : shape_) size += count;
  if (size != 0 && taken_ == size) {
    steps_.push_back(estimate(sum_, ranks_));
    if (steps_.size() > kSpreadSteps) steps_.pop_front();
    ++step_count_;
  }
  rounds_.push_back(std::move(seen_));
  if (rounds_.size() > kShapeRounds) rounds_.pop_front();
  find_shape();
}

void Estimator::add(const Bucket& bucket) {
  finder_.add({bucket.what, Time{0}, bucket.elements, bucket.number});
  finder_.look();
  if (finder_.marker() != marker_) restart();
  if (bucket.after_loss) {
    in_round_ = false;
    last_marker_.reset();
  }
  if (marker_ == bucket.what) {
    if (in_round_) close_round();
    find_cadence(bucket);
    in_round_ = true;
    seen_ = {};
    buckets_ = 0;
    taken_ = 0;
    sum_ = {};
  }
  // Buckets without an end are no step.
  if (in_round_ && (++buckets_ > most_ || seen_.size() > most_ / 8)) {
    in_round_ = false;
    seen_ = {};
  }
  if (!in_round_) return;
  const Place place{bucket.what, seen_[bucket.what]++};
  if (!counts_at(place) || !bucket.squares || !finite(*bucket.squares)) return;
  ++taken_;
  sum_ += *bucket.squares;
  const auto [known, fresh] = smoothed_.try_emplace(place, *bucket.squares);
  if (fresh) return;
  smooth(known->second.local, bucket.squares->local);
  smooth(known->second.mean, bucket.squares->mean);
}

// The mean of so many independent ones is as sure as the smoothed value.
double Estimator::effective_steps() const {
  return std::min(static_cast<double>(steps_.size()), (1 + kDecay) / (1 - kDecay));
}

std::optional<Result> Estimator::result() const {
  if (step_count_ < kFewestSteps) return std::nullopt;
  Squares sum;
  for (const auto& [place, squares] : smoothed_) sum += squares;
  Result out{step_count_, estimate(sum, ranks_), std::nullopt, 0};
  const Estimate& mean = out.smoothed;
  const double root = std::sqrt(effective_steps());
  const double unsure =
      root_mean_square(steps_, [&](const Estimate& step) { return step.gradient - mean.gradient; });
  if (mean.gradient <= 0 || mean.gradient * root < kClear * unsure) return out;
  // The error of a quotient of two means (delta method).
  const double scale = mean.variance / mean.gradient;
  const double error = root_mean_square(
      steps_, [&](const Estimate& step) { return step.variance - scale * step.gradient; });
  out.ratio = scale / ranks_;
  out.spread = error / (mean.gradient * root * ranks_);
  return out;
}

bool Ranks::all_past(std::uint64_t number) const {
  return latest_.size() == size_ &&
         std::all_of(latest_.begin(), latest_.end(),
                     [&](const auto& each) { return each.second.latest >= number; });
}

Bucket Ranks::conclude(const Pending& pending) {
  const Told& told = pending.first;
  const auto kind = (told.relation.scattered ? 2u : 0u) + (told.relation.summed ? 1u : 0u);
  const std::uint64_t hash = (told.elements * 4 + kind) * 0x9E3779B97F4A7C15u;
  Bucket out{static_cast<std::uint32_t>(hash >> 32), told.elements, told.number, std::nullopt};
  out.after_loss = lost_before_ != 0 && told.number >= lost_before_;
  if (out.after_loss) lost_before_ = 0;
  if (!pending.alike || pending.count != size_) return out;
  const double n = static_cast<double>(size_);
  const double received = told.relation.scattered ? pending.after : pending.after / n;
  out.squares = {pending.before / n, told.relation.summed ? received / (n * n) : received};
  return out;
}

void Ranks::take(Pending& pending, std::size_t place, const Told& told) {
  if (pending.count == 0) pending.first = told;
  if (pending.from.size() <= place) pending.from.resize(place + 1);
  pending.alike = pending.alike && !pending.from[place] &&
                  told.elements == pending.first.elements &&
                  told.relation == pending.first.relation;
  pending.from[place] = true;
  ++pending.count;
  pending.before += told.before;
  pending.after += told.after;
}

std::vector<Bucket> Ranks::add(unsigned rank, const Told& told) {
  if (rank >= size_ || told.number == 0) return {};
  auto teller = latest_.find(rank);
  if (teller == latest_.end()) {
    if (latest_.size() >= most_tellers_) return {};
    teller = latest_.emplace(rank, Teller{latest_.size(), 0}).first;
  }
  teller->second.latest = std::max(teller->second.latest, told.number);
  if (told.after_loss) lost_before_ = std::max(lost_before_, told.number);
  if (told.number > concluded_) take(pending_[told.number], teller->second.place, told);
  std::vector<Bucket> out;
  while (!pending_.empty()) {
    const auto& [number, oldest] = *pending_.begin();
    const bool given_up = pending_.size() > most_pending_ || all_past(number);
    if (oldest.count < size_ && !given_up) break;
    out.push_back(conclude(oldest));
    concluded_ = number;
    pending_.erase(pending_.begin());
  }
  return out;
}

}  // namespace switchyard::monitor::noise
