// The journal: the last events (core/events.h), in memory, with numbers.
//
// Concept. A ring of fixed size keeps events and overwrites the oldest. Events are numbered from 1
// on without gaps. A reader says which number it has seen last. It is given what follows, and how
// many events before that it has lost. Nobody waits for a reader.
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
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "monitor/core/events.h"

namespace switchyard::monitor {

class EventRing {
 public:
  explicit EventRing(std::size_t capacity);

  void push(const HistoryEvent& event);

  struct Read {
    std::uint64_t first = 0;  // number of the first event that was read; the others follow it
    std::uint64_t last = 0;   // of the last one: where to go on
    std::uint64_t lost = 0;   // events behind `since` that were overwritten before they were read
  };
  // Appends to `out` at most `most` events that come after number `since`. A number that is yet to
  // come counts as the newest.
  Read read(std::uint64_t since, std::vector<HistoryEvent>& out, std::size_t most) const;

  std::uint64_t newest() const { return newest_; }  // its number; 0: there was none
  std::uint64_t oldest() const;                     // of those that are kept
  std::uint64_t dropped() const { return oldest() - 1; }
  std::size_t capacity() const { return capacity_; }
  // The number of the last event before `time`, in what is kept; 0: there is none.
  std::uint64_t before(Time time) const;
  // pre: it is kept.
  const HistoryEvent& at(std::uint64_t number) const { return events_[number % capacity_]; }

 private:
  std::size_t capacity_;
  std::unique_ptr<HistoryEvent[]>
      events_;  // NOLINT(modernize-avoid-c-arrays): untouched until used
  std::uint64_t newest_ = 0;
};

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
  void job_ends(JobKey job, Time now);
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
