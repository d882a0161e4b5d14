#include "bench/simulate/engine.h"

#include <algorithm>

namespace switchyard::simulate {

std::size_t Engine::add_group(std::uint32_t slice_us) {
  groups_.push_back({slice_us, Time{0}, Time{0}, groups_.size(), 0});
  return groups_.size() - 1;
}

void Engine::set_slice(std::size_t group, std::uint32_t us) {
  const Time before = slice(group);
  groups_[group].slice_us = us;
  // The rest of the running slice shrinks at once; it does not grow.
  if (current_ == group) slice_ends_ -= std::max(Time{0}, before - slice(group));
}

// Its work began or ended.
void Engine::count(std::size_t group, bool has_work) {
  std::size_t& sum = groups_[groups_[group].first].with_work;
  with_work_ -= static_cast<std::size_t>(sum != 0);
  sum += has_work ? 1 : -1;
  with_work_ += static_cast<std::size_t>(sum != 0);
}

void Engine::offer(std::size_t group, Time work) {
  const bool waited = others_wait();
  const bool had = groups_[group].work > Time{0};
  if (had != (work > Time{0})) count(group, !had);
  groups_[group].work = work;
  // Nobody waited until now, so the running one's slice began anew whenever it was over.
  if (!waited && others_wait() && current_ && slice_ends_ <= now_ && works(*current_)) {
    const Time whole = std::max(slice(*current_), Time{1});
    slice_ends_ += ((now_ - slice_ends_) / whole + 1) * whole;
  }
  settle();
}

bool Engine::others_wait() const {
  const bool mine = current_ && works(*current_);
  return with_work_ > static_cast<std::size_t>(mine);
}

void Engine::settle() {
  if (with_work_ == 0) return;
  const bool goes_on = current_ && works(*current_) && (now_ < slice_ends_ || !others_wait());
  if (goes_on) return;
  const std::size_t from = current_.value_or(groups_.size() - 1);
  std::size_t at = from;
  do {
    at = (at + 1) % groups_.size();
  } while (groups_[at].first != at || !works(at));
  if (current_ == at) {
    slice_ends_ = now_ + slice(at);
    return;
  }
  current_ = at;
  runs_from_ = now_ + costs_.switching + costs_.restoring;
  slice_ends_ = now_ + costs_.switching + slice(at);
}

// Of those that run.
Time Engine::shortest_work() const {
  Time least = kNever;
  for (const Group& group : groups_) {
    if (group.first == *current_ && group.work > Time{0}) least = std::min(least, group.work);
  }
  return least;
}

Time Engine::next() const {
  if (!ended_.empty()) return now_;
  if (!current_ || !works(*current_)) return kNever;
  const Time work = shortest_work();
  const Time from = std::max(now_, runs_from_);
  const Time done = work > kNever - from ? kNever : from + work;
  return others_wait() ? std::min(done, std::max(slice_ends_, now_)) : done;
}

std::optional<std::size_t> Engine::done() {
  if (ended_.empty()) return std::nullopt;
  const std::size_t group = ended_.back();
  ended_.pop_back();
  return group;
}

std::optional<std::size_t> Engine::run_until(Time to) {
  if (const auto ended = done()) return ended;
  settle();
  while (now_ < to) {
    const Time until = std::min(to, next());
    if (!current_ || !works(*current_)) {
      now_ = to;
      break;
    }
    const Time got = std::max(Time{0}, until - std::max(now_, runs_from_));
    lost_ += until - now_ - got;
    now_ = until;
    for (std::size_t at = 0; at < groups_.size(); ++at) {
      Group& running = groups_[at];
      if (running.first != *current_ || running.work <= Time{0}) continue;
      running.ran += got;
      running.work -= got;
      if (running.work > Time{0}) continue;
      count(at, false);
      ended_.push_back(at);
    }
    if (const auto ended = done()) return ended;
    settle();
  }
  return std::nullopt;
}

}  // namespace switchyard::simulate
