// `switchyard version`: this program, the monitor that answers, and whether the two agree.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_version(CommandLine& line);

}  // namespace switchyard::tools
