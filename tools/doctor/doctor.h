// `switchyard doctor`: what works on this machine, what doesn't, and what to do about it.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_doctor(CommandLine& line);

}  // namespace switchyard::tools
