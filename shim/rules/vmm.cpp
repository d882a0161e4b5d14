#include "shim/rules/vmm.h"

#include <stdlib.h>
#include <string.h>

namespace switchyard::shim::rules {

void note_imported(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  const auto ask = driver().cuMemGetAllocationPropertiesFromHandle;
  if (ask == nullptr || ask(&properties, handle) != CUDA_SUCCESS) return;
  const abi::Lane* lane = lane_of(properties.location);
  if (lane == nullptr) return;
  ledger::note(ledger::Kind::kHandle, handle,
               {.lane = lane_index(lane), .handles = 1, .why = Stays::kIpcImported});
}

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

CUresult map_array(CUresult (*original)(CUarrayMapInfo*, unsigned, CUstream), CUarrayMapInfo* list,
                   unsigned count, CUstream stream) {
  if (!swap::on() || list == nullptr || count == 0) return original(list, count, stream);
  for (unsigned i = 0; i < count; ++i) {
    const CUmemGenericAllocationHandle handle = list[i].memHandle.memHandle;
    if (!swap::handles::ours(handle)) continue;
    if (const CUresult refused = swap::handles::make_whole(handle)) return refused;
  }
  const swap::WorkGuard entry;
  // The list is the application's: it may use it again.
  auto* real = static_cast<CUarrayMapInfo*>(::malloc(count * sizeof(CUarrayMapInfo)));
  if (real == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ::memcpy(real, list, count * sizeof(CUarrayMapInfo));
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    CUmemGenericAllocationHandle& handle = real[i].memHandle.memHandle;
    if (!swap::handles::ours(handle)) continue;
    result = swap::handles::real(handle, handle);
  }
  if (result == CUDA_SUCCESS) result = original(real, count, stream);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    swap::handles::stays(list[i].memHandle.memHandle, Stays::kArrays);
  }
  ::free(real);
  return result;
}

}  // namespace switchyard::shim::rules
