// `switchyard stop`: ends the monitor.
//
// Threading: on the main thread.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_stop(CommandLine& line);

}  // namespace switchyard::tools
