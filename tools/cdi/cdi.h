// `switchyard cdi generate`: the devices by which container runtimes give a job of a container its
// library and its monitor (Container Device Interface).
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_cdi(CommandLine& line);

}  // namespace switchyard::tools
