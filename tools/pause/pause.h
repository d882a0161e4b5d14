// `switchyard pause` and `switchyard resume`: hold a running job back, and let it go on.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_pause(CommandLine& line);
void add_resume(CommandLine& line);

}  // namespace switchyard::tools
