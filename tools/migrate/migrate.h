// `switchyard migrate`: a running job goes to another GPU.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_migrate(CommandLine& line);

}  // namespace switchyard::tools
