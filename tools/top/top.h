// `switchyard top`: the GPUs and the jobs on the whole screen, and keys to change them.
//
// Threading: on the main thread.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_top(CommandLine& line);

}  // namespace switchyard::tools
