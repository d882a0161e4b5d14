// `switchyard backend`: shows or chooses what enforces shares: slices, gates, both or nothing.
//
// Threading: main thread.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_backend(CommandLine& line);

}  // namespace switchyard::tools
