// `switchyard means`: chooses the means of sharing, or none, to compare or to rule them out.
#pragma once

#include "tools/base/command.h"

namespace switchyard::tools {

void add_means(CLI::App& app, Outcome& outcome);

}  // namespace switchyard::tools
