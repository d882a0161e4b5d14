// The word that somebody may have meant, for commands.
#pragma once

#include "switchyard/suggest.h"

namespace switchyard::tools {

using switchyard::nearest;

}  // namespace switchyard::tools
