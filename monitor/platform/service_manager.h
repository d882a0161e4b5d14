// The messages to systemd (sd_notify(3), without its library): the monitor serves, and it lives. A
// unit with Type=notify and WatchdogSec ends a monitor that hangs, and starts another.
//
// Threading: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "monitor/platform/time.h"

namespace switchyard::monitor {

// A variable of the environment; 0: it is not there, or no number.
std::uint64_t number_in(const char* variable);

class ServiceManager {
 public:
  // Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID. Without them nothing is told.
  ServiceManager();

  void ready() { tell("READY=1"); }
  // Called on each tick of the loop: tells twice within the time that the unit allows.
  void lives(Time now);

 private:
  void tell(std::string_view words) const;

  std::string socket_;
  Time every_{0};  // 0: there is no watchdog
  Time told_{0};
};

}  // namespace switchyard::monitor
