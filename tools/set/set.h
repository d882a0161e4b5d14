// `switchyard set`: changes a running job: its priority, share, limit, deadline or memory quota.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_set(CommandLine& line);

}  // namespace switchyard::tools
