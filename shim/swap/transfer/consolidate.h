// Whole: an allocation of several chunks becomes one handle of the driver's, so that others can be
// given it.
//
// Concept. A process rarely exports memory that it makes with handle types: XLA takes its whole
// pool so. Such memory is made of chunks like any other and moves like any other, until somebody
// really wants a handle of it. Then its contents go to the host as in any move, and one handle of
// the full size takes the chunks' place. The contents come back into it. The device never holds it
// twice. From then on it stays where it is.
//
//     chunk 0 │ chunk 1 │ chunk 2   ──► the host's pieces ──►   one handle, of the kind asked for
//
// Where that fails it has its chunks again. Contents that were already in the host come back as
// after any move, at the latest with the mover's next looks. While it is mapped at other than the
// one place that it could leave from, it is at a place of ours meanwhile. Memory that nobody could
// ever reach has no contents: there only the handles change.
//
// Threading: pre of make().
#pragma once

#include "shim/swap/memory/vmm_allocation.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap::consolidation {

// Whether the driver has it as one handle that it exports: none that another process made.
// pre: a RangesLock lives.
bool is_whole(const VmmAllocation& allocation);
// The driver's complaint, or why it can't be made whole. pre: a RangesLock lives. Unless nobody
// ever reached the allocation: no work can touch it, and a context of its GPU is current.
// `resident` is told of what comes back after a failure.
CUresult make(VmmAllocation& allocation, Resident resident = nullptr);

}  // namespace switchyard::shim::swap::consolidation
