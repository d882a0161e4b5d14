// Brings the journal's events into the history, which keeps them on the disk.
//
// Concept. With each tick it takes a bounded number of events that came since the last one, as
// listings have them. A burst is taken over several ticks, for the journal remembers thousands.
// Events that it overwrites before that are lost: their numbers are missing in the history.
//
// Threading: one thread, the monitor's.
#pragma once

#include <cstdint>

#include "monitor/monitor.h"

namespace switchyard::monitor {

class EventKeeper {
 public:
  // Five times a second that is 1,280 events.
  static constexpr std::size_t kMostAtOnce = 256;

  void tick(Monitor& monitor, Time now);
  // All that there is, at the monitor's end.
  void finish(Monitor& monitor, Time now);

 private:
  std::uint64_t last_ = 0;  // number of the last event that was taken
};

}  // namespace switchyard::monitor
