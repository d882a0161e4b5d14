// A timeline as a trace of Perfetto: TrackEvents that https://ui.perfetto.dev opens.
//
//     track of a GPU                     slices: who runs; counter: memory in use
//     └─ a job on that GPU               slices: what it does; flows from who ran before it
//        └─ counters                     share, memory, processes at work, launches per second
//
// Perfetto's newer state tracks would fit better, but older versions of its page don't show them.
//
// Threading: a pure function.
#pragma once

#include <string>

#include "tools/trace/spans.h"

namespace switchyard::tools::trace {

std::string perfetto_of(const Timeline& timeline);

}  // namespace switchyard::tools::trace
