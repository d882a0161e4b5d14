// `switchyard status`: the monitor and its GPUs: memory, what enforces shares, and why.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_status(CommandLine& line);

}  // namespace switchyard::tools
