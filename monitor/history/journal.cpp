#include "monitor/history/journal.h"

#include <algorithm>

namespace switchyard::monitor {

EventRing::EventRing(std::size_t capacity)
    : capacity_(capacity), events_(new HistoryEvent[capacity]) {}

void EventRing::push(const HistoryEvent& event) { events_[++newest_ % capacity_] = event; }

std::uint64_t EventRing::oldest() const {
  return newest_ < capacity_ ? 1 : newest_ - capacity_ + 1;
}

EventRing::Read EventRing::read(std::uint64_t since, std::vector<HistoryEvent>& out,
                                std::size_t most) const {
  since = std::min(since, newest_);
  const std::uint64_t first = std::max(since + 1, oldest());
  const std::uint64_t end = std::min(first + most, newest_ + 1);
  for (std::uint64_t number = first; number < end; ++number) out.push_back(at(number));
  return {first, end - 1, first - since - 1};
}

std::uint64_t EventRing::before(Time time) const {
  std::uint64_t number = newest_;
  while (number >= oldest() && at(number).at_ns >= time.count()) --number;
  return number < oldest() ? 0 : number;
}

void Journal::job_begins(JobKey job, const Name& name, pid_t pid, Time now) {
  while (!ended_.empty() && ended_.front().first < rare_.oldest()) {
    names_.erase(ended_.front().second);
    ended_.pop_front();
  }
  names_.emplace(job, name);
  take(event_of(EventKind::kJobBegins, job, Peer{pid, name.uid}, now));
}

void Journal::job_ends(JobKey job, Time now) {
  take(event_of(EventKind::kJobEnds, job, now));
  ended_.emplace_back(rare_.newest(), job);
}

void Journal::command(HistoryEvent event, std::string text) {
  event.value = ++last_text_;
  texts_[last_text_ % kTexts] = std::move(text);
  take(event);
}

const Journal::Name* Journal::name_of(JobKey job) const {
  const auto found = names_.find(job);
  return found != names_.end() ? &found->second : nullptr;
}

std::string Journal::text_of(const HistoryEvent& event) const {
  const std::uint64_t age = last_text_ - event.value;
  const bool kept = event.value != 0 && event.value <= last_text_ && age < kTexts;
  return kept ? texts_[event.value % kTexts] : "";
}

}  // namespace switchyard::monitor
