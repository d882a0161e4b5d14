// `switchyard jupyter install`: a kernel of Jupyter whose process is a job. Its memory leaves the
// GPU while it idles.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_jupyter(CommandLine& line);

}  // namespace switchyard::tools
