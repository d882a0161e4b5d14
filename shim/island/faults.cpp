#include "shim/island/faults.h"

#include "shim/client/client.h"
#include "shim/gate/errors.h"

namespace switchyard::shim::island {

void tell_fault(abi::Lane& lane, CUresult error) {
  if ((lane.attention.load(std::memory_order_relaxed) & abi::kTellFaults) == 0) return;
  std::uint32_t none = 0;
  if (!is_fault(error) || !lane.fault.compare_exchange_strong(none, error)) return;
  wake_monitor();
}

}  // namespace switchyard::shim::island
