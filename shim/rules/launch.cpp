#include "shim/rules/launch.h"

#include "shim/client/client.h"

namespace switchyard::shim::rules {

void attend(abi::Lane& lane) {
  const std::uint32_t asked =
      lane.attention.fetch_and(~abi::kWakeMonitor, std::memory_order_relaxed);
  if ((asked & abi::kWakeMonitor) != 0) wake_monitor();
}

}  // namespace switchyard::shim::rules
