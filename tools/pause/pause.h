// `switchyard pause` and `switchyard resume`: hold a running job back, and let it go on.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_pause(CLI::App& app, Outcome& outcome);
void add_resume(CLI::App& app, Outcome& outcome);

}  // namespace switchyard::tools
