#include "bench/ablation/parking.h"

#include <algorithm>

namespace switchyard::bench::ablation {
namespace {

constexpr unsigned kDepth = 4;

template <typename Act>
void timed(double& to_ms, Act act) {
  const std::int64_t begun = now_ns();
  act();
  to_ms += ms_since(begun);
}

CUmemAllocationProp memory_on(int gpu) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu};
  return properties;
}

void let_first_gpu_use(CUdeviceptr address, std::size_t bytes) {
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CU(cuMemSetAccess, address, bytes, &access, 1);
}

// A stream, and an event behind each of the last copies.
class Copies {
 public:
  Copies() {
    CU(cuStreamCreate, &stream_, CU_STREAM_NON_BLOCKING);
    for (CUevent& event : events_) CU(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  }
  ~Copies() {
    for (CUevent event : events_) CU(cuEventDestroy, event);
    CU(cuStreamDestroy, stream_);
  }
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  void begin(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    CU(cuMemcpyDtoDAsync, to, from, bytes, stream_);
    CU(cuEventRecord, events_[begun_++ % kDepth], stream_);
  }
  bool full() const { return begun_ - landed_ == kDepth; }
  unsigned landed() const { return landed_; }
  void land(ParkTook& took) {
    timed(took.wait_ms, [&] { CU(cuEventSynchronize, events_[landed_++ % kDepth]); });
  }
  void land_all(ParkTook& took) {
    while (landed_ != begun_) land(took);
  }

 private:
  CUstream stream_ = nullptr;
  CUevent events_[kDepth] = {};
  unsigned begun_ = 0;
  unsigned landed_ = 0;
};

// Gives up chunks whose copies have arrived, so many by one call.
class GiveUp {
 public:
  GiveUp(Chunks& chunks, unsigned together, ParkTook& took)
      : chunks_(chunks), together_(together), took_(took) {}

  // Those before `end`, as far as they fill a call or are the last.
  void until(unsigned end) {
    while (given_ < end && (end - given_ >= together_ || end == chunks_.count())) {
      const unsigned count = std::min(together_, end - given_);
      timed(took_.unmap_ms, [&] { unmap(count); });
      timed(took_.release_ms, [&] {
        for (unsigned i = 0; i < count; ++i) chunks_.release(given_ + i);
      });
      given_ += count;
    }
  }

 private:
  void unmap(unsigned count) {
    const CUresult result = chunks_.unmap_together(given_, count);
    if (result == CUDA_SUCCESS) return;
    took_.refused = result;
    for (unsigned i = 0; i < count; ++i) chunks_.unmap(given_ + i);
  }

  Chunks& chunks_;
  unsigned together_;
  ParkTook& took_;
  unsigned given_ = 0;
};

}  // namespace

bool has_neighbour() {
  int gpus = 0;
  int reaches = 0;
  CU(cuDeviceGetCount, &gpus);
  if (gpus > 1) CU(cuDeviceCanAccessPeer, &reaches, 0, 1);
  return reaches != 0;
}

Neighbour::Neighbour(std::size_t bytes, const ParkWay& way)
    : bytes_(bytes), way_(way), pieces_((bytes + way.piece - 1) / way.piece) {
  for (unsigned i = 0; way_.kept && i < count(); ++i) make(i);
}

Neighbour::~Neighbour() {
  ParkTook nobody_asks;
  for (unsigned i = 0; i < count(); ++i) give_up(i, nobody_asks);
}

std::size_t Neighbour::bytes_of(unsigned at) const {
  return std::min(way_.piece, bytes_ - at * way_.piece);
}

CUdeviceptr Neighbour::at(std::size_t offset) const {
  return pieces_[piece_of(offset)].address + offset % way_.piece;
}

void Neighbour::make(unsigned at) {
  static const CUmemAllocationProp properties = memory_on(1);
  Piece& piece = pieces_[at];
  if (piece.handle != 0) return;
  CU(cuMemAddressReserve, &piece.address, bytes_of(at), 0, 0, 0);
  CU(cuMemCreate, &piece.handle, bytes_of(at), &properties, 0);
  CU(cuMemMap, piece.address, bytes_of(at), 0, piece.handle, 0);
  let_first_gpu_use(piece.address, bytes_of(at));
}

void Neighbour::give_up(unsigned at, ParkTook& took) {
  Piece& piece = pieces_[at];
  if (piece.handle == 0) return;
  timed(took.unmap_ms, [&] { CU(cuMemUnmap, piece.address, bytes_of(at)); });
  timed(took.release_ms, [&] {
    CU(cuMemRelease, piece.handle);
    CU(cuMemAddressFree, piece.address, bytes_of(at));
  });
  piece = {};
}

ParkTook park(Chunks& chunks, Neighbour& neighbour, const ParkWay& way) {
  ParkTook took;
  const std::int64_t begun = now_ns();
  Copies copies;
  GiveUp give_up(chunks, way.together, took);
  for (unsigned i = 0; i < chunks.count(); ++i) {
    if (copies.full()) {
      copies.land(took);
      if (!way.out_last) give_up.until(copies.landed());
    }
    const std::size_t offset = chunks.offset(i);
    timed(took.make_ms, [&] { neighbour.make(neighbour.piece_of(offset)); });
    copies.begin(neighbour.at(offset), chunks.address(i), chunks.bytes(i));
  }
  copies.land_all(took);
  give_up.until(chunks.count());
  took.ms = ms_since(begun);
  return took;
}

ParkTook bring_back(Chunks& chunks, Neighbour& neighbour, const ParkWay& way) {
  ParkTook took;
  const std::int64_t begun = now_ns();
  Copies copies;
  unsigned given = 0;
  for (unsigned i = 0; i < chunks.count(); ++i) {
    if (copies.full()) copies.land(took);
    // All of the pieces before the one that the oldest copy in flight reads.
    const unsigned done = neighbour.piece_of(chunks.offset(copies.landed()));
    while (!way.kept && !way.back_last && given < done) neighbour.give_up(given++, took);
    timed(took.make_ms, [&] { chunks.bring(i); });
    copies.begin(chunks.address(i), neighbour.at(chunks.offset(i)), chunks.bytes(i));
  }
  copies.land_all(took);
  while (!way.kept && given < neighbour.count()) neighbour.give_up(given++, took);
  took.ms = ms_since(begun);
  return took;
}

CallCosts call_costs(int gpu, std::size_t bytes) {
  constexpr unsigned kTimes = 16;
  const CUmemAllocationProp properties = memory_on(gpu);
  CallCosts out;
  for (unsigned i = 0; i < kTimes; ++i) {
    CUdeviceptr at = 0;
    Handle handle = 0;
    const auto add_us = [](double& to, auto call) {
      double ms = 0;
      timed(ms, call);
      to += ms * 1e3 / kTimes;
    };
    add_us(out.reserve, [&] { CU(cuMemAddressReserve, &at, bytes, 0, 0, 0); });
    add_us(out.create, [&] { CU(cuMemCreate, &handle, bytes, &properties, 0); });
    add_us(out.map, [&] { CU(cuMemMap, at, bytes, 0, handle, 0); });
    add_us(out.access, [&] { let_first_gpu_use(at, bytes); });
    add_us(out.unmap, [&] { CU(cuMemUnmap, at, bytes); });
    add_us(out.release, [&] { CU(cuMemRelease, handle); });
    add_us(out.unreserve, [&] { CU(cuMemAddressFree, at, bytes); });
  }
  return out;
}

}  // namespace switchyard::bench::ablation
