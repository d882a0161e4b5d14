// `switchyard trace`: the last minute of each GPU as a picture.
//
// Threading: call from the only thread.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_trace(CommandLine& line);

}  // namespace switchyard::tools
