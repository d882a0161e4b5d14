// `switchyard report`: who had the GPUs, and for how long.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_report(CommandLine& line);

}  // namespace switchyard::tools
