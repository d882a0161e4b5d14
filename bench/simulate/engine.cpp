#include "bench/simulate/engine.h"

#include <algorithm>

namespace switchyard::simulate {

std::size_t Engine::add_group(std::uint32_t slice_us) {
  groups_.push_back({slice_us, Time{0}, Time{0}});
  return groups_.size() - 1;
}

void Engine::set_slice(std::size_t group, std::uint32_t us) {
  const Time before = slice(group);
  groups_[group].slice_us = us;
  // The rest of the running slice shrinks at once; it does not grow.
  if (current_ == group) slice_ends_ -= std::max(Time{0}, before - slice(group));
}

void Engine::offer(std::size_t group, Time work) {
  const bool waited = others_wait();
  with_work_ += static_cast<std::size_t>(work > Time{0});
  with_work_ -= static_cast<std::size_t>(groups_[group].work > Time{0});
  groups_[group].work = work;
  // Nobody waited until now, so the running one's slice began anew whenever it was over.
  if (!waited && others_wait() && current_ && slice_ends_ <= now_ &&
      groups_[*current_].work > Time{0}) {
    const Time whole = std::max(slice(*current_), Time{1});
    slice_ends_ += ((now_ - slice_ends_) / whole + 1) * whole;
  }
  settle();
}

bool Engine::others_wait() const {
  const bool mine = current_ && groups_[*current_].work > Time{0};
  return with_work_ > static_cast<std::size_t>(mine);
}

void Engine::settle() {
  if (with_work_ == 0) return;
  const bool goes_on =
      current_ && groups_[*current_].work > Time{0} && (now_ < slice_ends_ || !others_wait());
  if (goes_on) return;
  const std::size_t from = current_.value_or(groups_.size() - 1);
  std::size_t at = from;
  do {
    at = (at + 1) % groups_.size();
  } while (groups_[at].work <= Time{0});
  if (current_ == at) {
    slice_ends_ = now_ + slice(at);
    return;
  }
  current_ = at;
  runs_from_ = now_ + costs_.switching + costs_.restoring;
  slice_ends_ = now_ + costs_.switching + slice(at);
}

Time Engine::next() const {
  if (!current_ || groups_[*current_].work <= Time{0}) return kNever;
  const Time work = groups_[*current_].work;
  const Time from = std::max(now_, runs_from_);
  const Time done = work > kNever - from ? kNever : from + work;
  return others_wait() ? std::min(done, std::max(slice_ends_, now_)) : done;
}

std::optional<std::size_t> Engine::run_until(Time to) {
  settle();
  while (now_ < to) {
    const Time until = std::min(to, next());
    if (!current_ || groups_[*current_].work <= Time{0}) {
      now_ = to;
      break;
    }
    Group& running = groups_[*current_];
    const Time got = std::max(Time{0}, until - std::max(now_, runs_from_));
    lost_ += until - now_ - got;
    running.ran += got;
    running.work -= got;
    now_ = until;
    if (running.work <= Time{0}) {
      --with_work_;
      const std::size_t done = *current_;
      return done;
    }
    settle();
  }
  return std::nullopt;
}

}  // namespace switchyard::simulate
