#include "shim/memory/vmm.h"

namespace switchyard::shim::rules {

void unmapped(std::uint64_t address, std::uint64_t size) {
  // Mappings that we did not note (imported memory, the host's) leave gaps; every mapping starts at
  // a multiple of the smallest granularity of any GPU and host.
  constexpr std::uint64_t kStep = 64 * 1024;
  const std::uint64_t end = address + size;
  while (address < end) {
    ledger::Charge mapping;
    if (!ledger::take(ledger::Kind::kMapping, address, mapping)) {
      address += kStep;
      continue;
    }
    drop_reference(mapping.owner, 0, 1, [] { return CUDA_SUCCESS; });
    address += mapping.bytes;
  }
}

}  // namespace switchyard::shim::rules
