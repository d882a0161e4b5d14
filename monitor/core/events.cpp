#include "monitor/core/events.h"

#include <iterator>

namespace switchyard::monitor {

const char* key_of(EventKind kind) {
  static constexpr const char* kKeys[] = {
      "unknown",         "monitor begins", "job begins",      "job ends",
      "state",           "work",           "paused",          "resumed",
      "leaves",          "left",           "returns",         "is back",
      "move prepares",   "move leaves",    "move lands",      "move arrives",
      "move ended",      "command",        "command refused", "memory refused",
      "process refused", "gate",           "slice",           "unmanaged begins",
      "unmanaged ends",  "island ended",   "island fault"};
  static_assert(std::size(kKeys) == kEventKinds + 1);
  const auto at = static_cast<std::size_t>(kind);
  return kKeys[at < std::size(kKeys) ? at : 0];
}

}  // namespace switchyard::monitor
