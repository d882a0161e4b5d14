// Sentences of a job's last second, and of why one that runs is slow (the table in sentences.h).
//
// Threading: pure functions.
#pragma once

#include <string>

#include "tools/why/seen.h"

namespace switchyard::tools {

// " In the last 1.0 s it had 40% of the GPU's time, ..."; empty: not known.
std::string lately_text(const Seen& seen);

std::string running(const Seen& seen);

}  // namespace switchyard::tools
