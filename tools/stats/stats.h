// `switchyard stats`: what the jobs do: iterations, collectives, waits.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_stats(CommandLine& line);

}  // namespace switchyard::tools
