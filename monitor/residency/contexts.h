// Whether the contexts of a job can leave its GPUs with its memory, before anything is touched.
//
// Concept. The library itself judges last, and the driver after it. This says it to the person who
// asks, by what the clients tell in their pages.
//
// Threading: one thread.
#pragma once

#include <string>

#include "monitor/core/registry.h"

namespace switchyard::monitor {

// Why they can't, or empty.
std::string why_contexts_stay(const Registry& registry, const Job& job);

}  // namespace switchyard::monitor
