// `switchyard ps`: the jobs, what each was promised and what it gets, and GPU processes outside.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_ps(CommandLine& line);

}  // namespace switchyard::tools
