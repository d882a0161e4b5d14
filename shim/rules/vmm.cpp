#include "shim/rules/vmm.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

namespace switchyard::shim::rules {

void note_imported(CUmemGenericAllocationHandle handle) {
  CUmemAllocationProp properties{};
  const auto ask = driver().cuMemGetAllocationPropertiesFromHandle;
  if (ask == nullptr || ask(&properties, handle) != CUDA_SUCCESS) return;
  const abi::Lane* lane = lane_of(properties.location);
  if (lane == nullptr) return;
  ledger::note(ledger::NoteKind::kHandle, handle,
               {.lane = lane_index(lane), .handles = 1, .why = Stays::kIpcImported});
}

bool Unmapping::take(std::uint64_t address, Piece& piece) {
  piece.address = address;
  if (!ledger::take(ledger::NoteKind::kMapping, address, piece.mapping)) return false;
  piece.known = ledger::adjust(piece.mapping.owner, 0, -1, piece.memory, piece.gone);
  return true;
}

// False: no memory for it.
bool Unmapping::keep(const Piece& piece) {
  if (count_ == places_) {
    const std::size_t more = std::max<std::size_t>(2 * places_, 16);
    auto* grown = static_cast<Piece*>(::realloc(pieces_, more * sizeof(Piece)));
    if (grown == nullptr) return false;
    pieces_ = grown;
    places_ = more;
  }
  pieces_[count_++] = piece;
  return true;
}

void Unmapping::put_back(const Piece& piece) {
  ledger::note(ledger::NoteKind::kMapping, piece.address, piece.mapping);
  if (!piece.known) return;
  ledger::Charge memory = piece.memory;
  bool gone = false;
  if (!piece.gone) {
    ledger::adjust(piece.mapping.owner, 0, 1, memory, gone);
    return;
  }
  memory.mappings = 1;
  ledger::note(ledger::NoteKind::kHandle, piece.mapping.owner, memory);
}

Unmapping::Unmapping(std::uint64_t address, std::uint64_t size) {
  // Mappings that we did not note (the host's) leave gaps; every mapping starts at a multiple of
  // the smallest granularity of any GPU and host.
  constexpr std::uint64_t kStep = 64 * 1024;
  // The size may be nonsense, and without end. A look at all notes is worth so many steps.
  constexpr unsigned kMostSteps = 4096;
  const std::uint64_t end = address + size;
  for (unsigned steps = 1; address < end;) {
    Piece piece;
    if (!take(address, piece)) {
      const bool skips = steps++ % kMostSteps == 0;
      const std::uint64_t step = std::min(kStep, end - address);
      address = skips ? ledger::next(ledger::NoteKind::kMapping, address, end) : address + step;
      continue;
    }
    if (!keep(piece)) {
      put_back(piece);  // and it stays charged
      return;
    }
    address += piece.mapping.bytes;
  }
}

void Unmapping::end(CUresult result) {
  for (std::size_t i = count_; i-- > 0;) {
    const Piece& piece = pieces_[i];
    if (result != CUDA_SUCCESS) {
      put_back(piece);
    } else if (piece.gone) {
      account::release(lane_of_device(piece.memory.lane), piece.memory.bytes);
    }
  }
  ::free(pieces_);
  pieces_ = nullptr;
  count_ = places_ = 0;
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
