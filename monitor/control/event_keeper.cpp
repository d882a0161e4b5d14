#include "monitor/control/event_keeper.h"

#include <utility>
#include <vector>

#include "monitor/control/event_listing.h"

namespace switchyard::monitor {

void EventKeeper::tick(Monitor& monitor, Time now) {
  history::Store* store = monitor.history();
  const EventRing& ring = monitor.journal().rare();
  if (store == nullptr || last_ == ring.newest()) return;
  std::vector<HistoryEvent> events;
  const EventRing::Read read = ring.read(last_, events, kMostAtOnce);
  last_ = read.last;
  history::Rows rows;
  std::uint64_t number = read.first;
  for (const HistoryEvent& event : events) {
    rows.events.push_back(event_row(monitor, event, number++, now));
  }
  store->add(std::move(rows));
}

void EventKeeper::finish(Monitor& monitor, Time now) {
  if (monitor.history() == nullptr) return;
  while (last_ != monitor.journal().rare().newest()) tick(monitor, now);
}

}  // namespace switchyard::monitor
