#include "shim/swap/reset.h"

#include "shim/swap/admission.h"
#include "shim/swap/bodies.h"
#include "shim/swap/digest.h"
#include "shim/swap/executor.h"
#include "shim/swap/handover.h"
#include "shim/swap/host_pool.h"
#include "shim/swap/mover.h"
#include "shim/swap/pooled.h"
#include "shim/swap/ranges.h"
#include "shim/swap/wanted.h"
#include "shim/swap/words.h"

namespace switchyard::shim::swap {
namespace {

using Reset = void (*)();

// A module with state of its own has a line here. There are no constructors that could add one.
constexpr Reset kResets[] = {
    words::clear,    residency::clear, mover::clear,     wanted::clear,
    handover::clear, admission::clear, bodies::clear,    pooled::clear,
    clear_ranges,    clear_digests,    host_pool::clear,
};

}  // namespace

void clear() {
  for (const Reset reset : kResets) reset();
}

}  // namespace switchyard::shim::swap
