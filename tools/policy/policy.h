// `switchyard policy`: by which rules the monitor shares its GPUs.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_policy(CommandLine& line);

}  // namespace switchyard::tools
