// `switchyard inspect`: all that is known about a job, as JSON.
//
// Threading: call from the only thread.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_inspect(CommandLine& line);

}  // namespace switchyard::tools
