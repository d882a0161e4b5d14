// Memory that is parked on another GPU goes to the host: a job needs that GPU's room.
#include "shim/swap/host/pinned_pool.h"
#include "shim/swap/memory/parking.h"
#include "shim/swap/transfer/pipeline.h"

namespace switchyard::shim::swap {
namespace {

class MoveOn {
 public:
  MoveOn(unsigned lane, void (*left)(unsigned lane)) : lane_(lane), left_(left) {
    fail(stream_.result());
  }

  bool failed() const { return moved_.stop != Stop::kNothing; }

  void put(Chunk& chunk) {
    if (next_ - oldest_ == kDepth) land();
    if (failed()) return;
    Flight flight{&chunk, find_piece(lane_, chunk.bytes)};
    if (!flight.to) {
      moved_.stop = Stop::kNoHostRoom;
      return;
    }
    {
      const Spending spending(moved_.pinned_ns);
      pinned_pool::pin_for_copy(flight.to);
    }
    CUdeviceptr from = 0;
    CUresult result = parking::reach(chunk.parked, from);
    if (result == CUDA_SUCCESS) {
      result = driver().cuMemcpyDtoHAsync_v2(flight.to.at, from, chunk.bytes, stream_.stream());
    }
    if (result == CUDA_SUCCESS) result = stream_.mark(next_);
    flights_[next_++ % kDepth] = flight;
    fail(result);
  }

  Moved finish() {
    while (oldest_ != next_) land();
    return moved_;
  }

 private:
  // A parked chunk whose copy to the host is in flight.
  struct Flight {
    Chunk* chunk = nullptr;
    pinned_pool::HostPiece to = {};
  };

  void fail(CUresult result) {
    if (result == CUDA_SUCCESS || moved_.stop == Stop::kDriver) return;
    moved_.stop = Stop::kDriver;
    moved_.result = result;
  }

  // The oldest copy has arrived, or failed: then its chunk stays parked.
  void land() {
    Flight flight = flights_[oldest_ % kDepth];
    if (moved_.stop != Stop::kDriver) {
      const Spending spending(moved_.waited_ns);
      fail(stream_.wait(oldest_));
    }
    ++oldest_;
    if (moved_.stop == Stop::kDriver) {
      stream_.wait_for_all();  // nothing may write into a piece that is given back
      pinned_pool::give_back(flight.to);
      return;
    }
    flight.chunk->host = flight.to;
    const Spending spending(moved_.gave_ns);
    parking::give_back(flight.chunk->parked);
    moved_.copied += flight.chunk->bytes;
    left_(lane_);
  }

  unsigned lane_;
  void (*left_)(unsigned lane);
  CopyStream stream_;
  Flight flights_[kDepth] = {};
  unsigned oldest_ = 0;
  unsigned next_ = 0;
  Moved moved_;
};

}  // namespace

Moved move_on(unsigned lane, std::uint64_t bytes, void (*left)(unsigned lane)) {
  MoveOn move_on(lane, left);
  std::uint64_t begun = 0;
  const parking::Slab* last = nullptr;
  each_chunk(lane, [&](Chunk& chunk, CUdeviceptr, const Range&) {
    if (!chunk.parked || move_on.failed()) return;
    // The room of a slab is free when all of it has left.
    if (begun >= bytes && chunk.parked.slab != last) return;
    begun += chunk.bytes;
    last = chunk.parked.slab;
    move_on.put(chunk);
  });
  const Moved moved = move_on.finish();
  leave_kept(lane);
  return moved;
}

void leave_kept(unsigned lane) {
  each_chunk(lane, [](Chunk& chunk, CUdeviceptr, const Range&) { parking::leave(chunk.parked); });
}

}  // namespace switchyard::shim::swap
