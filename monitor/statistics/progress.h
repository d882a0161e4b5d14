// How many iterations each process does: its records, read into the rule (policy/iterations.h).
//
// Concept. Collectives of a communicator of several ranks are the sequence where there are any, and
// are always recorded. Else it is that of launches: of kernels and graphs. These are recorded while
// people ask, and for a while after that, because each launch then takes some nanoseconds more.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>

#include "monitor/core/registry.h"
#include "monitor/policy/iterations.h"
#include "monitor/policy/launch_classes.h"

namespace switchyard::monitor {

class Progress {
 public:
  // Launches are recorded for so long after the last question.
  static constexpr Time kRecordsFor = std::chrono::seconds(60);

  enum class Source : std::uint8_t { kCollectives, kLaunches };
  struct Process {
    Source source = Source::kLaunches;
    bool records = false;  // its sequence is read now
    iterations::Finder finder;
    RecordCursor cursor;
    LaunchClasses classes;
  };

  // Somebody wants to know.
  void ask(Time now) { asked_at_ = now; }
  void tick(const Registry& registry, Time now);
  // Null: it is no client, or has not been looked at.
  const Process* find(ClientId id) const;
  // For how long after the first of the job's ranks each one launches the same collectives, on the
  // average of the last iterations; where there are several ranks, and it is known.
  std::map<ClientId, Time> late(const Job& job) const;

 private:
  void look(Process& process, const Client& client, Time now) const;

  std::map<ClientId, Process> processes_;
  std::optional<Time> asked_at_;
};

}  // namespace switchyard::monitor
