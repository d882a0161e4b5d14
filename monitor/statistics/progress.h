// How many iterations each process does: its records, read into the rule (policy/iterations.h).
//
// Concept. Collectives of a communicator of several ranks are the sequence where there are any, and
// are always recorded. Else it is that of launches: of kernels and graphs. These are recorded while
// people ask, and for a while after that, because each launch then takes some nanoseconds more.
// They are also recorded for jobs that are governed by their iterations (follows_iterations).
//
// The events kept, and those read in one look, are bounded for each user, and each of its processes
// has a part. A process that launches more in a look than its part has lost events.
//
// Threading: one thread, the monitor's.
#pragma once

#include <map>
#include <optional>

#include "monitor/core/registry.h"
#include "monitor/policy/iterations.h"
#include "monitor/policy/launch_classes.h"

namespace switchyard::monitor {

// Whether something is decided for the job by its iterations (monitor/adaptation).
inline bool follows_iterations(const Job& job) {
  return job.knobs.guard > 0 || job.knobs.share.automatic;
}

class Progress {
 public:
  // Launches are recorded for so long after the last question.
  static constexpr Time kRecordsFor = std::chrono::seconds(60);
  static constexpr std::size_t kMostEventsOfUser = 64 * iterations::kMostEvents;
  static constexpr std::size_t kMostReadOfUser = 128 * abi::kRecords;

  enum class Source : std::uint8_t { kCollectives, kLaunches };
  struct Process {
    Source source = Source::kLaunches;
    bool records = false;  // its sequence is read now
    iterations::Finder finder;
    RecordCursor cursor;
    LaunchClasses classes;
    // Since the last tick.
    std::size_t recorded = 0;
    std::vector<std::uint8_t> recorded_classes;

    // Each launch counts as an iteration: no step was found, for it launches one kernel alone.
    bool counts_launches() const {
      return source == Source::kLaunches && finder.counts_each() && classes.wanted().all();
    }
  };

  // Somebody wants to know.
  void ask(Time now) { asked_at_ = now; }
  void tick(const Registry& registry, Time now);
  // Reads the new events of one client whose iterations are known. Between two ticks.
  void read(const Registry& registry, const Client& client, Time now);
  // Null: it is no client, or has not been looked at.
  const Process* find(ClientId id) const;
  // For how long after the first of the job's ranks each one launches the same collectives, on the
  // average of the last iterations. Only where there are several ranks, and it is known.
  std::map<ClientId, Time> late(const Job& job) const;

 private:
  void look(const Registry& registry, Process& process, const Client& client, bool follows,
            Time now) const;

  std::map<ClientId, Process> processes_;
  std::optional<Time> asked_at_;
};

}  // namespace switchyard::monitor
