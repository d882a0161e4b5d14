#include "shim/nccl/cut.h"

#include "shim/client/process.h"
#include "shim/gate/gate.h"
#include "shim/gate/hold.h"
#include "shim/work_guard.h"

namespace switchyard::shim::nccl {
namespace {

bool must_stop() {
  return page().process.cut.load(std::memory_order_seq_cst) != 0 && communicators::at_targets();
}

// This thread's work in the streams gets its numbers: else the GPU would look busy.
void settle() {
  for (unsigned lane = 0; lane < abi::kMaxGpus; ++lane) numbers::settle(lane);
}

void stop_at_cut() {
  Ear ear;
  for (;;) {
    // First the word: whoever changes a target changes it afterwards.
    const std::uint32_t seen = page().process.cut.load(std::memory_order_acquire);
    if (seen == 0 || !communicators::at_targets()) return;
    settle();
    nap_on(page().process.cut, seen, page().process.stopped, ear);
  }
}

void hold_outside(bool stops) {
  if (stops && page().process.cut.load(std::memory_order_relaxed) != 0) stop_at_cut();
  if (gate::attentive_lane() != nullptr) gate::hold_all();
  if (swap::on() && !swap::admission::inside()) swap::admission::wait_until_open();
}

}  // namespace

Launch::Launch(bool stops) {
  for (;;) {
    --t_not_held;  // inside_ has raised it
    hold_outside(stops);
    ++t_not_held;
    communicators::enter();
    if (!stops || !must_stop()) return;
    communicators::leave();
  }
}

}  // namespace switchyard::shim::nccl
