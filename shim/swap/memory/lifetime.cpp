#include "shim/swap/memory/lifetime.h"

#include <stdlib.h>

#include <algorithm>

#include "shim/client/process.h"
#include "shim/memory/account.h"
#include "shim/memory/stays.h"
#include "shim/swap/memory/neighbours.h"
#include "shim/swap/memory/retry_on_oom.h"
#include "shim/swap/mover.h"

namespace switchyard::shim::swap {
namespace {

// Gives back all that stands behind a range, and its addresses.
void dissolve(Range& range) {
  CUdeviceptr at = range.address;
  for (unsigned i = 0; i < range.count; ++i) {
    Chunk& chunk = range.chunks[i];
    if (chunk.handle != 0) send_away(chunk, at);
    drop_copies(chunk);
    at += chunk.bytes;
  }
  if (range.address != 0) driver().cuMemAddressFree(range.address, range.bytes);
  ::free(range.chunks);
  range.address = 0;
  range.chunks = nullptr;
}

CUresult make_chunks(Range& range) {
  range.count = static_cast<unsigned>((range.bytes + kChunk - 1) / kChunk);
  range.chunks = static_cast<Chunk*>(::calloc(range.count, sizeof(Chunk)));
  if (range.chunks == nullptr) {
    range.count = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (unsigned i = 0; i < range.count; ++i) {
    range.chunks[i].bytes = std::min(kChunk, range.bytes - i * kChunk);
  }
  return CUDA_SUCCESS;
}

CUresult bring_all(Range& range) {
  for (unsigned i = 0; i < range.count; ++i) {
    const CUresult result = bring(range.chunks[i], range.address + i * kChunk, range.properties);
    if (result != CUDA_SUCCESS) return result;
  }
  return permit(range.address, range.bytes, access_of(range));
}

// pre: a RangesLock lives.
CUresult make(Range& range) {
  // Before it comes: the monitor shall never see less than there is.
  mover::allocated(range.lane, range.bytes);
  range.id = new_id();
  CUresult result = make_chunks(range);
  if (result == CUDA_SUCCESS) {
    result = driver().cuMemAddressReserve(&range.address, range.bytes, 0, 0, 0);
  }
  if (result == CUDA_SUCCESS) result = bring_all(range);
  if (result == CUDA_SUCCESS && !add(range)) result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    dissolve(range);
    mover::freed(range.lane, range.bytes, range.bytes);
  }
  return result;
}

}  // namespace

bool takes_turns() {
  return process().joined.load(std::memory_order_acquire) != 0 &&
         card_says_yes(page().card.text, "oversubscribe");
}

CUresult create(Range& range) {
  return admitted([&] { return make(range); });
}

void end(std::size_t index) {
  Range range = take(index);
  const std::uint64_t resident = resident_bytes(range);
  if (range.freed.event != nullptr) driver().cuEventDestroy_v2(range.freed.event);
  if (range.stays)
    neighbours::shared_range_ended(range);  // the monitor's descriptors would keep the memory
  dissolve(range);
  if (range.stays) {
    memory::stays(static_cast<int>(range.lane), Stays::kIpcExported,
                  -static_cast<std::int64_t>(range.bytes));
  } else {
    mover::freed(range.lane, range.bytes, resident);
  }
  const std::uint64_t charged = range.pool != 0 ? range.bytes : range.charged;
  if (charged != 0) account::release(lane_of_device(static_cast<int>(range.lane)), charged);
}

void end(const Range* range) { end(static_cast<std::size_t>(range - &at(0))); }

}  // namespace switchyard::shim::swap
