#include "monitor/policy/parking.h"

#include <vector>

namespace switchyard::monitor::policy {
namespace {

std::uint64_t excess(const Parker& parker) {
  return parker.there - std::min(parker.there, parker.allowed);
}

bool can_be_counted_on(const Parker& parker, Time now) {
  return !parker.fails && state_of(parker, now) != Parking::kStuck;
}

Parker stepped(const Parker& from, std::uint64_t less, Time now) {
  Parker to = allowed(from, from.on, from.allowed - less, now);
  to.step = less;
  to.stepped_at = now;
  return to;
}

}  // namespace

Parking state_of(const Parker& parker, Time now) {
  if (parker.held() == 0) return Parking::kNothing;
  if (excess(parker) == 0) return Parking::kParks;
  const bool stuck = parker.fails || now - parker.moved_at >= kMakesWayWithin;
  return stuck ? Parking::kStuck : Parking::kMakesWay;
}

Parker allowed(Parker from, std::size_t on, std::uint64_t bytes, Time now) {
  const bool made_way = excess(from) != 0;
  from.on = on;
  from.allowed = bytes;
  if (!made_way && excess(from) != 0) from.moved_at = now;
  from.most = std::max(from.most, bytes);
  return from;
}

Parker reported(Parker from, std::uint64_t there, bool fails, Time now) {
  there = from.bounded(there);
  if (there < from.there) from.moved_at = now;
  from.there = there;
  from.most = std::max(from.allowed, there);
  from.fails = fails;
  return from;
}

Parker found(std::size_t on, std::uint64_t there) {
  return {.on = on, .allowed = there, .there = there, .most = there};
}

std::optional<Spot> choose(std::span<const Spot> spots, std::uint64_t bytes) {
  const auto most = std::max_element(spots.begin(), spots.end(),
                                     [](const Spot& a, const Spot& b) { return a.room < b.room; });
  if (most == spots.end() || most->room == 0 || bytes == 0) return std::nullopt;
  return Spot{most->gpu, std::min(most->room, bytes)};
}

std::uint64_t step_for(const Need& need, std::uint64_t last) {
  const std::uint64_t step = std::max(kLeastStep, 2 * last);
  return need.bytes + std::min(need.beyond, step - std::min(step, need.bytes));
}

bool make_way(std::span<Parker* const> parkers, const Need& need, Time now) {
  std::vector<Parker*> by_size(parkers.begin(), parkers.end());
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Parker* a, const Parker* b) { return a->held() > b->held(); });
  std::uint64_t goes = 0;
  std::uint64_t last = 0;
  for (const Parker* each : by_size) {
    if (can_be_counted_on(*each, now)) goes += excess(*each);
    if (now - each->stepped_at < kMakesWayWithin) last += each->step;
  }
  if (goes >= need.bytes) return true;
  const std::uint64_t step = step_for(need, last);
  for (Parker* each : by_size) {
    if (goes >= step) break;
    const std::uint64_t less = std::min(each->allowed, step - goes);
    const bool counts = can_be_counted_on(*each, now);
    if (less != 0) *each = stepped(*each, less, now);
    if (counts) goes += less;
  }
  return goes >= need.bytes;
}

}  // namespace switchyard::monitor::policy
