// What stays on the GPU that the contexts leave for another one: the process keeps it.
#include <unistd.h>

#include "shim/own_fd.h"
#include "shim/swap/memory/memory_fd.h"
#include "shim/swap/memory/parking.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap {
namespace {

class Keep {
 public:
  Keep(unsigned lane, Resident resident, MayPark may_keep)
      : lane_(lane), resident_(resident), may_keep_(may_keep) {}

  void put(Chunk& chunk, CUdeviceptr address) {
    // A chunk that lacks its contents has them elsewhere already.
    if (moved_.stop != Stop::kNothing || chunk.contents_pending) return;
    if (!may_keep_(lane_, chunk.bytes)) return;
    parking::ParkedPiece piece{.bytes = chunk.bytes};
    const CUresult kept = hold(chunk, piece);
    if (kept != CUDA_SUCCESS) {
      parking::uncount(lane_, chunk.bytes);
      moved_.unparked = kept;
      return;
    }
    const Spending spending(moved_.gave_ns);
    if (const CUresult result = send_away(chunk, address); result != CUDA_SUCCESS) {
      parking::give_back(piece);
      moved_.stop = Stop::kDriver;
      moved_.result = result;
      return;
    }
    drop_copies(chunk);  // of older contents
    chunk.digest = {};
    chunk.parked = piece;
    moved_.skipped += chunk.bytes;
    moved_.kept += chunk.bytes;
    resident_(lane_, -signed_bytes(chunk));
  }

  Moved finish() const { return moved_; }

 private:
  // By a descriptor, beside the mapping that it still has.
  CUresult hold(const Chunk& chunk, parking::ParkedPiece& piece) {
    const Spending spending(moved_.made_ns);
    int exported = -1;
    const CUresult result = export_chunk(chunk, exported);
    if (result != CUDA_SUCCESS) return result;
    const int descriptor = memory_fd::keep_one_of_many(exported);
    close_file(exported);
    if (descriptor == 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (parking::keep(lane_, slab_, descriptor, piece)) return CUDA_SUCCESS;
    memory_fd::close(descriptor);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }

  unsigned lane_;
  Resident resident_;
  MayPark may_keep_;
  parking::Slab* slab_ = nullptr;  // that takes the next ones
  Moved moved_;
};

}  // namespace

Moved keep(unsigned lane, std::uint64_t bytes, Resident resident, MayPark may_keep) {
  Keep keep(lane, resident, may_keep);
  if (driver().cuMemExportToShareableHandle == nullptr ||
      driver().cuMemImportFromShareableHandle == nullptr) {
    return {.unparked = CUDA_ERROR_NOT_SUPPORTED};
  }
  each_leaving(lane, bytes,
               [&](Chunk& chunk, CUdeviceptr address, const Range&) { keep.put(chunk, address); });
  return keep.finish();
}

}  // namespace switchyard::shim::swap
