#include "monitor/history/journal.h"

namespace switchyard::monitor {

void Journal::job_begins(JobKey job, const Name& name, pid_t pid, Time now) {
  while (!ended_.empty() && ended_.front().first < rare_.oldest()) {
    names_.erase(ended_.front().second);
    ended_.pop_front();
  }
  names_.emplace(job, name);
  take(event_of(EventKind::kJobBegins, job, Peer{pid, name.uid}, now));
}

void Journal::job_ends(JobKey job, std::optional<int> wait_status, Time now) {
  HistoryEvent event = event_of(EventKind::kJobEnds, job, now);
  if (wait_status) event.value = 1 + static_cast<std::uint64_t>(*wait_status);
  take(event);
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
