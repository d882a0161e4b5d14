// `switchyard config`: checks the file of the monitor's settings, and shows what is in force.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_config(CommandLine& line);

}  // namespace switchyard::tools
