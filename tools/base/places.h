// Where the other parts of Switchyard are: beside this program, or where an installation puts them.
//
// Threading: reads the environment and the file system; call it from the only thread.
#pragma once

#include <string>

#include "tools/base/result.h"

namespace switchyard::tools {

// The absolute path of this program, or "switchyard" when /proc doesn't say.
std::string own_program();

// libswitchyard.so: SWITCHYARD_LIBRARY, beside this program, ../lib/switchyard/, ../lib/.
Result<std::string> find_library();

// switchyardd: beside this program, ../libexec/, ../libexec/switchyard/, or on PATH.
Result<std::string> find_monitor_program();

}  // namespace switchyard::tools
