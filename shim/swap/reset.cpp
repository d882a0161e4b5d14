#include "shim/swap/reset.h"

#include "shim/swap/calls/pooled.h"
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/memory/vmm_allocation.h"
#include "shim/swap/mover.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/swap/transfer/digest.h"
#include "shim/swap/transfer/handover.h"
#include "shim/swap/work_guard.h"

namespace switchyard::shim::swap {
namespace {

using Reset = void (*)();

// A module with state of its own has a line here. There are no constructors that could add one.
constexpr Reset kResets[] = {
    residency_page::clear, residency::clear, mover::clear,           consolidation_request::clear,
    handover::clear,       admission::clear, vmm_allocations::clear, pooled::clear,
    clear_ranges,          clear_digests,    pinned_pool::clear,
};

}  // namespace

void clear() {
  for (const Reset reset : kResets) reset();
}

}  // namespace switchyard::shim::swap
