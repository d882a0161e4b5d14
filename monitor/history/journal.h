// The journal: the last events (core/events.h), in memory, with numbers.
//
// Concept. A ring of fixed size keeps events and overwrites the oldest (ring.h).
//
// Events of each turn come some thousand times a second, so they have a ring of their own, the
// timeline. The journal has what is rare: commands, pauses, swaps, moves, and changes of state.
// Both rings number by themselves. Of one job, events of both are in order by time.
//
// An event names jobs by key. Names are kept until the event of the job's end is overwritten. Texts
// of commands are kept for the last kTexts of them.
//
// Threading: one thread, the monitor's. take() allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "monitor/core/events.h"
#include "monitor/history/ring.h"

namespace switchyard::monitor {

using EventRing = Ring<HistoryEvent>;

class Journal final : public Sink {
 public:
  static constexpr std::size_t kEvents = 16'384;
  // 60 s of two GPUs whose turns last 1 ms, and two events for each turn.
  static constexpr std::size_t kFrequentEvents = 262'144;
  static constexpr std::size_t kTexts = 1024;

  explicit Journal(std::size_t events = kEvents, std::size_t frequent = kFrequentEvents)
      : rare_(events), timeline_(frequent), texts_(kTexts) {}

  void take(const HistoryEvent& event) override {
    (is_frequent(event.kind) ? timeline_ : rare_).push(event);
  }

  struct Name {
    std::string id, name;
    uid_t uid = 0;
  };
  void job_begins(JobKey job, const Name& name, pid_t pid, Time now);
  // `wait_status`: of the command that made it, where that is known.
  void job_ends(JobKey job, std::optional<int> wait_status, Time now);
  // `event`: kCommand or kCommandRefused.
  void command(HistoryEvent event, std::string text);

  // The way of whoever stores events, or shows them.
  EventRing::Read read(std::uint64_t since, std::vector<HistoryEvent>& out,
                       std::size_t most) const {
    return rare_.read(since, out, most);
  }
  const EventRing& rare() const { return rare_; }
  const EventRing& timeline() const { return timeline_; }

  // Null: the job ended so long ago that no event of the journal is about it.
  const Name* name_of(JobKey job) const;
  const std::map<JobKey, Name>& names() const { return names_; }
  // Of a command; empty: it was one of the last kTexts no more.
  std::string text_of(const HistoryEvent& event) const;

 private:
  EventRing rare_;
  EventRing timeline_;
  std::map<JobKey, Name> names_;
  std::deque<std::pair<std::uint64_t, JobKey>> ended_;  // by number of the event
  std::vector<std::string> texts_;                      // a ring
  std::uint64_t last_text_ = 0;
};

}  // namespace switchyard::monitor
