// Whether the page that a monitor sends is one that this library can use.
//
// Threading: that of the connection.
#pragma once

#include "switchyard/wire.h"

namespace switchyard::shim {

// Notes which sections the monitor serves (process.h). False: the log says why it is of no use.
bool accept_page(int fd, const wire::Welcome& welcome);

}  // namespace switchyard::shim
