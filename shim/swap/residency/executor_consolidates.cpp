// A thread of the program has asked for one handle behind an allocation: made while work is held.
#include "shim/swap/memory/consolidation_request.h"
#include "shim/swap/memory/range_table.h"
#include "shim/swap/memory/vmm_allocation.h"
#include "shim/swap/residency/executor.h"
#include "shim/swap/residency/residency_page.h"
#include "shim/swap/transfer/consolidate.h"
#include "shim/swap/transfer/handover.h"
#include "shim/work_guard.h"

namespace switchyard::shim::swap::residency {
namespace {

std::uint64_t bytes_of(Handle number) {
  const ChunksLock held;
  const VmmAllocation* allocation = vmm_allocations::find(number);
  return allocation != nullptr ? allocation->bytes : 0;
}

}  // namespace

Input Executor::consolidate(const MoverView& seen) {
  Input input{.event = MoverEvent::kConsolidated, .seen = seen};
  asked_ = false;
  if (!consolidation_request::take(lane_)) return input;
  offered_ = offered_ && handover::prepare(lane_, 0, 0);  // it isn't free when it has left
  result_ = ready_for_whole(bytes_of(consolidation_request::number()));
  if (result_ == CUDA_SUCCESS && consolidation_request::is_taken()) result_ = hold();
  asked_ = consolidation_request::begin();
  if (asked_ && result_ == CUDA_SUCCESS) {
    const RangesLock held;
    VmmAllocation* allocation = vmm_allocations::find(consolidation_request::number());
    result_ = allocation != nullptr
                  ? consolidation::make(*allocation, residency_page::resident_changes)
                  : CUDA_ERROR_INVALID_VALUE;
    input.away = anything_away(lane_);
  }
  return input;
}

CUresult Executor::ready_for_whole(std::uint64_t bytes) {
  if (!context_.enter(lane_)) return CUDA_ERROR_INVALID_CONTEXT;
  return find_room(bytes, kept_now()) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void Executor::answer() {
  residency_page::publish(lane_);
  if (asked_) consolidation_request::answer(result_);
  asked_ = false;
}

}  // namespace switchyard::shim::swap::residency
